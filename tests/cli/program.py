"""program.py: what the tests of the command line share: running the program, the models, skipping in a way that ctest
and ./dev see. Only the standard library of Python is used."""

import json
import os
import pathlib
import resource
import signal
import subprocess
import sys
import tempfile
import unittest

SOURCE = pathlib.Path(os.environ["KVANT_SOURCE_DIR"])
PROGRAM = os.environ["KVANT_PROGRAM"]
MODELS = SOURCE / ".cache" / "models"
SMOLLM2 = str(MODELS / "smollm2-135m-q4_1.gguf")
QWEN = str(MODELS / "qwen2.5-coder-0.5b-instruct-q4_k_m.gguf")
GEMMA = str(MODELS / "gemma3-270m-q4_k_m.gguf")
EMMA = str(SOURCE / "tests" / "data" / "emma-12k.txt")
SECONDS = 300


def environment(extra=None):
    """Nothing of the caller's KVANT_* reaches the program, nor the caller's calibrations."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("KVANT_")}
    return env | {"LC_ALL": "C.UTF-8", "XDG_CACHE_HOME": "/nonexistent"} | (extra or {})


def limit_files(n_bytes):
    """A disk that is full after n_bytes: writes fail with an error, as on a real one."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (n_bytes, n_bytes))


def limit_memory(n_bytes):
    resource.setrlimit(resource.RLIMIT_AS, (n_bytes, n_bytes))


def run(*arguments, stdin=b"", env=None, stdout=subprocess.PIPE, full_after=None, memory=None):
    """Runs the program to its end; .stdout and .stderr are bytes. `full_after` and `memory`: bytes it may have."""
    def limit():
        if full_after is not None:
            limit_files(full_after)
        if memory is not None:
            limit_memory(memory)
    return subprocess.run([PROGRAM, *map(str, arguments)], input=stdin, stdout=stdout, stderr=subprocess.PIPE,
                          env=environment(env), timeout=SECONDS, restore_signals=False, preexec_fn=limit)


def start(*arguments):
    """The program with pipes, for tests that talk to it."""
    return subprocess.Popen([PROGRAM, *map(str, arguments)], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                            stderr=subprocess.PIPE, env=environment())


class Case(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def need(self, path):
        if not os.path.exists(path):
            self.skipTest(f"no {os.path.basename(path)}")
        return path

    def ok(self, *arguments, **more):
        result = run(*arguments, **more)
        self.assertEqual(result.returncode, 0, result.stderr.decode(errors="replace"))
        return result

    def refused(self, status, words, *arguments, **more):
        """The program ends with `status` and one line on stderr that has all the words; nothing on stdout."""
        result = run(*arguments, **more)
        message = result.stderr.decode(errors="replace")
        self.assertEqual(result.returncode, status, f"{arguments}: {message}")
        self.assertEqual(message.count("\n"), 1, message)
        self.assertEqual(result.stdout, b"")
        for word in words:
            self.assertIn(str(word), message)

    def file(self, name, content):
        path = self.folder / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return str(path)

    def names(self):
        return sorted(path.name for path in self.folder.iterdir())


class Result(unittest.TextTestResult):
    def addSkip(self, test, reason):
        super().addSkip(test, reason)
        print(f"[  SKIPPED ] {test.id()}: {reason}", flush=True)


def main():
    """As unittest.main; 77 where every case was skipped."""
    cases = unittest.defaultTestLoader.loadTestsFromModule(sys.modules["__main__"])
    result = unittest.TextTestRunner(resultclass=Result, verbosity=2).run(cases)
    if not result.wasSuccessful():
        sys.exit(1)
    sys.exit(77 if result.testsRun and len(result.skipped) == result.testsRun else 0)


def rows(text):
    return [json.loads(line) for line in text.decode().splitlines()]
