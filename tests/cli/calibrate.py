"""calibrate.py: kvant calibrate and what other commands make of it, on models that take no time."""

import os
import re

from program import Case, SOURCE, main, run

DATA = SOURCE / "tests" / "data"
TINY, BIASED = str(DATA / "tiny4.gguf"), str(DATA / "tiny-out.gguf")
FEW_BITS = ["--kv", "-ctk", "q4_0", "-c", "64"]


class Calibrate(Case):
    def setUp(self):
        super().setUp()
        self.env = {"XDG_CACHE_HOME": str(self.folder / "cache"), "HOME": str(self.folder / "home")}

    def centre(self, *arguments, model=TINY, env=None):
        """What `inspect --kv` says: (pairs, source), None without a centre."""
        said = self.ok("inspect", model, *(arguments or FEW_BITS), env=env or self.env).stdout.decode()
        found = re.search(r"K centred in (\d+) pairs a head \(([^)]+)\): (\d+) products", said)
        if not found:
            return None
        self.assertEqual(int(found[3]), 2 * int(found[1]))
        return int(found[1]), found[2]

    def calibrate(self, *arguments, model=TINY, env=None):
        """The path that was written and the chosen number of pairs."""
        lines = self.ok("calibrate", model, *arguments, env=env or self.env).stdout.decode().splitlines()
        chosen = [int(line.split()[0]) for line in lines if line.endswith("chosen")]
        self.assertEqual(len(chosen), 1, lines)
        return lines[-1], chosen[0]

    def test_default_place(self):
        self.assertIsNone(self.centre())
        path, n_pairs = self.calibrate()
        self.assertRegex(path, "^" + str(self.folder / "cache" / "kvant") + "/[0-9a-f]{16}\\.centre$")
        self.assertGreater(n_pairs, 0)
        self.assertEqual(self.centre(), (n_pairs, "calibrated"))
        self.assertEqual(self.centre(*FEW_BITS, "--centre-pairs", "1"), (1, "calibrated"))
        self.assertIsNone(self.centre(*FEW_BITS, "--centre", "off"))
        self.assertIsNone(self.centre("--kv", "-ctk", "f16", "-c", "64"))
        self.assertEqual(os.listdir(self.folder / "cache" / "kvant"), [os.path.basename(path)])

    def test_home_and_named_files(self):
        home = {"XDG_CACHE_HOME": "not/absolute", "HOME": str(self.folder / "home")}
        path, n_pairs = self.calibrate(env=home)
        self.assertTrue(path.startswith(str(self.folder / "home" / ".cache" / "kvant") + "/"))
        named, again = self.calibrate("--centre", str(self.folder / "x.centre"))
        self.assertEqual((named, again), (str(self.folder / "x.centre"), n_pairs))
        with open(path, "rb") as a, open(named, "rb") as b:
            self.assertEqual(a.read(), b.read())
        self.assertEqual(self.centre(*FEW_BITS, "--centre", named), (n_pairs, "calibrated"))
        self.refused(2, ["XDG_CACHE_HOME", "--centre"], "calibrate", TINY, "-q", env={"XDG_CACHE_HOME": "", "HOME": ""})

    def test_biases_and_other_models(self):
        self.assertEqual(self.centre(model=BIASED), (32, "key biases"))
        path, _ = self.calibrate()
        self.refused(2, ["another model"], "inspect", BIASED, *FEW_BITS, "--centre", path)
        self.refused(2, ["nowhere"], "inspect", BIASED, *FEW_BITS, "--centre", str(self.folder / "nowhere"))

    def test_damaged(self):
        path, _ = self.calibrate()
        with open(path, "r+b") as file:
            file.seek(60)
            file.write(b"\xff\xff\xff")
        self.refused(2, [path, "damaged"], "inspect", TINY, *FEW_BITS, env=self.env)
        self.calibrate()
        self.assertIsNotNone(self.centre())

    def test_hint(self):
        """Said where it helps, and nowhere else."""
        command = ["run", TINY, "-p", "hello", "-n", "2", "--raw"]
        for flags, wanted in [(["-ctk", "q4_0"], True), (["-ctk", "q8_0"], False), ([], False),
                              (["-ctk", "q4_0", "--centre", "off"], False)]:
            self.assertEqual(b"kvant calibrate" in self.ok(*command, *flags, env=self.env).stderr, wanted, flags)
        biased = self.ok("run", BIASED, "-p", "hello", "-n", "2", "--raw", "-ctk", "q4_0", env=self.env)
        self.assertNotIn(b"kvant calibrate", biased.stderr)
        self.calibrate()
        self.assertNotIn(b"kvant calibrate", self.ok(*command, "-ctk", "q4_0", env=self.env).stderr)


if __name__ == "__main__":
    main()
