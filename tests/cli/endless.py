"""endless.py: a text of 3,000 tokens streamed through 512 cells: under each policy a cache of q8_0 keys and q4_0 values
predicts every stretch as well as one of floats, in memory that stays as it is."""

import re

from program import Case, EMMA, SMOLLM2, main, rows

STRETCH = 1000


class Endless(Case):
    def stream(self, policy, k, v):
        text = self.ok("perplexity", self.need(SMOLLM2), "-f", self.need(EMMA), "--context", policy, "--ctx", "512", "-o", "json",
                       "--stretch", STRETCH, "-ctk", k, "-ctv", v, "-q").stdout
        figures = rows(text)
        self.assertGreater(len(figures), 2)
        self.assertEqual([row["first"] for row in figures], [i * STRETCH for i in range(len(figures))])
        return figures

    def compare(self, policy):
        floats, coded = self.stream(policy, "f32", "f32"), self.stream(policy, "q8_0", "q4_0")
        for a, b in zip(floats, coded):
            self.assertLess(abs(b["perplexity"] / a["perplexity"] - 1), 0.03, (a, b))
        self.assertLess(coded[-1]["perplexity"], 60)  # and it still makes sense
        # a few more plans, for the batches that end with a stretch
        self.assertLess(coded[-1]["peak_mib"] - coded[1]["peak_mib"], 24)

    def test_shift(self):
        self.compare("shift")

    def test_window(self):
        self.compare("window")

    def test_chat_with_a_reply_longer_than_the_context(self):
        result = self.ok("chat", self.need(SMOLLM2), "-c", "256", "--context", "window", "-n", "600", "--temp", "0",
                         "--logit-bias", "2-inf", "--logit-bias", "0-inf", stdin=b"Tell me a long story.\nGo on.\n")
        self.assertIn(b"no longer seen", result.stderr)
        tokens = [int(n) for n in re.findall(r"(?m)^decode +(\d+) tokens", result.stderr.decode())]
        self.assertEqual(tokens, [1200])


if __name__ == "__main__":
    main()
