"""Playing in the terminal."""

import io
import re
import sys
from types import SimpleNamespace

import pytest

from magellan.cli import main
from magellan.worlds.little_zoo.play import play
from tests.snippets import raising


def played(typed, category="grasp", seed=0):
    out = io.StringIO()
    stream = io.StringIO(typed) if isinstance(typed, str) else typed
    reached = play("2500", seed, category, stream, out)
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


MEANINGLESS = {"allowed are": f"99\nfly\n{'x' * 10**6}\n\n"}
MEANINGLESS |= {"have no effect. Type the number": f"{ARROWS}\n\x00\x07\n\x1b\n\x1b[NUMBER\n"}


@pytest.mark.parametrize(("answer", "typed"), MEANINGLESS.items(), ids=MEANINGLESS)
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
    reached, shown = played(typed)
    assert not reached
    assert shown.count("allowed are Grasp") == 2
    assert shown.endswith("Stopped.\n")


@pytest.mark.parametrize("ending", ["q\n", "", KeyboardInterrupt()], ids=repr)
def test_every_end_is_clean(ending, monkeypatch, capsys):
    interrupted = isinstance(ending, KeyboardInterrupt)
    stream = SimpleNamespace(readline=raising(ending)) if interrupted else io.StringIO(ending)
    monkeypatch.setattr(sys, "stdin", stream)
    assert main(["play", "--goal-space", "40-20-10-5-5"]) == (130 if interrupted else 0)
    out, err = capsys.readouterr()
    assert out.endswith("> \n" if interrupted else "> \nStopped.\n")
    assert err == ("stopped\n" if interrupted else "")
