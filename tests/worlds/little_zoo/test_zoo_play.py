"""Playing in the terminal."""

import io
import os
import pty
import re
import select
import signal
import sys
import time

import pytest

from magellan.worlds.little_zoo.play import play
from tests.snippets import ROOT


def played(typed, category="grasp", seed=0):
    out = io.StringIO()
    reached = play("2500", seed, category, io.StringIO(typed), out)
    return reached, out.getvalue()


def solution(seed=0):
    """Numbers that solve the grasp goal of this seed, from what is shown at the start."""
    _, shown = played("q\n", seed=seed)
    target = shown.splitlines()[0].split(" (")[0].removeprefix("Goal: Grasp ")
    lines = [line.strip() for line in shown.splitlines()]
    number = next(line.split(".")[0] for line in lines if ". Go to" in line and target in line)
    return number, target


def test_numbers_reach_a_goal():
    number, target = solution()
    reached, shown = played(f"{number}\n1\n")
    assert reached
    assert "Goal reached in 2 steps" in shown
    assert f"Inventory (1/2): {target}" in shown.replace("baby ", "").replace(" seed", "")
    reached, shown = played("1\n" * 15, category="impossible")
    assert not reached
    assert "Not reached in" in shown
    assert "(impossible)" in shown


ARROWS = "\x1b[A\x1b[B\x1bOC\x1b[1;5D"


@pytest.mark.parametrize(
    ("typed", "answer"),
    [
        (f"99\nfly\n{'x' * 10**6}\n\n", "allowed are"),
        (f"{ARROWS}\n\x00\x07\n\x1b\n\x1b[NUMBER\n", "have no effect. Type the number"),
    ],
    ids=["no action", "keys without a letter"],
)
def test_what_means_nothing_is_answered_and_costs_no_step(typed, answer):
    number, _ = solution()
    reached, shown = played(f"{typed.replace('NUMBER', number)}{number}\n1\n")
    assert reached
    assert "Goal reached in 2 steps" in shown
    assert shown.count(answer) == 4
    assert max(map(len, shown.splitlines())) < 400
    assert not re.search(r"[\x00-\x09\x0b-\x1f]", shown)


def test_bytes_that_are_no_text_are_no_action():
    typed = io.TextIOWrapper(io.BytesIO(b"\xff\xfe\n\xc3\nq\n"), encoding="utf-8")
    out = io.StringIO()
    assert not play("2500", 0, "grasp", typed, out)
    assert out.getvalue().count("allowed are Grasp") == 2
    assert out.getvalue().endswith("Stopped.\n")


class Terminal:
    """`magellan play` in a terminal of its own."""

    def __init__(self):
        self._process, self._controller = pty.fork()
        if self._process == 0:
            # Jobs in the background of a script ignore it, and hand that on.
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            os.chdir(ROOT)
            play = ["-m", "magellan", "play", "--goal-space", "40-20-10-5-5"]
            os.execv(sys.executable, [sys.executable, *play])
        self.shown = ""

    def until(self, text):
        """Read until a text has been shown since the last call."""
        output, end = "", time.monotonic() + 60
        while text not in output:
            ready, _, _ = select.select([self._controller], [], [], max(end - time.monotonic(), 0))
            assert ready, output
            try:
                output += os.read(self._controller, 10_000).decode()
            except OSError:  # the other side has closed
                assert text in output, output
        self.shown += output
        return output

    def type(self, keys):
        os.write(self._controller, keys.encode())

    def close(self):
        _, status = os.waitpid(self._process, 0)
        os.close(self._controller)
        return os.waitstatus_to_exitcode(status)


@pytest.mark.parametrize(
    ("keys", "status", "words"),
    [("q\r", 0, "Stopped."), ("\x04", 0, "Stopped."), ("\x03", 130, "\r\nstopped\r\n")],
)
def test_in_a_terminal_arrows_are_answered_and_every_end_is_clean(keys, status, words):
    terminal = Terminal()
    terminal.until("\r\n> ")
    terminal.type("\x1b[A\x1b[D\r")
    answer = terminal.until("\r\n> ")
    assert "have no effect. Type the number" in answer
    assert "Step 2" not in answer
    terminal.type(keys)
    terminal.until(words)
    assert terminal.close() == status
    assert "Traceback" not in terminal.shown
    assert "\x1b" not in terminal.shown
