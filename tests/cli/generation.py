"""generation.py: run, perplexity, bench and check-kernels with SmolLM2: what goes where, when it ends, what is
refused."""

import re
import signal
import time

from program import Case, EMMA, SMOLLM2, main, rows, run, start

GREEDY = ["--temp", "0"]
SEA = "Tell me a story about the sea, please, and make it very long and sad."


class Streams(Case):
    def setUp(self):
        super().setUp()
        self.model = self.need(SMOLLM2)

    def test_stdout_is_the_text_alone(self):
        plain = self.ok("run", self.model, "-p", "Write one sentence about the city of Paris.", "-n", "24", *GREEDY)
        self.assertIn("Paris", plain.stdout.decode())
        for word in [b"tokens/s", b"context", b"one sentence", b"<|im"]:
            self.assertNotIn(word, plain.stdout)
        log = self.folder / "log"
        quiet = self.ok("run", self.model, "-p", "Write one sentence about the city of Paris.", "-n", "24", *GREEDY, "-q",
                        "--log-file", log)
        self.assertEqual((quiet.stdout, quiet.stderr), (plain.stdout, b""))
        self.assertRegex(log.read_text(), r"(?m)^I decode +\d+ tokens")

    def test_both_blocks(self):
        text = self.ok("run", self.model, "-p", "Hello", "-n", "8", *GREEDY, "-c", "256", "-ctk", "q8_0").stderr.decode()
        for pattern in [r"model +.*llama, 134\.5 M parameters", r"context +256 tokens", r"threads +\d+, kernels \w+",
                        r"kv +layers 0-29 +K q8_0 \w+, V f16 \w+, cpu\S*, [\d.]+ KiB/token, [\d.]+ MiB",
                        r"memory +weights [\d.]+ MiB", r"load +[\d.]+ s", r"prefill +\d+ tokens in [\d.]+ s, [\d.]+ tokens/s",
                        r"decode +\d+ tokens in [\d.]+ s, [\d.]+ tokens/s, [\d.]+ GB/s \(\d+ % of the [\d.]+ GB/s",
                        r"finish +.+, \d+ tokens, 0 shifts"]:
            self.assertRegex(text, f"(?m)^{pattern}")
        self.assertNotIn("\r", text)

    def test_prompt_from_anywhere(self):
        command = ["run", self.model, "-n", "6", *GREEDY, "-q"]
        text = self.ok(*command, "-p", "Good morning").stdout
        self.assertEqual(self.ok(*command, "-f", self.file("prompt", "Good morning")).stdout, text)
        self.assertEqual(self.ok(*command, stdin=b"Good morning").stdout, text)
        self.assertEqual(self.ok(*command, env={"KVANT_PROMPT": "Good morning"}).stdout, text)

    def test_seed_repeats(self):
        command = ["run", self.model, "-p", "Once upon a time", "--raw", "-n", "16", "-q", "--temp", "1.5", "-s"]
        one, again, other = (self.ok(*command, seed).stdout for seed in ["7", "7", "8"])
        self.assertEqual(one, again)
        self.assertNotEqual(one, other)

    def test_raw_and_system(self):
        raw = self.ok("run", self.model, "-p", "The capital of France is", "-no-cnv", "-n", "4", *GREEDY, "-q").stdout
        self.assertTrue(raw.startswith(b" Paris"), raw)
        self.ok("run", self.model, "-p", "Hello", "-sys", "Answer in French.", "-n", "4", *GREEDY, "-q")


class Ends(Case):
    def finish(self, *arguments):
        result = self.ok("run", self.need(SMOLLM2), "-p", SEA, "--raw", *GREEDY, *arguments)
        line = next(line for line in result.stderr.decode().splitlines() if line.startswith("finish"))
        _, reason, tokens, shifts = re.match(r"finish +((.+), (\d+) tokens, (\d+) shifts?)", line).groups()
        return result.stdout.decode(), reason, int(tokens), int(shifts)

    def test_budget(self):
        self.assertEqual(self.finish("-n", "5", "--ignore-eos")[2:], (5, 0))
        self.assertEqual(self.finish("-n", "1", "--ignore-eos")[2:], (1, 0))

    def test_full_context_stops(self):
        text, reason, tokens, shifts = self.finish("-c", "64", "--ignore-eos")
        self.assertIn("context", reason)
        self.assertEqual(shifts, 0)
        n_prompt = int(self.ok("tokenize", SMOLLM2, "-p", SEA, "--count").stdout)
        self.assertIn(tokens + n_prompt, [64, 65])

    def test_full_context_shifts(self):
        text, reason, tokens, shifts = self.finish("-c", "64", "--ignore-eos", "--context", "shift", "-n", "150")
        self.assertEqual(tokens, 150)
        self.assertGreaterEqual(shifts, 3)
        self.assertGreater(len(set(text.split())), 20)

    def test_stop_text(self):
        text, reason, _, _ = self.finish("-n", "60", "--ignore-eos", "--stop", "a ", "--stop", "zebra")
        self.assertNotIn("a ", text)
        self.assertIn("stop", reason)

    def test_bias(self):
        ids = self.ok("tokenize", self.need(SMOLLM2), "-p", "t", "--ids").stdout.decode().strip()
        self.assertEqual(self.finish("-n", "4", "--logit-bias", f"{ids}+500")[0], "tttt")

    def test_interrupt(self):
        """Ctrl-C ends the generation; what there is stays, the figures come."""
        program = start("run", self.need(SMOLLM2), "-p", SEA, "--ignore-eos", "-n", "4000", *GREEDY)
        text = program.stdout.read(20)
        program.send_signal(signal.SIGINT)
        rest, messages = program.communicate(timeout=120)
        self.assertEqual(program.returncode, 0)
        self.assertLess(len(text + rest), 4000)
        self.assertRegex(messages.decode(), r"(?m)^decode .*tokens/s")
        self.assertRegex(messages.decode(), r"(?m)^finish +.*cancel")

    def test_interrupt_while_reading(self):
        program = start("run", self.need(SMOLLM2))
        time.sleep(0.3)
        program.send_signal(signal.SIGINT)
        _, messages = program.communicate(timeout=60)
        self.assertEqual((program.returncode, messages), (1, b"kvant: standard input: interrupted\n"))


class Refused(Case):
    def setUp(self):
        super().setUp()
        self.command = ["run", self.need(SMOLLM2), "-q", "-n", "4"]

    def test_prompt_that_does_not_fit(self):
        for size in ["1", "8", "16"]:
            self.refused(2, [size], *self.command, "-p", SEA, "-c", size)
        self.refused(2, ["64"], *self.command, "-c", "64", "--context", "shift", stdin=b"word " * 5000)

    def test_empty_prompt(self):
        self.refused(2, ["empty"], *self.command)
        self.refused(2, ["empty"], *self.command, "-p", "")

    def test_nul_in_the_prompt(self):
        self.refused(2, ["NUL", "byte 3"], *self.command, stdin=b"one\0two")
        self.ok(*self.command, "--raw", stdin=b"one\0two")

    def test_any_other_bytes(self):
        for prompt in [b"\xff\xfe\xfd", b"caf\xc3", b"\xed\xa0\x80 \xf5\x80", b"\x80" * 64]:
            self.ok(*self.command, stdin=prompt).stdout.decode()
            self.ok(*self.command, "--raw", stdin=prompt).stdout.decode()

    def test_types_and_templates(self):
        self.refused(2, ["q9_9"], *self.command, "-p", "x", "-ctk", "q9_9")
        self.refused(2, ["49152+1"], *self.command, "-p", "x", "--logit-bias", "49152+1")
        self.refused(2, ["'5'"], *self.command, "-p", "x", "--logit-bias", "5")
        self.refused(2, ["chatml", "morse"], *self.command, "-p", "x", "--chat-template", "morse")

    def test_context_beyond_all_memory(self):
        self.refused(2, ["n_ctx", "2147483647"], *self.command, "-p", "x", "-c", "2147483647")


class Memory(Case):
    """Where memory is short the message says how much was asked for and two ways out."""

    def short(self, n_bytes, words, *arguments):
        self.refused(1, words, "run", self.need(SMOLLM2), "-p", "x", "-q", *arguments, memory=n_bytes)

    def test_weights(self):
        self.short(160 << 20, ["out of memory: ", "bytes asked for", "smaller type", "free memory"])

    def test_cache(self):
        self.short(900 << 20, ["out of memory: ", "bytes asked for", "smaller context", "q8_0"], "-c", "100000", "-ctk",
                   "f32", "-ctv", "f32")


class Perplexity(Case):
    def setUp(self):
        super().setUp()
        self.command = ["perplexity", self.need(SMOLLM2), "--ctx", "128", "--chunks", "2", "-f", self.need(EMMA)]

    def test_figures_and_progress(self):
        result = self.ok(*self.command)
        self.assertRegex(result.stdout.decode(), r"^perplexity \d+\.\d{4} \+- \d+\.\d{4}\npredictions 126 in 2 windows of 128\ncache 23040 bytes per token, 0 centred pairs\n$")
        self.assertRegex(result.stderr.decode(), r"(?m)^chunk 2 of 2: perplexity")

    def test_comparison(self):
        base = self.folder / "base"
        self.ok(*self.command, "-q", "--save-logits", base)
        compare = ["perplexity", SMOLLM2, "-q", "-f", EMMA, "--kl-divergence", base]
        same = self.ok(*compare).stdout.decode()
        self.assertIn("top-1 agreement 100.000 %", same)
        self.assertLess(float(re.search(r"mean KL divergence (\S+)", same)[1]), 1e-7)
        other = self.ok(*compare, "--act", "f32", "-ctk", "f32", "-ctv", "f32").stdout.decode()
        kl = float(re.search(r"mean KL divergence (\S+)", other)[1])
        self.assertGreater(kl, 1e-7)
        self.assertLess(kl, 0.05)
        self.assertRegex(other, r"(?m)^perplexity ratio [01]\.\d+ \+- 0\.\d+\nmean .*\nmaximum KL divergence \S+$")
        self.assertEqual(self.names(), ["base"])

    def test_wrong_bases(self):
        base = self.folder / "base"
        self.ok(*self.command, "-q", "--save-logits", base)
        content = base.read_bytes()
        other = self.file("other", "It is a truth universally acknowledged. " * 100)
        self.refused(2, ["another text"], "perplexity", SMOLLM2, "-f", other, "--kl-divergence", base)
        self.refused(2, ["--bos"], "perplexity", SMOLLM2, "-f", EMMA, "--bos", "--kl-divergence", base)
        self.refused(2, ["windows of 128"], "perplexity", SMOLLM2, "-f", self.file("short", "A word."), "--kl-divergence", base)
        for wrong in [b"", content[:10], content[:-1], content + b"\0", b"X" + content[1:], content[:8] + b"\xff" * 24 + content[32:]]:
            self.refused(2, ["wrong"], "perplexity", SMOLLM2, "-f", EMMA, "--kl-divergence", self.file("wrong", wrong))

    def test_short_text(self):
        self.refused(2, ["0 windows of 512"], "perplexity", SMOLLM2, "-f", self.file("text", "A word."))
        self.refused(2, ["windows of 128, not 99"], *self.command, "--chunks", "99")

    def test_full_disk(self):
        self.refused(1, ["base"], *self.command, "-q", "--save-logits", self.folder / "base", full_after=1 << 20)
        self.assertEqual(self.names(), [])


class Bench(Case):
    KEYS = ["engine", "test", "depth", "type_k", "type_v", "threads", "n", "median_s", "min_s", "tok_s", "rss_mib", "gb_s",
            "bw_share"]

    def test_json(self):
        text = self.ok("bench", self.need(SMOLLM2), "-p", "16", "-n", "3", "-d", "32,0", "-ctk", "f16,q8_0", "-r", "2", "-t",
                       "1", "-o", "json").stdout
        figures = rows(text)
        self.assertEqual([list(row) for row in figures], [self.KEYS] * 8)
        self.assertEqual([(row["type_k"], row["depth"], row["test"], row["n"]) for row in figures],
                         [(k, d, test, n) for k in ["f16", "q8_0"] for d in [0, 32] for test, n in [("prefill", 16), ("decode", 3)]])
        for row in figures:
            self.assertEqual((row["engine"], row["type_v"], row["threads"]), ("kvant", "f16", 1))
            self.assertAlmostEqual(row["tok_s"] * row["median_s"] / row["n"], 1, places=2)
            self.assertTrue(0 < row["min_s"] <= row["median_s"])
            self.assertGreater(row["gb_s"] * row["bw_share"] * row["rss_mib"], 0)

    def test_text(self):
        lines = self.ok("bench", self.need(SMOLLM2), "-p", "0", "-n", "2", "-d", "0", "-r", "1").stdout.decode().splitlines()
        self.assertEqual(lines[0].split(), self.KEYS[1:])
        self.assertEqual(len(lines), 2)

    def test_refused(self):
        result = run("bench", self.need(SMOLLM2), "-ctk", "f16,q9_9", "-d", "0", "-p", "4", "-n", "1", "-r", "1")
        self.assertEqual(result.returncode, 2)
        self.assertIn(b"q9_9", result.stderr)


class CheckKernels(Case):
    def test_some(self):
        lines = self.ok("check-kernels", "norm", "--bench").stdout.decode().splitlines()
        self.assertRegex(lines[-1], r"^[1-9]\d* kernels ok, 0 failed, \d+ skipped$")
        self.assertTrue(any("GB/s" in line for line in lines))

    def test_mask(self):
        text = self.ok("check-kernels", "norm", "--cpu-mask", "scalar").stdout.decode()
        self.assertRegex(text, r"1 kernels ok, 0 failed, \d+ skipped")

    def test_unknown(self):
        result = run("check-kernels", "warp_drive")
        self.assertEqual(result.returncode, 2)
        self.assertIn(b"warp_drive", result.stderr)


if __name__ == "__main__":
    main()
