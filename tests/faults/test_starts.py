"""Faults in a run that starts from another run's end or kept checkpoint."""

import json
import shutil
from functools import cache

import pytest

from magellan.config import beginning
from tests.faults.conftest import config
from tests.faults.promises import OTHER_UNTOUCHED, SAME, fault, listed
from tests.runs import contents, forge, tables, trained

SAMPLER = "magellan"
POINT = 20
KEEPS = ("--set", f"budget.keep_every={POINT}")
# Possible starts: a finished run, and a longer run's kept checkpoint.
PHASES = {
    of: [{"until": until}, {"goals": {"split": "unseen"}}]
    for of, until in (("ended", 15), ("kept", POINT))
}


def options(of, start):
    return ("--start", str(start), "--set", f"phases={json.dumps(PHASES[of])}")


def newest(run):
    """The checkpoint that is used."""
    return max((run / "checkpoints").iterdir())


@pytest.fixture(scope="module")
def good(tmp_path_factory):
    """Folders of a first run, and of uninterrupted runs with phases."""
    runs = {of: config(SAMPLER, phases=PHASES[of]) for of in PHASES}
    runs["first"] = beginning(runs["ended"])
    return cache(lambda name: trained(runs[name], tmp_path_factory.mktemp("good")))


@pytest.fixture
def first(good, tmp_path):
    """Folder of a run that has ended, which a test may damage."""
    return shutil.copytree(good("first"), tmp_path / "first")


STEPS = listed(SAME, "SIGKILL in a run that starts where another one ended", (1, 12, 80))
listed(SAME, "what a run started from is removed", ["ended"])


@pytest.mark.slow
def test_killed_after_a_start_which_is_needed_once(jobs, good, first, tmp_path):
    run, more = tmp_path / "r", options("ended", first)
    before, used = contents(first), newest(first).name
    for step in STEPS:
        jobs.kill(run, step, "", "", sampler=SAMPLER, more=more)
    assert contents(first) == before
    assert list(run.glob("checkpoints/*.safetensors"))
    shutil.rmtree(first)
    assert jobs.finish(run, SAMPLER, more) == tables(good("ended"))
    start = json.loads((run / "manifest.json").read_text())["started_from"]
    assert start["checkpoint"].endswith(used)


@pytest.mark.slow
@fault(SAME, "SIGKILL while a run keeps a checkpoint", "step", ("write", "replace"))
def test_killed_while_it_keeps_a_checkpoint(step, jobs, good, tmp_path):
    long, kept = tmp_path / "long", tmp_path / f"long/{POINT}"
    jobs.kill(long, 1, step, f"/{POINT}/checkpoints/", sampler=SAMPLER, more=KEEPS)
    assert not list(kept.rglob("*.safetensors"))
    jobs.finish(long, SAMPLER, KEEPS)
    assert jobs.finish(tmp_path / "r", SAMPLER, options("kept", kept)) == tables(good("kept"))


def spoil(case, first, jobs) -> str:
    """Damage the first run, or make another one in its place; return words of the error."""
    if case == "damaged":
        path = newest(first)
        path.write_bytes(path.read_bytes()[:-50])
        return f"{path} is damaged"
    if case == "forged":
        forge(newest(first), "trainer/next_evaluation", "x")
        return "does not fit"
    shutil.rmtree(first)
    if case == "not ended":
        short = ("--set", "budget.episodes=15")
        jobs.kill(first, 80, "", "", sampler=SAMPLER, more=short)
        return f"the run in {first} has not ended"
    trained(config(SAMPLER, budget={"keep_every": POINT // 2}), first)
    shutil.rmtree(first / str(POINT))
    shutil.move(first / str(POINT // 2), first / str(POINT))
    return f"was kept at {POINT // 2}, not at {POINT}"


@pytest.mark.slow
@fault(
    OTHER_UNTOUCHED,
    "a start is damaged, changed, not ended or at another length",
    "case",
    ("damaged", "forged", "not ended", "renamed"),
)
def test_a_start_that_cannot_be_used(case, jobs, first, tmp_path):
    words, before = spoil(case, first, jobs), contents(first)
    renamed = ("kept", first / str(POINT))
    more = options(*(renamed if case == "renamed" else ("ended", first)))
    _, status, output = jobs.start(tmp_path / "r", sampler=SAMPLER, more=more)
    assert (status, output.count("\n")) == (2, 1), output
    assert output.startswith("error: --start: ")
    assert words in output
    assert contents(first) == before
    assert not list((tmp_path / "r").glob("*"))
