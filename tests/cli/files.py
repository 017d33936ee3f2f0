"""files.py: model files that are good, bad or missing, and writing where it cannot be done: inspect, tokenize,
quantize."""

import os
import pathlib
import random
import stat
import struct

from program import Case, EMMA, SMOLLM2, SOURCE, main, run

TINY = str(SOURCE / "tests" / "data" / "tiny4.gguf")


def string(text):
    return struct.pack("<Q", len(text)) + text.encode()


def head(values, n_tensors=0, version=3):
    return b"GGUF" + struct.pack("<IQQ", version, n_tensors, len(values)) + b"".join(
        string(key) + struct.pack("<I", 8) + string(value) for key, value in values.items())


class Bad(Case):
    def refused_everywhere(self, words, path):
        for command in [["run", path, "-p", "x"], ["chat", path], ["inspect", path], ["tokenize", path, "-p", "x"],
                        ["perplexity", path, "-f", EMMA], ["quantize", path, self.folder / "out.gguf", "q8_0"]]:
            self.refused(2, words, *command)
        self.assertNotIn("out.gguf", self.names())

    def test_missing(self):
        self.refused_everywhere(["nowhere.gguf", "No such file"], self.folder / "nowhere.gguf")

    def test_folder(self):
        self.refused_everywhere([str(self.folder)], self.folder)

    def test_empty(self):
        self.refused_everywhere(["empty.gguf"], self.file("empty.gguf", b""))

    def test_foreign(self):
        self.refused_everywhere(["foreign.gguf"], self.file("foreign.gguf", b"\x7fELF" + bytes(range(256)) * 8))

    def test_hostile(self):
        huge = b"GGUF" + struct.pack("<IQQ", 3, 2**63, 2**63)
        self.refused_everywhere(["hostile.gguf"], self.file("hostile.gguf", huge))

    def test_old_version(self):
        self.refused_everywhere(["old.gguf", "version"], self.file("old.gguf", head({}, version=1)))

    def test_truncated(self):
        with open(self.need(SMOLLM2), "rb") as file:
            whole = file.read(3 << 20)
        for n in [5, 20, 1000, 1 << 20, 3 << 20]:
            self.refused_everywhere(["cut.gguf"], self.file("cut.gguf", whole[:n]))

    def test_unknown_architecture(self):
        path = self.file("odd.gguf", head({"general.architecture": "perceptron", "tokenizer.ggml.model": "none"}))
        self.refused(2, ["odd.gguf"], "run", path, "-p", "x")


class Inspect(Case):
    def test_smollm2(self):
        text = self.ok("inspect", self.need(SMOLLM2), "-c", "1024", "-ctk", "q8_0").stdout.decode()
        for words in ["GGUF version 3", "general.architecture", "= llama", "string[49152] = \"<|endoftext|>\"",
                      "token_embd.weight", "q8_0", "576 x 49152", "30081024 bytes", "tensors: 272",
                      "tokenizer: 49152 tokens", "messages: chatml", "<|im_end|>", "KV cache: 1024 tokens, 17.2 KiB per token",
                      "K q8_0 ", "V f16 rows", "q4_1      210 tensors"]:
            self.assertIn(words, text)
        self.assertLess(max(map(len, text.splitlines())), 240)

    def test_kv_alone(self):
        text = self.ok("inspect", self.need(SMOLLM2), "--kv", "-c", "2048").stdout.decode()
        self.assertIn("22.5 KiB per token", text)
        self.assertNotIn("tokenizer", text)

    def test_kernels_follow_the_mask(self):
        text = self.ok("inspect", self.need(SMOLLM2), "--cpu-mask", "scalar").stdout.decode()
        self.assertIn("scalar", text)
        self.assertNotIn("avx", text)


class Tokenize(Case):
    def test_forms(self):
        model = self.need(SMOLLM2)
        ids = self.ok("tokenize", model, "-p", "Hello world", "--ids").stdout.decode()
        self.assertRegex(ids, r"^\d+( \d+)*\n$")
        self.assertEqual(self.ok("tokenize", model, "-p", "Hello world", "--count").stdout.decode().strip(),
                         str(len(ids.split())))
        self.assertEqual(self.ok("tokenize", model, "-p", "Hello world", "--pieces").stdout.decode(), "Hello\n world\n")
        table = self.ok("tokenize", model, "-p", "a\nb").stdout.decode()
        self.assertIn("\\n", table)

    def test_sources(self):
        model, words = self.need(SMOLLM2), "one two three"
        by_flag = self.ok("tokenize", model, "-p", words, "--ids").stdout
        self.assertEqual(self.ok("tokenize", model, "-f", self.file("text", words), "--ids").stdout, by_flag)
        self.assertEqual(self.ok("tokenize", model, "--ids", stdin=words.encode()).stdout, by_flag)
        self.assertEqual(self.ok("tokenize", model, "-f", "-", "--ids", stdin=words.encode()).stdout, by_flag)

    def test_special(self):
        model = self.need(SMOLLM2)
        self.assertEqual(self.ok("tokenize", model, "-p", "<|im_end|>", "--special", "--ids").stdout, b"2\n")
        self.assertNotEqual(self.ok("tokenize", model, "-p", "<|im_end|>", "--ids").stdout, b"2\n")

    def test_any_bytes(self):
        noise = random.Random(1).randbytes(5000)
        count = self.ok("tokenize", self.need(SMOLLM2), "--count", stdin=noise).stdout
        self.assertGreater(int(count), 100)

    def test_empty_and_missing_text(self):
        model = self.need(SMOLLM2)
        self.refused(2, ["empty"], "tokenize", model)
        self.refused(2, ["empty"], "tokenize", model, "-p", "")
        self.refused(2, ["none.txt", "No such file"], "tokenize", model, "-f", self.folder / "none.txt")
        self.refused(2, [str(self.folder)], "tokenize", model, "-f", self.folder)


class Quantize(Case):
    def test_round_trip(self):
        small, big, again = (self.folder / name for name in ["q8_0.gguf", "f32.gguf", "again.gguf"])
        message = self.ok("quantize", self.need(SMOLLM2), small, "q8_0").stderr.decode()
        self.assertIn("210 tensors were quantized before", message)
        self.ok("quantize", small, big, "f32")
        self.ok("quantize", big, again, "q8_0", "-t", "1")
        self.assertTrue(small.read_bytes() == again.read_bytes(), "q8_0 of its own decoded numbers is the same file")
        text = self.ok("inspect", again).stdout.decode()
        self.assertIn("q8_0      211 tensors", text)
        self.assertNotIn("general.file_type", text)
        self.assertEqual(self.names(), ["again.gguf", "f32.gguf", "q8_0.gguf"])

    def test_policy_of_the_output(self):
        model, out = self.need(SMOLLM2), self.folder / "out.gguf"
        for flags, kept in [([], "q8_0"), (["--output-type", "q4_0"], "q4_0"), (["--keep-output"], "q8_0")]:
            self.ok("quantize", model, out, "q4_0", *flags)
            line = next(line for line in self.ok("inspect", out).stdout.decode().splitlines() if "token_embd" in line)
            self.assertIn(kept, line.split())

    def test_rows_that_do_not_fit(self):
        message = self.ok("quantize", self.need(SMOLLM2), self.folder / "out.gguf", "q6_k", "--keep-output").stderr
        self.assertIn(b"180 tensors stay as they are", message)
        self.assertIn(b"30 tensors converted", message)

    def test_in_place(self):
        path = self.file("model.gguf", pathlib.Path(TINY).read_bytes())
        self.ok("quantize", path, path, "f16")
        self.ok("inspect", path)
        self.assertEqual(self.names(), ["model.gguf"])

    def test_wrong_types(self):
        out = self.folder / "out.gguf"
        self.refused(2, ["'q9_9'", "q8_0", "f16"], "quantize", self.need(TINY), out, "q9_9")
        self.refused(2, ["'a8'"], "quantize", TINY, out, "a8")
        self.refused(2, ["'x'"], "quantize", TINY, out, "q8_0", "--output-type", "x")
        self.assertEqual(self.names(), [])

    def test_full_disk(self):
        self.refused(1, ["out.gguf"], "quantize", self.need(SMOLLM2), self.folder / "out.gguf", "q8_0", "-q",
                     full_after=10 << 20)
        self.assertEqual(self.names(), [])

    def test_unwritable_place(self):
        self.refused(2, ["No such file"], "quantize", self.need(TINY), "/no/such/folder/out.gguf", "q8_0")


class FullOutput(Case):
    """Text that stdout does not take is a failure, whatever the command."""

    def test_commands(self):
        model = self.need(SMOLLM2)
        if not os.path.exists("/dev/full") or not stat.S_ISCHR(os.stat("/dev/full").st_mode):
            self.skipTest("no /dev/full")
        for command in [["--help"], ["inspect", model], ["tokenize", model, "-p", "hello"], ["completion", "bash"],
                        ["run", model, "-p", "hello", "-n", "3", "-q"]]:
            with open("/dev/full", "wb") as full:
                result = run(*command, stdout=full)
            self.assertEqual(result.returncode, 1, command)
            self.assertIn(b"standard output: No space left on device", result.stderr)


if __name__ == "__main__":
    main()
