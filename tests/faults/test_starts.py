"""Faults in a run that starts from another run's end or kept checkpoint."""

import json
import shutil
from functools import cache
from pathlib import Path
from typing import NamedTuple

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


class Begun(NamedTuple):
    """A run that another one starts from; a test may damage its folder."""

    of: str
    run: Path

    @property
    def start(self) -> Path:
        return self.run if self.of == "ended" else self.run / str(POINT)

    @property
    def newest(self) -> Path:
        """The checkpoint that is used."""
        return max((self.start / "checkpoints").iterdir())

    @property
    def options(self) -> tuple[str, ...]:
        return ("--start", str(self.start), "--set", f"phases={json.dumps(PHASES[self.of])}")


@pytest.fixture(scope="module")
def good(tmp_path_factory):
    """Folders of the first runs, and of uninterrupted runs with phases."""
    runs = {
        "kept": config(SAMPLER, budget={"keep_every": POINT}),
        "ended": beginning(config(SAMPLER, phases=PHASES["ended"])),
        **{f"whole, {of}": config(SAMPLER, phases=PHASES[of]) for of in PHASES},
    }
    return cache(lambda name: trained(runs[name], tmp_path_factory.mktemp("good")))


@pytest.fixture
def whole(good):
    return lambda of: tables(good(f"whole, {of}"))


@pytest.fixture
def begun(good, tmp_path):
    return lambda of: Begun(of, shutil.copytree(good(of), tmp_path / "first"))


STEPS = {"ended": (1, 12, 80), "kept": (1, 12, 30)}
KILLS = [step for steps in STEPS.values() for step in steps]
listed(SAME, "SIGKILL in a run that starts where another one ended, or kept a checkpoint", KILLS)
listed(SAME, "what a run started from is removed", ["ended"])


@pytest.mark.slow
@pytest.mark.parametrize("of", PHASES)
def test_killed_after_a_start_which_is_needed_once(of, jobs, whole, begun, tmp_path):
    first, run = begun(of), tmp_path / "r"
    before, newest = contents(first.run), first.newest.name
    for step in STEPS[of]:
        jobs.kill(run, step, "", "", sampler=SAMPLER, more=first.options)
    assert contents(first.run) == before
    if of == "ended":
        assert list(run.glob("checkpoints/*.safetensors"))
        shutil.rmtree(first.run)
    assert jobs.finish(run, SAMPLER, first.options) == whole(of)
    start = json.loads((run / "manifest.json").read_text())["started_from"]
    assert start["checkpoint"].endswith(newest)
    assert start.get("at") == (POINT if of == "kept" else None)


@pytest.mark.slow
@fault(SAME, "SIGKILL while a run keeps a checkpoint", "step", ("write", "replace"))
def test_killed_while_it_keeps_a_checkpoint(step, jobs, whole, tmp_path):
    long = Begun("kept", tmp_path / "long")
    jobs.kill(long.run, 1, step, f"/{POINT}/checkpoints/", sampler=SAMPLER, more=KEEPS)
    assert not list(long.start.rglob("*.safetensors"))
    jobs.finish(long.run, SAMPLER, KEEPS)
    assert jobs.finish(tmp_path / "r", SAMPLER, long.options) == whole("kept")


def spoil(case: str, first: Begun, jobs) -> str:
    """Damage the start; return words of the error."""
    newest = first.newest
    if case == "damaged":
        newest.write_bytes(newest.read_bytes()[:-50])
        return f"{newest} is damaged"
    if case == "forged":
        forge(newest, "trainer/next_evaluation", "x")
        return "does not fit"
    if case == "renamed":
        shutil.rmtree(first.start)
        earlier = config(SAMPLER, budget={"keep_every": POINT // 2})
        trained(earlier, first.run / "again")
        shutil.move(first.run / "again" / str(POINT // 2), first.start)
        return f"was kept at {POINT // 2}, not at {POINT}"
    shutil.rmtree(first.run)
    short = ("--set", "budget.episodes=15")
    jobs.kill(first.run, 80, "", "", sampler=SAMPLER, more=short)
    return f"the run in {first.run} has not ended"


DAMAGE = [("ended", "damaged"), ("ended", "not ended"), ("kept", "renamed"), ("kept", "forged")]


@pytest.mark.slow
@fault(
    OTHER_UNTOUCHED,
    "a start is damaged, changed, not ended or at another length",
    "of, case",
    DAMAGE,
)
def test_a_start_that_cannot_be_used(of, case, jobs, begun, tmp_path):
    first = begun(of)
    words = spoil(case, first, jobs)
    before = contents(first.run)
    _, status, output = jobs.start(tmp_path / "r", sampler=SAMPLER, more=first.options)
    assert (status, output.count("\n")) == (2, 1), output
    assert output.startswith("error: --start: ")
    assert words in output
    assert contents(first.run) == before
    assert not list((tmp_path / "r").glob("*"))
