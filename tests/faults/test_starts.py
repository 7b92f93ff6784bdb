"""Faults in a run that starts from another run's end or kept checkpoint."""

import json
import shutil
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

from magellan.config import RunConfig, beginning
from tests.faults.cases import FORGED_STARTS, STARTS, cases
from tests.faults.conftest import config
from tests.runs import contents, forge, refusal, tables, trained

SAMPLER = "magellan"
POINT = 20
KEEPS = ("--set", f"budget.keep_every={POINT}")


def then_unseen(until: int) -> list[dict]:
    return [{"until": until}, {"goals": {"split": "unseen"}}]


# Possible starts: a finished run, and a longer run's kept checkpoint.
PHASES = {"ended": then_unseen(15), "kept": then_unseen(POINT)}
BEGUN = {
    "ended": beginning(config(SAMPLER, phases=PHASES["ended"])),
    "kept": config(SAMPLER, budget={"keep_every": POINT}),
}
OTHERS = {
    "ended": beginning(config("random", phases=PHASES["ended"])),
    "kept": config("random", budget={"keep_every": POINT}),
}


class Begun(NamedTuple):
    """A run that another one starts from; a test may damage its folder."""

    of: str
    run: Path

    @property
    def start(self) -> Path:
        """Value of --start."""
        return self.run if self.of == "ended" else self.run / str(POINT)

    @property
    def newest(self) -> Path:
        """The checkpoint that is used."""
        return max((self.start / "checkpoints").iterdir())

    @property
    def options(self) -> tuple[str, ...]:
        """Configuration of the run that starts here."""
        return ("--start", str(self.start), "--set", f"phases={json.dumps(PHASES[self.of])}")

    @property
    def config(self) -> RunConfig:
        """Configuration of the first run."""
        return config(SAMPLER, phases=PHASES[self.of])


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """Tables of an uninterrupted run with phases."""

    @cache
    def of(name):
        run = config(SAMPLER, phases=PHASES[name])
        return tables(trained(run, tmp_path_factory.mktemp("whole")))

    return of


@pytest.fixture(scope="module")
def good(tmp_path_factory):
    """Folders of the first runs."""
    return cache(lambda name: trained(BEGUN[name], tmp_path_factory.mktemp(name)))


@pytest.fixture
def begun(good, tmp_path):
    return lambda of: Begun(of, shutil.copytree(good(of), tmp_path / "first"))


@pytest.mark.slow
@pytest.mark.parametrize("of", STARTS)
def test_killed_after_a_start(of, jobs, whole, begun, tmp_path):
    first = begun(of)
    before = contents(first.run)
    for step in (step for name, step in cases("kill after a start") if name == of):
        jobs.kill(tmp_path / "r", step, "", "", sampler=SAMPLER, more=first.options)
    assert jobs.finish(tmp_path / "r", SAMPLER, first.options) == whole(of)
    assert contents(first.run) == before
    start = json.loads((tmp_path / "r" / "manifest.json").read_text())["started_from"]
    assert start["checkpoint"].endswith(first.newest.name)
    assert start.get("at") == (POINT if of == "kept" else None)


@pytest.mark.parametrize("case", cases("start gone"))
def test_what_a_run_started_from_is_needed_once(case, jobs, whole, begun, tmp_path):
    first = begun("ended")
    jobs.kill(tmp_path / "r", 80, "", "", sampler=SAMPLER, more=first.options)
    assert list((tmp_path / "r" / "checkpoints").glob("*.safetensors"))
    shutil.rmtree(first.run)
    assert jobs.finish(tmp_path / "r", SAMPLER, first.options) == whole("ended")


@pytest.mark.slow
@pytest.mark.parametrize("step", cases("kill while it keeps"))
def test_killed_while_it_keeps_a_checkpoint(step, jobs, whole, tmp_path):
    long = Begun("kept", tmp_path / "long")
    jobs.kill(long.run, 1, step, f"/{POINT}/checkpoints/", sampler=SAMPLER, more=KEEPS)
    assert not list(long.start.rglob("*.safetensors"))
    jobs.finish(long.run, SAMPLER, KEEPS)
    assert jobs.finish(tmp_path / "r", SAMPLER, long.options) == whole("kept")


def spoil(case: str, first: Begun, jobs) -> str:
    """Damage the start; return words of the error."""
    newest, content = first.newest, first.newest.read_bytes()
    if case == "bit":
        newest.write_bytes(content[:-50] + bytes([content[-50] ^ 4]) + content[-49:])
        return f"{newest} is damaged (its checksum is wrong)"
    if case == "cut":
        newest.write_bytes(content[: len(content) // 2])
        return f"{newest} is damaged"
    if case == "removed":
        shutil.rmtree(newest.parent)
        return f"{first.start} holds no checkpoint"
    if case == "renamed":
        shutil.rmtree(first.start)
        earlier = config(SAMPLER, budget={"keep_every": POINT // 2})
        trained(earlier, first.run / "again")
        shutil.move(first.run / "again" / str(POINT // 2), first.start)
        return f"was kept at {POINT // 2}, not at {POINT}"
    shutil.rmtree(first.run)
    if case == "another run":
        trained(OTHERS[first.of], first.run)
        return "sampler is 'magellan' here and 'random' there"
    short = ("--set", "budget.episodes=15")
    jobs.kill(first.run, 80, "", "", sampler=SAMPLER, more=short)
    return f"the run in {first.run} has not ended"


@pytest.mark.slow
@pytest.mark.parametrize(("of", "case"), cases("damaged start"))
def test_a_start_that_cannot_be_used(of, case, jobs, begun, tmp_path):
    """It ends with a one-line error and leaves both folders unchanged."""
    first = begun(of)
    words = spoil(case, first, jobs)
    before = contents(first.run)
    _, status, output = jobs.start(tmp_path / "r", sampler=SAMPLER, more=first.options)
    assert (status, output.count("\n")) == (2, 1), output
    assert output.startswith("error: --start: ")
    assert words in output
    assert contents(first.run) == before
    assert not list((tmp_path / "r").glob("*"))


@pytest.mark.parametrize(("of", "case"), cases("forged start"))
def test_a_forged_start_is_one_clear_error(of, case, begun, tmp_path):
    first = begun(of)
    forge(first.newest, *FORGED_STARTS[case])
    before = contents(first.run)
    error = refusal(trained, first.config, tmp_path / "r", first.start)
    assert error.startswith(f"--start: {first.start} ")
    assert "does not fit" in error or "is not allowed" in error
    assert contents(first.run) == before
    assert not list((tmp_path / "r").glob("*"))
