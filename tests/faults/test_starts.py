"""Faults in a run that starts where another one ended, or where it kept a checkpoint."""

import json
import shutil
import signal

import pytest

from magellan.config import beginning, resolve_run
from magellan.core.errors import InputError
from magellan.jobs.checkpoint import decode, encode
from magellan.jobs.run import train
from tests.faults.cases import FORGED_STARTS, cases
from tests.faults.conftest import config
from tests.runs import contents, tables

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


def damage(case, newest):
    """Do it; gives what the error says."""
    content = newest.read_bytes()
    if case == "bit":
        newest.write_bytes(content[:-50] + bytes([content[-50] ^ 4]) + content[-49:])
        return f"{newest} is damaged (its checksum is wrong)"
    newest.write_bytes(content[: len(content) // 2])
    return f"{newest} is damaged"


def spoil(case, first, jobs):
    """Do it; gives what the error says."""
    if case in ("bit", "cut"):
        return damage(case, max((first / "checkpoints").iterdir()))
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


def refused(jobs, run, words, output, more):
    """It ends with these words in one line, and leaves both folders as they were."""
    before = contents(run)
    _, status, said = jobs.start(output, sampler=SAMPLER, more=more)
    assert status == 2, said
    assert said.startswith("error: --start: ")
    assert words in said
    assert said.count("\n") == 1
    assert contents(run) == before
    assert not list(output.glob("*"))


@pytest.mark.parametrize("case", cases("damaged start"))
def test_a_start_that_cannot_be_used(case, jobs, first, tmp_path):
    words = spoil(case, first, jobs)
    refused(jobs, first, words, tmp_path / "r", started(first))


# --- where a longer run kept a checkpoint --------------------------------------------------------

POINT = 20
LATER = [{"until": POINT}, {"goals": {"split": "unseen"}}]
KEEPING = {"keep_every": POINT}
KEEPS = ("--set", f"budget.keep_every={POINT}")


def from_kept(run):
    return ("--start", str(run / str(POINT)), "--set", f"phases={json.dumps(LATER)}")


@pytest.fixture(scope="module")
def whole_later(tmp_path_factory):
    """Tables of the run in one go."""
    folder = tmp_path_factory.mktemp("whole")
    train(config(SAMPLER, phases=LATER), folder, resume=False, progress="none")
    return tables(folder)


@pytest.fixture(scope="module")
def went_on(tmp_path_factory):
    """Folder of a run that went on where the first phase ends, and kept a checkpoint there."""
    folder = tmp_path_factory.mktemp("long")
    train(config(SAMPLER, budget=KEEPING), folder, resume=False, progress="none")
    return folder


@pytest.fixture
def long(went_on, tmp_path):
    """A copy that a test may spoil."""
    return shutil.copytree(went_on, tmp_path / "long")


@pytest.mark.parametrize("step", cases("kill while it keeps"))
def test_killed_while_it_keeps_a_checkpoint(step, jobs, whole_later, tmp_path):
    kill = (signal.SIGKILL, 1, step, f"/{POINT}/checkpoints/")
    long = tmp_path / "long"
    _, status, said = jobs.resume(long, kill, sampler=SAMPLER, more=KEEPS)
    assert status == -signal.SIGKILL, said
    assert not list((long / str(POINT)).rglob("*.safetensors"))
    _, status, said = jobs.resume(long, sampler=SAMPLER, more=KEEPS)
    assert status == 0, said
    _, status, said = jobs.start(tmp_path / "r", sampler=SAMPLER, more=from_kept(long))
    assert status == 0, said
    assert tables(tmp_path / "r") == whole_later


def test_killed_after_a_start_from_a_kept_checkpoint(jobs, whole_later, long, tmp_path):
    before = contents(long)
    for steps in cases("kill after a kept start"):
        kill = (signal.SIGKILL, steps, "", "")
        _, status, said = jobs.resume(tmp_path / "r", kill, sampler=SAMPLER, more=from_kept(long))
        assert status == -signal.SIGKILL, said
    _, status, said = jobs.resume(tmp_path / "r", sampler=SAMPLER, more=from_kept(long))
    assert status == 0, said
    assert tables(tmp_path / "r") == whole_later
    assert contents(long) == before
    manifest = json.loads((tmp_path / "r" / "manifest.json").read_text())
    assert manifest["started_from"]["at"] == POINT


def spoil_kept(case, long):
    """Do it; gives what the error says."""
    kept = long / str(POINT)
    if case in ("bit", "cut"):
        return damage(case, next((kept / "checkpoints").iterdir()))
    if case == "removed":
        shutil.rmtree(kept)
        return f"{kept} holds no checkpoint; {long} keeps none"
    if case == "renamed":
        shutil.rmtree(kept)
        earlier = config(SAMPLER, budget={"keep_every": POINT // 2})
        train(earlier, long / "again", resume=False, progress="none")
        shutil.move(long / "again" / str(POINT // 2), kept)
        return f"{kept} was kept at {POINT // 2} episodes"
    shutil.rmtree(long)
    train(config("random", budget=KEEPING), long, resume=False, progress="none")
    return "sampler is 'magellan' here and 'random' there"


@pytest.mark.parametrize("case", cases("damaged kept start"))
def test_a_kept_checkpoint_that_cannot_be_used(case, jobs, long, tmp_path):
    words = spoil_kept(case, long)
    refused(jobs, long, words, tmp_path / "r", from_kept(long))


@pytest.mark.parametrize(("of", "case"), cases("forged start"))
def test_a_forged_start_is_one_clear_error(of, case, request, tmp_path):
    run = request.getfixturevalue("first" if of == "ended" else "long")
    phases, start = (PHASES, run) if of == "ended" else (LATER, run / str(POINT))
    newest = max((start / "checkpoints").iterdir())
    metadata, state = decode(newest)
    (*way, last), value = FORGED_STARTS[case][0].split("/"), FORGED_STARTS[case][1]
    inner = state
    for key in way:
        inner = inner[key]
    inner[last] = value
    whole = resolve_run("smoke", [json.loads(metadata["config"])])
    newest.write_bytes(encode(state, 1, whole, metadata["backbone"]))
    before, later = contents(run), config(SAMPLER, phases=phases)
    with pytest.raises(InputError) as caught:
        train(later, tmp_path / "r", resume=False, progress="none", start=start)
    assert str(caught.value).startswith(f"--start: {start} ")
    assert "does not fit" in str(caught.value) or "is not allowed" in str(caught.value)
    assert contents(run) == before
    assert not list((tmp_path / "r").glob("*"))
