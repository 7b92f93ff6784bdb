"""Processes that are killed or asked to stop; runs that start from another run's checkpoint."""

import json
import os
import random
import re
import shutil
import signal
from functools import cache

import pytest

from magellan.config import beginning
from tests.faults.conftest import SAMPLERS, config, kill, resume, start
from tests.faults.promises import SAME, SAVED, fault, listed
from tests.runs import contents, forge, tables, trained

# A run of the campaign has about 250 steps, counted by `install`; an attempt needs 20 to begin.
MOMENTS = [(random.Random(i).randint(5, 80), "", "") for i in range(4)]
listed(SAME, "SIGKILL at a random moment of a run", MOMENTS * len(SAMPLERS))
WRITES = listed(
    SAME,
    "SIGKILL while a checkpoint, a table or the manifest is written",
    [
        *((nth, step, "checkpoints/") for nth, step in ((2, "write"), (2, "fsync"), (1, "unlink"))),
        *((2, "replace", "checkpoints/"), (1, "replace", "competence.csv")),
        *((1, "write", "training.csv"), (1, "replace", "manifest.json")),
    ],
)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("sampler", "kills"), [*((name, MOMENTS) for name in SAMPLERS), ("random", WRITES)]
)
def test_killed_again_and_again(sampler, kills, goes_on, tmp_path):
    for where in kills:
        kill(tmp_path, *where, sampler=sampler)
        assert not (tmp_path / "manifest.json").exists()
    manifest = goes_on(tmp_path, sampler)
    assert not list(tmp_path.rglob("*.part"))
    assert manifest["stop_reasons"][-1] == "complete"
    assert set(manifest["stop_reasons"][:-1]) == {"killed"}
    assert manifest["attempts"] == len(manifest["stop_reasons"])
    assert 1 <= manifest["restarts"] < manifest["attempts"]


STOPS = listed(SAVED, "a signal to stop", ("SIGTERM", "SIGINT", "SIGUSR1", "SIGHUP"))


def test_signals_save_and_stop(goes_on, tmp_path):
    for name in STOPS:
        output = resume(tmp_path, (signal.Signals[name], 1, "update_policy", ""), status=75)
        assert re.fullmatch(rf"stopped: on {name}: saved checkpoints/\d+.safetensors, .*\n", output)
        assert (tmp_path / "run.log").read_text().count(f"ended: stopped: on {name}") == 1
    goes_on(tmp_path)


@fault(f"stops at once, exit status 130, then {SAME}", "Ctrl-C twice", "number", [signal.SIGINT])
def test_a_second_interrupt_stops_at_once(number, goes_on, tmp_path):
    # Both in one round, so that the first cannot take effect in between.
    strikes = [(number, nth, "step", "") for nth in (9, 10)]
    assert resume(tmp_path, *strikes, status=130) == "stopped\n"
    assert len(contents(tmp_path / "checkpoints")) == 2
    goes_on(tmp_path)


DRIVERS = [(), ("--resume",)]
listed(SAME, "the owner of the lock is killed", DRIVERS[1:])
UNDISTURBED = "one clear error, the first one ends undisturbed"


@fault(UNDISTURBED, "a second driver in the same folder", "more", DRIVERS)
def test_a_second_driver_is_refused_until_the_first_is_dead(more, goes_on, undisturbed, tmp_path):
    first, status, output = start(tmp_path, (signal.SIGSTOP, 3, "update_policy", ""))
    assert status is None, output
    before = contents(tmp_path)
    _, status, output = start(tmp_path, more=more)
    assert (status, output.count("\n")) == (73, 1)
    assert f"error: --output: {tmp_path} is in use by process {first.pid} on " in output
    assert contents(tmp_path) == before
    os.kill(first.pid, signal.SIGKILL if more else signal.SIGCONT)
    first.join()
    if more:
        goes_on(tmp_path)
    else:
        assert (first.exitcode, tables(tmp_path)) == (0, undisturbed["random"])


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
def test_killed_after_a_start_which_is_needed_once(good, first, tmp_path):
    run, more = tmp_path / "r", options("ended", first)
    before, used = contents(first), max(first.glob("checkpoints/*")).name
    for step in STEPS:
        kill(run, step, "", "", sampler=SAMPLER, more=more)
    assert contents(first) == before
    assert list(run.glob("checkpoints/*.safetensors"))
    shutil.rmtree(first)
    resume(run, sampler=SAMPLER, more=more)
    assert tables(run) == tables(good("ended"))
    begun = json.loads((run / "manifest.json").read_text())["started_from"]
    assert begun["checkpoint"].endswith(used)


@pytest.mark.slow
@fault(SAME, "SIGKILL while a run keeps a checkpoint", "step", ("write", "replace"))
def test_killed_while_it_keeps_a_checkpoint(step, good, tmp_path):
    run, long, kept = tmp_path / "r", tmp_path / "long", tmp_path / f"long/{POINT}"
    kill(long, 1, step, f"/{POINT}/checkpoints/", sampler=SAMPLER, more=KEEPS)
    assert not list(kept.rglob("*.safetensors"))
    resume(long, sampler=SAMPLER, more=KEEPS)
    resume(run, sampler=SAMPLER, more=options("kept", kept))
    assert tables(run) == tables(good("kept"))


def spoil(case, first) -> str:
    """Damage the first run, or make another one in its place; return words of the error."""
    path = max(first.glob("checkpoints/*"))
    if case == "damaged":
        path.write_bytes(path.read_bytes()[:-50])
        return f"{path} is damaged"
    if case == "forged":
        forge(path, "trainer/next_evaluation", "x")
        return "does not fit"
    shutil.rmtree(first)
    if case == "not ended":
        kill(first, 80, "", "", sampler=SAMPLER, more=("--set", "budget.episodes=15"))
        return f"the run in {first} has not ended"
    trained(config(SAMPLER, budget={"keep_every": POINT // 2}), first)
    shutil.rmtree(first / str(POINT))
    shutil.move(first / str(POINT // 2), first / str(POINT))
    return f"was kept at {POINT // 2}, not at {POINT}"


OTHER = "one clear error, the other run untouched"
SPOILT = ("damaged", "forged", "not ended", "renamed")


@pytest.mark.slow
@fault(OTHER, "a start is damaged, changed, not ended or at another length", "case", SPOILT)
def test_a_start_that_cannot_be_used(case, first, tmp_path):
    words, before = spoil(case, first), contents(first)
    renamed = ("kept", first / str(POINT))
    more = options(*(renamed if case == "renamed" else ("ended", first)))
    output = resume(tmp_path / "r", sampler=SAMPLER, more=more, status=2)
    assert output.count("\n") == 1, output
    assert output.startswith("error: --start: ")
    assert words in output
    assert contents(first) == before
    assert not list((tmp_path / "r").glob("*"))
