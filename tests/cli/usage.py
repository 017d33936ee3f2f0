"""usage.py: help, completion, flags, values, environment: everything before a model is opened."""

import subprocess

from program import Case, SMOLLM2, environment, main, run

COMMANDS = ["run", "chat", "tokenize", "perplexity", "bench", "inspect", "quantize", "check-kernels", "check-layout", "completion", "help"]


class Help(Case):
    def test_usage_names_every_command(self):
        text = self.ok("--help").stdout.decode()
        for command in COMMANDS:
            self.assertIn(f"  {command} ", text)
        self.assertEqual(text, self.ok("help").stdout.decode())

    def test_every_command_has_help(self):
        for command in COMMANDS:
            text = self.ok(command, "--help").stdout.decode()
            self.assertTrue(text.startswith(f"kvant {command}: "), text)
            self.assertIn("usage: kvant " + command, text)
            self.assertEqual(text, self.ok("help", command).stdout.decode())
            self.assertEqual(text, self.ok(command, "-h").stdout.decode())

    def test_help_shows_flag_default_range_and_environment(self):
        text = self.ok("run", "--help").stdout.decode()
        for words in ["-c, --ctx-size N", "$KVANT_CTX_SIZE", "-ctk, --cache-type-k TYPE", "[f16]", "(stop|shift|window) [stop]",
                      "--temp X", "[0.8]"]:
            self.assertIn(words, text)
        self.assertIn("(stop|shift|window) [shift]", self.ok("chat", "--help").stdout.decode())

    def test_version(self):
        self.assertRegex(self.ok("--version").stdout.decode(), r"^kvant \d+\.\d+\.\d+\n$")

    def test_no_command(self):
        self.refused(2, ["no command"])
        self.refused(2, ["no command", "'sing'"], "sing")
        self.refused(2, ["no command", "'sing'"], "help", "sing")


class Completion(Case):
    def complete(self, *words):
        script = self.ok("completion", "bash").stdout.decode()
        ask = f"""{script}
COMP_WORDS=({' '.join(f"'{word}'" for word in words)}); COMP_CWORD={len(words) - 1}
_kvant; printf '%s\\n' "${{COMPREPLY[@]}}" """
        done = subprocess.run(["bash", "-c", ask], capture_output=True, env=environment(), cwd=self.folder, check=True)
        return done.stdout.decode().split()

    def test_commands(self):
        self.assertEqual(self.complete("kvant", "per"), ["perplexity"])
        self.assertTrue(set(COMMANDS) <= set(self.complete("kvant", "")))

    def test_flags_of_the_command(self):
        self.assertEqual(self.complete("kvant", "run", "--top"), ["--top-k", "--top-p"])
        self.assertEqual(self.complete("kvant", "bench", "--top"), [])
        self.assertIn("-ctk", self.complete("kvant", "bench", "-ct"))

    def test_choices_and_files(self):
        self.assertEqual(self.complete("kvant", "run", "--context", "s"), ["stop", "shift"])
        self.file("model.gguf", "")
        self.assertEqual(self.complete("kvant", "run", "mod"), ["model.gguf"])

    def test_old_spelling(self):
        self.assertEqual(self.ok("--completion-bash").stdout, self.ok("completion", "bash").stdout)
        self.refused(2, ["fish"], "completion", "fish")


class Flags(Case):
    """`none.gguf` is never opened: what is wrong with the flags is found first."""

    def test_values(self):
        for flag, value, words in [
                ("--ctx-size", "-1", ["--ctx-size", "'-1'", "0 to 2147483647"]),
                ("-c", "2147483648", ["--ctx-size", "'2147483648'", "0 to 2147483647"]),
                ("-c", "99999999999999999999", ["--ctx-size", "0 to 2147483647"]),
                ("-c", "many", ["--ctx-size", "'many'", "whole number"]),
                ("-c", "4k", ["'4k'", "whole number"]),
                ("-c", "", ["''", "whole number"]),
                ("-n", "-1", ["--predict", "0 to 2147483647"]),
                ("-t", "1025", ["--threads", "0 to 1024"]),
                ("-b", "-5", ["--batch-size"]),
                ("--temp", "hot", ["--temp", "'hot'", "not a number"]),
                ("--temp", "nan", ["--temp", "not a number"]),
                ("--temp", "-0.1", ["--temp", "0 to 100"]),
                ("--top-p", "1.5", ["--top-p", "0 to 1"]),
                ("--repeat-penalty", "0", ["--repeat-penalty", "0.01 to 100"]),
                ("--keep", "-2", ["--keep", "-1 to 2147483647"]),
                ("--context", "grow", ["--context", "'grow'", "stop|shift"]),
                ("--cpu-mask", "mmx", ["--cpu-mask", "scalar|avx2"]),
                ("--act", "int8", ["--act", "fast|f32"]),
                ("--raw=perhaps", None, ["--raw", "'perhaps'"]),
                ("-s", "1.5", ["--seed", "whole number"])]:
            arguments = [flag] if value is None else [flag, value]
            self.refused(2, ["kvant run: "] + words, "run", "none.gguf", "-p", "x", *arguments)

    def test_lists(self):
        for value in ["0,x", "0,,1", ",", "", "1,-1", ",".join(["1"] * 33)]:
            self.refused(2, ["kvant bench: --n-depth"], "bench", "none.gguf", "-d", value)

    def test_unknown_and_incomplete(self):
        self.refused(2, ["unknown flag --bogus", "kvant run --help"], "run", "none.gguf", "--bogus")
        self.refused(2, ["unknown flag -z"], "run", "none.gguf", "-z")
        self.refused(2, ["--temp needs a value"], "run", "none.gguf", "--temp")
        self.refused(2, ["-c needs a value"], "run", "none.gguf", "-c")
        self.refused(2, ["unknown flag"], "inspect", "none.gguf", "--temp", "1")
        self.refused(2, ["takes no value"], "run", "--help=1")

    def test_arguments(self):
        self.refused(2, ["no model given", "usage: kvant run MODEL"], "run")
        self.refused(2, ["unexpected argument more"], "run", "none.gguf", "more")
        self.refused(2, ["unexpected argument other"], "run", "-m", "none.gguf", "other")
        self.refused(2, ["too few", "IN OUT TYPE"], "quantize", "none.gguf", "out.gguf")
        self.refused(2, ["unexpected argument four"], "quantize", "one", "two", "q8_0", "four")

    def test_contradictions(self):
        self.need(SMOLLM2)
        self.refused(2, ["both --prompt and --file"], "run", SMOLLM2, "-p", "x", "-f", "y")
        self.refused(2, ["--ids, --pieces"], "tokenize", SMOLLM2, "-p", "x", "--ids", "--count")
        self.refused(2, ["--system"], "run", SMOLLM2, "-p", "x", "--raw", "--system", "be kind")
        self.refused(2, ["--special"], "run", SMOLLM2, "-p", "x", "--special")
        self.refused(2, ["--file"], "perplexity", SMOLLM2)

    def test_model_by_flag_or_argument(self):
        for arguments in [["-m", "none.gguf"], ["none.gguf"], ["--model=none.gguf"], ["--", "none.gguf"]]:
            self.refused(2, ["none.gguf: ", "No such file"], "run", "-p", "x", *arguments)

    def test_log_file_that_cannot_be(self):
        self.refused(2, ["--log-file", "/no/such/folder/log"], "inspect", "none.gguf", "--log-file", "/no/such/folder/log")


class Environment(Case):
    def test_every_flag_has_a_variable(self):
        for name, value, words in [("CTX_SIZE", "-1", ["'-1'", "0 to"]), ("TEMP", "hot", ["'hot'"]),
                                   ("CONTEXT", "grow", ["stop|shift"]), ("RAW", "perhaps", ["'perhaps'"]),
                                   ("CACHE_TYPE_K_", "q4", ["No such file"])]:
            words = [f"KVANT_{name}"] * (name != "CACHE_TYPE_K_") + words
            self.refused(2, words, "run", "none.gguf", "-p", "x", env={f"KVANT_{name}": value})

    def test_model_from_the_environment(self):
        self.refused(2, ["none.gguf"], "run", "-p", "x", env={"KVANT_MODEL": "none.gguf"})
        self.refused(2, ["other.gguf"], "run", "other.gguf", "-p", "x", env={"KVANT_MODEL": "none.gguf"})

    def test_command_line_wins(self):
        text = self.file("text", "one two three")
        count = ["tokenize", self.need(SMOLLM2), "--count"]
        one = self.ok(*count, "-p", "hello").stdout
        three = self.ok(*count, "-f", text).stdout
        self.assertNotEqual(one, three)
        self.assertEqual(self.ok(*count, "-f", text, env={"KVANT_PROMPT": "hello"}).stdout, three)
        self.assertEqual(self.ok(*count, "-p", "hello", env={"KVANT_FILE": text}).stdout, one)
        self.assertEqual(self.ok(*count[:2], "-p", "hello", env={"KVANT_COUNT": "yes"}).stdout, one)
        plain = self.ok(*count[:2], "-p", "hello").stdout
        self.assertEqual(self.ok(*count[:2], "-p", "hello", "--count=off", env={"KVANT_COUNT": "1"}).stdout, plain)

    def test_empty_is_unset(self):
        self.refused(2, ["none.gguf: "], "run", "none.gguf", "-p", "x", env={"KVANT_CTX_SIZE": ""})


if __name__ == "__main__":
    main()
