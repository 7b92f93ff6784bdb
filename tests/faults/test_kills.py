"""Processes that are killed, and processes that are asked to stop."""

import json
import re
import signal

import pytest

from tests.faults.cases import SAMPLERS, cases
from tests.runs import contents, tables


@pytest.mark.slow
@pytest.mark.parametrize("sampler", SAMPLERS)
def test_killed_at_random_moments(sampler, jobs, undisturbed, tmp_path):
    moments = [steps for name, _, steps in cases("kill") if name == sampler]
    for steps in moments:
        jobs.kill(tmp_path, steps, "", "", sampler=sampler)
        assert not (tmp_path / "manifest.json").exists()
    assert jobs.finish(tmp_path, sampler) == undisturbed[sampler]
    assert not list(tmp_path.rglob("*.part"))
    manifest = json.loads((tmp_path / "manifest.json").read_text())
    assert manifest["stop_reasons"][-1] == "complete"
    assert set(manifest["stop_reasons"][:-1]) == {"killed"}
    assert manifest["attempts"] == len(manifest["stop_reasons"])
    assert 1 <= manifest["restarts"] < manifest["attempts"]


KILLS = {
    "checkpoint": [(nth, step, "checkpoints/") for step, nth in cases("kill in save")],
    "results": [(1, step, file) for step, file in cases("kill at the end")],
}


@pytest.mark.parametrize("written", KILLS)
def test_killed_while_files_are_written(written, jobs, undisturbed, tmp_path):
    for where in KILLS[written]:
        jobs.kill(tmp_path, *where)
        assert not (tmp_path / "manifest.json").exists()
    assert jobs.finish(tmp_path) == undisturbed["random"]
    assert not list(tmp_path.rglob("*.part"))


def test_signals_save_and_stop(jobs, undisturbed, tmp_path):
    for name in cases("signal"):
        strike = (signal.Signals[name], 1, "update", "")
        _, status, output = jobs.resume(tmp_path, strike)
        assert status == 75, output
        line = rf"stopped: on {name}: saved checkpoints/\d+.safetensors, .*\n"
        assert re.fullmatch(line, output)
        assert (tmp_path / "run.log").read_text().count(f"ended: stopped: on {name}") == 1
    assert jobs.finish(tmp_path) == undisturbed["random"]


def test_a_second_interrupt_stops_at_once(jobs, undisturbed, tmp_path):
    (name,) = cases("interrupts")
    # Both in one round, so that the first cannot take effect in between.
    strikes = [(signal.Signals[name], nth, "step", "") for nth in (9, 10)]
    _, status, output = jobs.start(tmp_path, *strikes)
    assert (status, output) == (130, "stopped\n")
    assert len(contents(tmp_path / "checkpoints")) == 2
    assert jobs.finish(tmp_path) == undisturbed["random"]


@pytest.mark.parametrize("case", cases("two"))
def test_a_second_driver_is_refused(case, jobs, undisturbed, tmp_path):
    first, status, output = jobs.start(tmp_path, (signal.SIGSTOP, 3, "update", ""))
    assert status == "stopped", output
    before = contents(tmp_path)
    second = jobs.resume if case == "same" else jobs.start
    _, status, output = second(tmp_path)
    assert status == 73
    assert output.count("\n") == 1
    assert f"error: --output: {tmp_path} is in use by process {first} on " in output
    assert contents(tmp_path) == before
    assert jobs.ask({"continue": first}) == (first, 0)
    assert tables(tmp_path) == undisturbed["random"]


def test_the_lock_is_free_as_soon_as_its_owner_is_dead(jobs, undisturbed, tmp_path):
    first, status, output = jobs.start(tmp_path, (signal.SIGSTOP, 3, "update", ""))
    assert status == "stopped", output
    assert jobs.ask({"kill": first}) == (first, -getattr(signal, cases("dead owner")[0]))
    assert jobs.finish(tmp_path) == undisturbed["random"]
