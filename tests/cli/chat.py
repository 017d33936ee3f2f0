"""chat.py: conversations: long ones that shift, what can be typed, saving and loading, editing on a terminal."""

import json
import os
import pty
import re
import select
import signal
import time

from program import Case, PROGRAM, QWEN, SMOLLM2, SOURCE, environment, main, run

def read_transcript():
    """The system message and what the user says in the recorded conversation."""
    lines = (SOURCE / "tests" / "cli" / "chat_transcript.txt").read_text().splitlines()
    messages = [line.split(": ", 1) for line in lines]
    return messages[0][1], [text for role, text in messages if role == "user"]


SYSTEM, TURNS = read_transcript()


def script(*lines):
    return ("\n".join(lines) + "\n").encode()


class Long(Case):
    def converse(self, model, n_predict):
        saved = self.folder / "chat.json"
        result = self.ok("chat", self.need(model), "-c", "512", "-n", n_predict, "--temp", "0", "--repeat-penalty", "1.1",
                         "-sys", SYSTEM,
                         stdin=script(*TURNS, "/stats", f"/save {saved}"))
        messages = json.loads(saved.read_text())["messages"]
        notices = result.stderr.decode()
        for message in messages:
            print(f"{message['role']}: {message['content']}")
        print(notices)
        self.assertEqual([m["role"] for m in messages], ["system"] + ["user", "assistant"] * len(TURNS))
        self.assertEqual([m["content"] for m in messages[1::2]], TURNS)
        self.sensible([m["content"] for m in messages[2::2]], result.stdout.decode())
        self.shifted(notices)

    def sensible(self, replies, stdout):
        self.assertEqual(stdout, "".join(reply + "\n" for reply in replies))
        for reply in replies:
            words = reply.split()
            self.assertGreater(len(words), 3, reply)
            self.assertGreater(len(set(words)) / len(words), 0.3, reply)
            self.assertNotIn("<|", reply)
            self.assertTrue(reply.isprintable() or "\n" in reply, reply)
        self.assertIn("Paris", replies[-1])

    def shifted(self, notices):
        """The context was full at least twice; each time the oldest messages went, never the system message."""
        dropped = [int(n) for n in re.findall(r"the oldest (\d+) messages are no longer seen", notices)]
        self.assertGreaterEqual(len(dropped), 2, notices)
        self.assertEqual(dropped, sorted(set(dropped)))
        self.assertLess(dropped[-1], 2 * len(TURNS))
        self.assertGreaterEqual(int(re.search(r"context +\d+ of 512 tokens, (\d+) shifts", notices)[1]), 2)

    def test_smollm2(self):
        self.converse(SMOLLM2, 80)

    def test_qwen(self):
        self.converse(QWEN, 60)


class Typed(Case):
    def setUp(self):
        super().setUp()
        self.command = ["chat", self.need(SMOLLM2), "-n", "8", "--temp", "0", "-c", "512"]

    def talk(self, *lines, status=0):
        result = run(*self.command, stdin=script(*lines))
        self.assertEqual(result.returncode, status, result.stderr)
        return result.stdout.decode(), result.stderr.decode()

    def saved(self, *lines, status=0):
        path = self.folder / "saved.json"
        self.talk(*lines, f"/save {path}", status=status)
        return [(m["role"], m["content"]) for m in json.loads(path.read_text())["messages"]]

    def test_help_exit_and_unknown(self):
        _, notices = self.talk("/help", "/exit", "never read")
        for name in ["/help", "/clear", "/regen", "/save", "/load", "/system", "/stats", "/exit"]:
            self.assertIn(name, notices)
        text, notices = self.talk("/sing", status=1)
        self.assertEqual(text, "")
        self.assertIn("no command '/sing'", notices)

    def test_clear_and_system(self):
        self.assertEqual(self.saved("Hello", "/clear"), [])
        messages = self.saved("Hello", "/system Speak like a pirate.")
        self.assertEqual(messages[0], ("system", "Speak like a pirate."))
        self.assertEqual([role for role, _ in messages], ["system", "user", "assistant"])
        self.assertEqual(len(self.saved("Hello", "/system One.", "/system Two.", "/system")), 2)

    def test_regen(self):
        self.command += ["--temp", "0"]
        text, _ = self.talk("Tell me about the moon.", "/regen")
        first, second = text[:len(text) // 2], text[len(text) // 2:]
        self.assertEqual(first, second, "greedy: the same reply again")
        self.assertEqual(len(self.saved("Tell me about the moon.", "/regen")), 2)
        _, notices = self.talk("/regen", status=1)
        self.assertIn("no reply yet", notices)

    def test_lines_go_on(self):
        self.assertEqual(self.saved("one\\", "two\\", "three")[0], ("user", "one\ntwo\nthree"))

    def test_save_and_load(self):
        path = self.folder / "a.json"
        before = self.saved("My cat is called Zorro.", f"/save {path}")
        self.assertEqual(self.saved(f"/load {path}"), before)
        text, _ = self.talk(f"/load {path}", "What is my cat called?")
        straight, _ = self.talk("My cat is called Zorro.", "What is my cat called?")
        self.assertTrue(straight.endswith(text), (straight, text))

    def test_load_refuses(self):
        for content, words in [(b"", "line"), (b"{", "line"), (b"[]", "messages"), (b'{"messages": [{}]}', "message 1"),
                               (b'{"messages": [{"role": "user", "content": 5}]}', "message 1"),
                               (b'{"messages": [{"role": "judge", "content": "x"}]}', "judge")]:
            path = self.file("bad.json", content)
            messages = self.saved("Hello", f"/load {path}", status=1)
            self.assertEqual(messages[0], ("user", "Hello"), "the conversation is as before")
            _, notices = self.talk(f"/load {path}", status=1)
            self.assertIn(words, notices)
        self.assertIn("No such file", self.talk(f"/load {self.folder}/none.json", status=1)[1])

    def test_save_on_a_full_disk(self):
        result = run(*self.command, stdin=script("Hello", f"/save {self.folder}/chat.json"), full_after=10)
        self.assertEqual(result.returncode, 1)
        self.assertIn(b"chat.json", result.stderr)
        self.assertEqual(self.names(), [])

    def test_message_that_does_not_fit(self):
        text, notices = self.talk("word " * 2000, "Hello", status=1)
        self.assertIn("512", notices)
        self.assertGreater(len(text), 1, "the next message is answered")


class Terminal(Case):
    """On a pseudo-terminal: editing, history, Ctrl-C, Ctrl-D."""

    def setUp(self):
        super().setUp()
        self.need(SMOLLM2)
        self.screen = b""
        self.pid = 0

    def open(self, *arguments):
        try:
            pid, self.terminal = pty.fork()
        except OSError as error:
            self.skipTest(f"no terminal can be had here: {error}")
        if pid == 0:
            os.execve(PROGRAM, [PROGRAM, "chat", SMOLLM2, "--temp", "0", "-c", "512", *arguments],
                      environment({"XDG_STATE_HOME": str(self.folder), "TERM": "xterm"}))
        self.pid = pid
        self.addCleanup(self.close)
        return self.wait_for(b"> ")

    def close(self):
        if self.pid:
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
        os.close(self.terminal)

    def read(self):
        ready, _, _ = select.select([self.terminal], [], [], 0.2)
        try:
            data = os.read(self.terminal, 4096) if ready else b""
        except OSError:
            data = b""
        self.screen += data
        return data

    def wait_for(self, what, seconds=120):
        """Reads on until `what` is seen; what was read so far is forgotten."""
        end = time.monotonic() + seconds
        while what not in self.screen:
            self.assertLess(time.monotonic(), end, self.screen)
            self.read()
        at = self.screen.index(what) + len(what)
        seen, self.screen = self.screen[:at], self.screen[at:]
        return seen

    def type(self, text):
        """As a person would: not in the moment in which the prompt appears and the terminal changes its mode."""
        time.sleep(0.3)
        os.write(self.terminal, text)

    def ends_with(self, status):
        end = time.monotonic() + 60
        while time.monotonic() < end:
            self.read()
            pid, state = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.pid = 0
                self.assertEqual(os.waitstatus_to_exitcode(state), status)
                return
        self.fail("does not end: " + repr(self.screen))

    def test_editing_and_history(self):
        self.open("-n", "2")
        path = self.folder / "typed.json"
        self.type(("héllo wrld 你好" + "\x1b[D" * 6 + "o\x05!\r").encode())  # six to the left an o, at the end a !
        self.wait_for(b"[token limit]")
        self.wait_for(b"> ")
        self.type(b"\x1b[A\r")  # the same line out of the history
        self.wait_for(b"[token limit]")
        self.wait_for(b"> ")
        self.type(f"/save {path}\r".encode())
        self.wait_for(b"saved to")
        self.wait_for(b"> ")
        self.type(b"\x04")
        self.ends_with(0)
        typed = [m["content"] for m in json.loads(path.read_text())["messages"] if m["role"] == "user"]
        if "\x1b" in typed[0]:
            self.skipTest("built without libedit")
        self.assertEqual(typed, ["héllo world 你好!"] * 2)
        self.assertIn("/save", (self.folder / "kvant" / "history").read_text())

    def test_interrupt_stops_a_reply(self):
        self.open("-n", "400")
        self.type(b"Tell me a very long story about the sea and its ships.\r")
        self.wait_for(b"ships.\r\n")
        time.sleep(1)
        self.type(b"\x03")
        self.wait_for(b"[stopped]")
        self.wait_for(b"> ")
        self.type(b"/exit\r")
        self.ends_with(0)

    def test_interrupt_at_the_prompt(self):
        self.open()
        self.type(b"half a line\x03")
        self.wait_for(b"Ctrl-C again")
        self.type(b"\x03")
        self.ends_with(0)

    def test_progress_bar(self):
        opening = self.open()
        self.assertIn(b"\rloading [", opening)
        self.assertIn(b"\r\x1b[K", opening)
        self.type(b"/exit\r")
        self.ends_with(0)


if __name__ == "__main__":
    main()
