"""Faults in a run that starts from another run's end or kept checkpoint."""

import json
import shutil
from functools import cache
from pathlib import Path

import pytest

from magellan.config import beginning
from tests.faults.conftest import config
from tests.runs import contents, forge, tables, trained

SAMPLER = "magellan"
POINT = 20
KEEPS = ("--set", f"budget.keep_every={POINT}")
# Possible starts: a finished run, and a longer run's kept checkpoint.
PHASES = {
    of: [{"until": until}, {"goals": {"split": "unseen"}}]
    for of, until in (("ended", 15), ("kept", POINT))
}


def start_of(of: str, run: Path) -> Path:
    """Value of --start."""
    return run if of == "ended" else run / str(POINT)


def options(of: str, run: Path) -> tuple[str, ...]:
    """Configuration of the run that starts from this one."""
    return ("--start", str(start_of(of, run)), "--set", f"phases={json.dumps(PHASES[of])}")


def newest(of: str, run: Path) -> Path:
    """The checkpoint that is used."""
    return max((start_of(of, run) / "checkpoints").iterdir())


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
    """Folders of the runs that another one starts from."""

    @cache
    def of(name):
        run = config(SAMPLER, budget={"keep_every": POINT})
        if name == "ended":
            run = beginning(config(SAMPLER, phases=PHASES[name]))
        return trained(run, tmp_path_factory.mktemp(name))

    return of


@pytest.fixture
def begun(good, tmp_path):
    """A copy, which a test may damage."""
    return lambda of: shutil.copytree(good(of), tmp_path / "first")


@pytest.mark.slow
@pytest.mark.parametrize("of", PHASES)
def test_killed_after_a_start(of, jobs, whole, begun, tmp_path):
    """The start is not changed; once it has been read it may be removed."""
    first, run = begun(of), tmp_path / "r"
    before, name, more = contents(first), newest(of, first).name, options(of, first)
    for step in (1, 12, 50):
        jobs.kill(run, step, "", "", sampler=SAMPLER, more=more)
    assert contents(first) == before
    assert list((run / "checkpoints").glob("*.safetensors"))
    shutil.rmtree(first)
    assert jobs.finish(run, SAMPLER, more) == whole(of)
    start = json.loads((run / "manifest.json").read_text())["started_from"]
    assert start["checkpoint"].endswith(name)
    assert start.get("at") == (POINT if of == "kept" else None)


@pytest.mark.slow
@pytest.mark.parametrize("step", ["write", "replace"])
def test_killed_while_it_keeps_a_checkpoint(step, jobs, whole, tmp_path):
    long = tmp_path / "long"
    jobs.kill(long, 1, step, f"/{POINT}/checkpoints/", sampler=SAMPLER, more=KEEPS)
    assert not list((long / str(POINT)).rglob("*.safetensors"))
    jobs.finish(long, SAMPLER, KEEPS)
    assert jobs.finish(tmp_path / "r", SAMPLER, options("kept", long)) == whole("kept")


def spoil(case: str, of: str, run: Path, jobs) -> str:
    """Damage the start; return words of the error."""
    if case == "damaged":
        path = newest(of, run)
        path.write_bytes(path.read_bytes()[:-50])
        return f"{path} is damaged"
    if case == "forged":
        forge(newest(of, run), "trainer/next_evaluation", "x")
        return "does not fit"
    if case == "renamed":
        shutil.rmtree(run / str(POINT))
        trained(config(SAMPLER, budget={"keep_every": POINT // 2}), run / "again")
        shutil.move(run / "again" / str(POINT // 2), run / str(POINT))
        return f"was kept at {POINT // 2}, not at {POINT}"
    shutil.rmtree(run)
    jobs.kill(run, 80, "", "", sampler=SAMPLER, more=("--set", "budget.episodes=15"))
    return f"the run in {run} has not ended"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("of", "case"),
    [("ended", "damaged"), ("ended", "not ended"), ("kept", "renamed"), ("kept", "forged")],
)
def test_a_start_that_cannot_be_used(of, case, jobs, begun, tmp_path):
    """It ends with a one-line error and leaves both folders unchanged."""
    first = begun(of)
    words = spoil(case, of, first, jobs)
    before = contents(first)
    _, status, output = jobs.start(tmp_path / "r", sampler=SAMPLER, more=options(of, first))
    assert (status, output.count("\n")) == (2, 1), output
    assert output.startswith("error: --start: ")
    assert words in output
    assert contents(first) == before
    assert not list((tmp_path / "r").glob("*"))
