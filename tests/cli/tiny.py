"""tiny.py: every command on a model of four small layers with random weights: nothing it says makes sense, but all paths
are walked in a second, under sanitizers too."""

import json
import re

from program import Case, SOURCE, main, rows

TINY = str(SOURCE / "tests" / "data" / "tiny4.gguf")
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
        self.assertIn("K q8_0", self.ok("inspect", TINY, "--kv", "-ctk", "q8_0").stdout.decode())

    def test_tokenize(self):
        self.assertEqual(self.ok("tokenize", TINY, "-p", "hello", "--bos", "--ids").stdout.split()[0], b"1")


if __name__ == "__main__":
    main()
