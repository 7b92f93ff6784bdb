"""Processes that are killed, and processes that are asked to stop."""

import json
import os
import random
import re
import signal

import pytest

from tests.faults.conftest import SAMPLERS
from tests.faults.promises import AT_ONCE, SAME, SAVED, UNDISTURBED, fault, listed
from tests.runs import contents, tables

# A run of the campaign has about 250 steps, counted by `injection`; an attempt needs 20 to begin.
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
def test_killed_again_and_again(sampler, kills, jobs, undisturbed, tmp_path):
    for where in kills:
        jobs.kill(tmp_path, *where, sampler=sampler)
        assert not (tmp_path / "manifest.json").exists()
    assert jobs.finish(tmp_path, sampler) == undisturbed[sampler]
    assert not list(tmp_path.rglob("*.part"))
    manifest = json.loads((tmp_path / "manifest.json").read_text())
    assert manifest["stop_reasons"][-1] == "complete"
    assert set(manifest["stop_reasons"][:-1]) == {"killed"}
    assert manifest["attempts"] == len(manifest["stop_reasons"])
    assert 1 <= manifest["restarts"] < manifest["attempts"]


STOPS = listed(SAVED, "a signal to stop", ("SIGTERM", "SIGINT", "SIGUSR1", "SIGHUP"))


def test_signals_save_and_stop(jobs, undisturbed, tmp_path):
    for name in STOPS:
        strike = (signal.Signals[name], 1, "update_policy", "")
        _, status, output = jobs.resume(tmp_path, strike)
        assert status == 75, output
        line = rf"stopped: on {name}: saved checkpoints/\d+.safetensors, .*\n"
        assert re.fullmatch(line, output)
        assert (tmp_path / "run.log").read_text().count(f"ended: stopped: on {name}") == 1
    assert jobs.finish(tmp_path) == undisturbed["random"]


@fault(AT_ONCE, "Ctrl-C twice", "number", [signal.SIGINT])
def test_a_second_interrupt_stops_at_once(number, jobs, undisturbed, tmp_path):
    # Both in one round, so that the first cannot take effect in between.
    strikes = [(number, nth, "step", "") for nth in (9, 10)]
    _, status, output = jobs.start(tmp_path, *strikes)
    assert (status, output) == (130, "stopped\n")
    assert len(contents(tmp_path / "checkpoints")) == 2
    assert jobs.finish(tmp_path) == undisturbed["random"]


DRIVERS = [(), ("--resume",)]
listed(UNDISTURBED, "a second driver in the same folder", DRIVERS)
listed(SAME, "the owner of the lock is killed", DRIVERS[1:])


@pytest.mark.parametrize("more", DRIVERS)
def test_a_second_driver_is_refused_until_the_first_is_dead(more, jobs, undisturbed, tmp_path):
    first, status, output = jobs.start(tmp_path, (signal.SIGSTOP, 3, "update_policy", ""))
    assert status is None, output
    before = contents(tmp_path)
    _, status, output = jobs.start(tmp_path, more=more)
    assert (status, output.count("\n")) == (73, 1)
    assert f"error: --output: {tmp_path} is in use by process {first.pid} on " in output
    assert contents(tmp_path) == before
    if more:
        first.kill()
        first.join()
        assert jobs.finish(tmp_path) == undisturbed["random"]
    else:
        os.kill(first.pid, signal.SIGCONT)
        first.join()
        assert (first.exitcode, tables(tmp_path)) == (0, undisturbed["random"])
