"""tiny.py: every command on a model of four small layers with random weights: nothing it says makes sense, but all paths
are walked in a second, under sanitizers too."""

import json
import re

from program import Case, SOURCE, main, rows

TINY = str(SOURCE / "tests" / "data" / "tiny4.gguf")
SWA = str(SOURCE / "tests" / "data" / "tiny-swa.gguf")
PLAIN = ["--chat-template", "plain"]


class Tiny(Case):
    def test_run(self):
        for flags in [[], ["--temp", "0"], ["--act", "f32", "-ctk", "f32", "-ctv", "q8_0"], ["-t", "1", "-b", "1"],
                      ["-c", "32", "--context", "shift", "--keep", "2", "-n", "80", "--ignore-eos"],
                      ["-c", "96", "--context", "window", "-n", "300", "--ignore-eos"],
                      ["--repeat-penalty", "1.3", "--presence-penalty", "0.5", "--frequency-penalty", "0.5", "--top-k", "5"],
                      ["--min-p", "0.2", "--top-p", "0.5", "-s", "3", "--logit-bias", "300+2", "--stop", "zz"]]:
            result = self.ok("run", TINY, "-p", "hello there", "-n", "12", *flags)
            result.stdout.decode()
            self.assertRegex(result.stderr.decode(), r"(?m)^finish ")
        self.ok("run", TINY, "-p", "hello", "-n", "4", "-sys", "be kind", *PLAIN)

    def test_devices(self):
        """Other devices, the same text; what goes where is said, and names that do not exist are refused."""
        command = ["run", TINY, "-p", "hello there", "-n", "8", "--temp", "0", "-t", "3"]
        text = self.ok(*command, "-q").stdout
        for flags in [["--devices", "cpu:0,cpu:1"], ["--devices", "cpu:1,cpu:0", "--split", "1,3"],
                      ["--devices", "cpu:0,cpu:1", "--split", "1,0", "--kv-device", "cpu:1"],
                      ["--devices", "cpu:0,cpu:1", "--kv-device", "0-1=cpu:1;-1=cpu:0"]]:
            result = self.ok(*command, *flags)
            self.assertEqual(result.stdout, text, flags)
            self.assertRegex(result.stderr.decode(), r"(?m)^device   cpu:1, [12] threads, .* \d layers?, weights .*, kv ")
            self.assertRegex(result.stderr.decode(), r"(?m)^copied   .* between devices")
        plan = self.ok("inspect", TINY, "--kv", "--devices", "cpu:0,cpu:1", "--dump-plan").stdout.decode()
        self.assertRegex(plan, r"(?m) copy +cpu:1 .* from cpu:0$")
        self.refused(2, ["gpu:0", "cpu:0 to cpu:7"], *command, "--devices", "cpu:0,gpu:0")
        self.refused(2, ["split", "more shares"], *command, "--devices", "cpu:0,cpu:1", "--split", "1,2,3")
        self.refused(2, ["kv_device", "cpu:0, cpu:1"], *command, "--devices", "cpu:0,cpu:1", "--kv-device", "cpu:4")

    def test_without_a_template(self):
        """A base model gets the prompt as it is; a chat has to be told how."""
        command = ["run", TINY, "-p", "hello", "-n", "6", "--temp", "0", "-q"]
        self.assertEqual(self.ok(*command).stdout, self.ok(*command, "--raw").stdout)
        self.refused(2, ["--system"], *command, "--system", "be kind")
        self.refused(2, ["template"], "chat", TINY, "-q")

    def test_chat(self):
        saved = self.folder / "chat.json"
        lines = ["hello", "/regen", "/system be kind", "who?", f"/save {saved}", "/clear", f"/load {saved}", "/stats"] + ["and?"] * 12
        result = self.ok("chat", TINY, "-c", "96", "-n", "12", *PLAIN, stdin="\n".join(lines).encode())
        self.assertIn(b"no longer seen", result.stderr)
        roles = [m["role"] for m in json.loads(saved.read_text())["messages"]]
        self.assertEqual(roles, ["system", "user", "assistant", "user", "assistant"])

    def session(self, *arguments):
        """Runs with a session file; the text, and what was said about the session."""
        result = self.ok("run", TINY, "--session", self.folder / "s", "--temp", "0", *arguments)
        return result.stdout, re.search(r"session  (\d+) of (\d+) tokens .*; (\d+) saved", result.stderr.decode()).groups()

    def test_session_of_a_raw_prompt(self):
        straight = self.ok("run", TINY, "-p", "hello there", "-n", "12", "--temp", "0", "-q").stdout
        text, (cached, prompt, saved) = self.session("-p", "hello there", "-n", "12")
        self.assertEqual((text, cached), (straight, "0"))
        self.assertEqual(int(saved), int(prompt) + 11)
        again, (cached, prompt, _) = self.session("-p", "hello there", "-n", "12")
        self.assertEqual(again, text)
        self.assertEqual(int(cached), int(prompt) - 1)
        longer, (cached, _, _) = self.session("-p", "hello there, you", "-n", "3", "-ctk", "q8_0", "-ctv", "q4_0")
        self.assertGreater(int(cached), 1)
        other, (cached, _, _) = self.session("-p", "what?", "-n", "3")
        self.assertLessEqual(int(cached), 2, "the start token and a space at most")
        self.assertEqual(self.names(), ["s"])

    def test_session_of_a_conversation(self):
        first, _ = self.session("-p", "hello", "-n", "6", *PLAIN)
        second, (cached, prompt, _) = self.session("-p", "and?", "-n", "6", *PLAIN)
        self.assertGreater(int(cached), int(prompt) // 2)
        chat = self.ok("chat", TINY, "-n", "6", "--temp", "0", "-q", *PLAIN, stdin=b"hello\nand?\n")
        self.assertEqual(chat.stdout, first + b"\n" + second + b"\n")
        text = self.ok("inspect", self.folder / "s").stdout.decode()
        for words in ["saved sequence, version 1", "llama, 4 layers", "a conversation", "layers 0-3", "K f16"]:
            self.assertIn(words, text)

    def test_session_refused(self):
        """What cannot be loaded is left alone."""
        path = self.folder / "s"
        self.session("-p", "hello there", "-n", "6")
        good = path.read_bytes()
        command = ["run", TINY, "--session", path, "-p", "hello there", "-n", "6", "-q"]
        self.refused(2, ["no conversation"], *command, *PLAIN)
        self.refused(2, ["another model"], "run", SWA, *command[2:])
        self.refused(2, ["too small", "room for 4 of 4"], *command, "-c", "4")
        for wrong in [good[:-1], good[:100], b"", b"hello", good[:200] + b"\xff" + good[201:]]:
            path.write_bytes(wrong)
            self.refused(2, [path], *command)
            self.assertEqual(path.read_bytes(), wrong)
            self.assertEqual(self.names(), ["s"])

    def test_saved_conversations(self):
        saved = self.folder / "chat.json"
        self.ok("chat", TINY, "-n", "6", "--temp", "0", *PLAIN, stdin=f"hello\n/save {saved}\n".encode())
        self.assertEqual(self.names(), ["chat.json", "chat.json.kv"])
        load = f"/load {saved}\nand?\n".encode()
        command = ["chat", TINY, "-n", "6", "--temp", "0", *PLAIN]
        whole = self.ok(*command, stdin=b"hello\nand?\n").stdout.splitlines()[-1]

        def loaded(words):
            result = self.ok(*command, stdin=load)
            self.assertIn(words, result.stderr.decode())
            return result.stdout.splitlines()[-1]

        self.assertEqual(loaded("tokens of them need not be read again"), whole)
        kept = (self.folder / "chat.json.kv").read_bytes()
        (self.folder / "chat.json.kv").write_bytes(kept[:-9])
        loaded("truncated")
        saved.write_text(saved.read_text().replace("hello", "goodbye"))
        (self.folder / "chat.json.kv").write_bytes(kept)
        loaded("of another conversation")
        (self.folder / "chat.json.kv").unlink()
        loaded("0 tokens of them need not be read again")

    def test_perplexity(self):
        text = self.file("text", "the quick brown fox jumps over the lazy dog. " * 20)
        base = self.folder / "base"
        command = ["perplexity", TINY, "-f", text, "-q"]
        self.ok(*command, "--ctx", "64", "--chunks", "2", "--save-logits", base)
        text = self.ok(*command, "--kl-divergence", base).stdout.decode()
        self.assertIn("top-1 agreement 100.000 %", text)
        self.assertLess(abs(float(re.search(r"mean KL divergence (\S+)", text)[1])), 1e-6)
        self.ok(*command, "--ctx", "64", "--bos")

    def test_bench(self):
        figures = rows(self.ok("bench", TINY, "-p", "16", "-n", "4", "-d", "0,40", "-r", "2", "-t", "1,2", "-o", "json").stdout)
        self.assertEqual([row["threads"] for row in figures], [1] * 4 + [2] * 4)

    def test_stream(self):
        text = self.file("text", "the quick brown fox jumps over the lazy dog. " * 20)
        command = ["perplexity", TINY, "-f", text, "--ctx", "64", "--stretch", "100", "-q"]
        for policy in ["shift", "window"]:
            figures = rows(self.ok(*command, "--context", policy, "-o", "json").stdout)
            self.assertEqual([row["first"] for row in figures], [100 * i for i in range(len(figures))])
            self.assertEqual([row["n"] for row in figures[:-1]], [100] * (len(figures) - 1))
            self.assertTrue(all(row["policy"] == policy and row["perplexity"] > 1 for row in figures))
            self.assertEqual(len(self.ok(*command, "--context", policy).stdout.splitlines()), len(figures) + 1)
        self.refused(2, ["--context", "--save-logits"], *command, "--context", "shift", "--save-logits", self.folder / "x")

    def test_shifts(self):
        command = ["bench", TINY, "--shift", "-d", "600", "-ctk", "f32,q4_0", "-ctv", "f32", "--act", "f32"]
        figures = rows(self.ok(*command, "-o", "json").stdout)
        self.assertEqual([(row["type_k"], row["mode"], row["shifts"]) for row in figures],
                         [(k, mode, n) for k in ["f32", "q4_0"] for mode in ["lazy", "eager", "reread"] for n in [1, 10, 100]])
        self.assertEqual(len(self.ok(*command).stdout.splitlines()), len(figures) + 1)
        for row in figures:
            if row["mode"] == "lazy":
                self.assertEqual((row["allocs"], row["extra_kib"] < 64), (0, True))
            same = (row["type_k"], row["mode"]) in [("f32", "lazy"), ("f32", "eager")]
            self.assertEqual(row["kl_replay"] < 1e-6, same, row)
        self.refused(2, ["100", "512"], "bench", TINY, "--shift", "-d", "100", "-q")

    def test_plan(self):
        for command in [["inspect", TINY, "--kv"], ["bench", TINY, "-p", "4", "-n", "1", "-d", "0", "-r", "1"]]:
            result = self.ok(*command, "--dump-plan")
            text = (result.stdout + result.stderr).decode()
            self.assertRegex(text, r"(?m)^ +\d+ +blk\.3 +attend +cpu:0 +f16/f16 +\S+ +\d+ +kv_\S+")
            self.assertEqual(text.count("attend"), 8)
            self.assertNotIn("reference", text)

    def test_prompt_that_does_not_fit(self):
        prompt = "the quick brown fox jumps over the lazy dog. " * 20
        command = ["run", TINY, "-p", prompt, "-c", "64", "-n", "5", "--ignore-eos"]
        self.refused(2, ["room for 64 of 64"], *command, "-q")
        result = self.ok(*command, "--trim")
        self.assertRegex(result.stderr.decode(), r"(?m)^trimmed  \d+ of \d+ tokens of the prompt left out, from token 4 on")
        self.refused(2, ["room for 64"], *command, *PLAIN, "-q")
        self.assertIn(b"trimmed ", self.ok(*command, *PLAIN, "--trim").stderr)

    def test_quantize_and_inspect(self):
        out = self.folder / "out.gguf"
        for name in ["f32", "f16", "bf16", "q4_0", "q4_1", "q5_0", "q5_1", "q8_0", "iq4_nl"]:
            self.ok("quantize", TINY, out, name)
            self.assertIn(f"  {name}", self.ok("inspect", out).stdout.decode())
            self.ok("run", out, "-p", "hello", "-n", "3", "-q")
        for name in ["n3", "n4", "n6"]:  # types for caches
            self.refused(2, [f"'{name}'", "not a type of GGUF files"], "quantize", TINY, out, name)
            self.ok("run", TINY, "-p", "hello", "-n", "3", "-q", "-ctk", name, "-ctv", name)
        self.assertIn("K q8_0", self.ok("inspect", TINY, "--kv", "-ctk", "q8_0").stdout.decode())

    def test_tokenize(self):
        self.assertEqual(self.ok("tokenize", TINY, "-p", "hello", "--bos", "--ids").stdout.split()[0], b"1")


if __name__ == "__main__":
    main()
