"""Faults in a run that starts where another one ended."""

import json
import shutil
import signal

import pytest

from magellan.config import beginning
from magellan.training.run import train
from tests.faults.cases import cases
from tests.faults.conftest import config, contents, tables

PHASES = [{"until": 15}, {"goals": {"split": "unseen"}}]
WITH_PHASES = ("--set", f"phases={json.dumps(PHASES)}")
SAMPLER = "magellan"


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """Tables of the run in one go."""
    folder = tmp_path_factory.mktemp("whole")
    train(config(SAMPLER, phases=PHASES), folder, resume=False, progress="none")
    return tables(folder)


@pytest.fixture(scope="module")
def ended(tmp_path_factory):
    """Folder of its first phase."""
    folder = tmp_path_factory.mktemp("first")
    train(beginning(config(SAMPLER, phases=PHASES)), folder, resume=False, progress="none")
    return folder


@pytest.fixture
def first(ended, tmp_path):
    """A copy that a test may spoil."""
    return shutil.copytree(ended, tmp_path / "first")


def started(folder):
    return ("--start", str(folder), *WITH_PHASES)


def test_killed_after_a_start(jobs, whole, first, tmp_path):
    before = contents(first)
    for steps in cases("kill after a start"):
        kill = (signal.SIGKILL, steps, "", "")
        _, status, said = jobs.resume(tmp_path / "r", kill, sampler=SAMPLER, more=started(first))
        assert status == -signal.SIGKILL, said
    _, status, said = jobs.resume(tmp_path / "r", sampler=SAMPLER, more=started(first))
    assert status == 0, said
    assert tables(tmp_path / "r") == whole
    assert contents(first) == before
    manifest = json.loads((tmp_path / "r" / "manifest.json").read_text())
    assert manifest["started_from"]["checkpoint"] == max((first / "checkpoints").iterdir()).name


@pytest.mark.parametrize("case", cases("start gone"))
def test_what_a_run_started_from_is_needed_once(case, jobs, whole, first, tmp_path):
    kill = (signal.SIGKILL, 80, "", "")
    _, status, said = jobs.resume(tmp_path / "r", kill, sampler=SAMPLER, more=started(first))
    assert status == -signal.SIGKILL, said
    assert list((tmp_path / "r" / "checkpoints").glob("*.safetensors"))
    shutil.rmtree(first)
    _, status, said = jobs.resume(tmp_path / "r", sampler=SAMPLER, more=started(first))
    assert status == 0, said
    assert tables(tmp_path / "r") == whole


def spoil(case, first, jobs):
    """Do it; gives what the error says."""
    newest = max((first / "checkpoints").iterdir())
    content = newest.read_bytes()
    if case == "bit":
        newest.write_bytes(content[:-50] + bytes([content[-50] ^ 4]) + content[-49:])
        return f"{newest} is damaged (its checksum is wrong)"
    if case == "cut":
        newest.write_bytes(content[: len(content) // 2])
        return f"{newest} is damaged"
    if case == "removed":
        shutil.rmtree(first / "checkpoints")
        return f"{first} holds no checkpoint"
    shutil.rmtree(first)
    if case == "another run":
        train(beginning(config("random", phases=PHASES)), first, resume=False, progress="none")
        return "sampler is 'magellan' here and 'random' there"
    kill = (signal.SIGKILL, 80, "", "")
    _, status, said = jobs.resume(
        first, kill, sampler=SAMPLER, more=("--set", "budget.episodes=15")
    )
    assert status == -signal.SIGKILL, said
    return f"the run in {first} has not ended"


@pytest.mark.parametrize("case", cases("damaged start"))
def test_a_start_that_cannot_be_used(case, jobs, first, tmp_path):
    words = spoil(case, first, jobs)
    before = contents(first)
    _, status, said = jobs.start(tmp_path / "r", sampler=SAMPLER, more=started(first))
    assert status == 2, said
    assert said.startswith("error: --start: ")
    assert words in said
    assert said.count("\n") == 1
    assert contents(first) == before
    assert not list((tmp_path / "r").glob("*"))
