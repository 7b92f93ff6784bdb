"""Damaged, truncated or foreign checkpoint files; interrupted or failed saves."""

import random
import re
import shutil

import numpy as np
import pytest
import torch
from safetensors.torch import save

from magellan.core.errors import StorageError
from magellan.jobs import checkpoint
from magellan.jobs.checkpoint import VERSION, Checkpoints
from magellan.model import tokenizers
from magellan.model.files import check_backbone, model_digest
from tests.faults.conftest import Killed, config, install, os_error, refused, struck
from tests.faults.promises import INTACT, SAME, UNTOUCHED, fault, listed
from tests.runs import forge, stopped, trained
from tests.snippets import raising

SAVE_CALLS = ("open", "write", "fsync", "close", "replace", "open", "fsync", "close", "unlink")
EACH_CALL = range(1, len(SAVE_CALLS) + 1)
FILES = ("config.json", "tokenizer_config.json", "model.safetensors")
ERRNOS = ("ENOSPC", "EDQUOT", "EROFS", "EACCES", "EIO")


def state(number: int) -> dict:
    """A state with one value of each type, and its number."""
    return {
        "number": number,
        "floats": [0.1, float("nan")],
        "weights": {"a": torch.full((50, 70), number / 3), "scalar": torch.tensor(0.5)},
        "half": torch.full((3,), number, dtype=torch.bfloat16),
        "rows": np.arange(number * 1000).reshape(-1, 10),
        "flags": np.array([True, False]),
        "none": np.zeros((0, 4)),
    }


@pytest.fixture
def saved(tmp_path) -> Checkpoints:
    checkpoints = Checkpoints(tmp_path, config())
    for number in (1, 2, 3):
        checkpoints.save(state(number))
    return checkpoints


def number_of(checkpoints: Checkpoints) -> int:
    """Number of the loaded state, after checking its content."""
    loaded = checkpoints.load().state
    expected = state(loaded["number"])
    torch.testing.assert_close(loaded, expected, rtol=0, atol=0, equal_nan=True)
    return loaded["number"]


def test_a_save_makes_exactly_these_calls(saved, monkeypatch):
    seen = []
    install(lambda call, file: seen.append(call), monkeypatch.setattr)
    saved.save(state(4))
    assert tuple(seen) == SAVE_CALLS


WHOLE = "the old or the new checkpoint, whole"
listed(WHOLE, "the process ends at any system call of a save", EACH_CALL)
listed(INTACT, "a system call of a save fails: disk full, no rights, I/O error", EACH_CALL)


@pytest.mark.parametrize("error", [Killed(), *map(os_error, ERRNOS)])
@pytest.mark.parametrize("nth", EACH_CALL)
def test_a_save_that_ends_half_way_loses_nothing(nth, error, saved):
    """A checkpoint counts only after its rename."""
    with struck(raising(error), nth), pytest.raises((Killed, StorageError)) as caught:
        saved.save(state(4))
    assert number_of(saved) == (3 if nth <= SAVE_CALLS.index("replace") + 1 else 4)
    if isinstance(error, OSError):
        assert str(saved.folder) in str(caught.value)
        assert error.strerror in str(caught.value)
    else:
        saved.remove_partial()
    assert all(path.suffix == ".safetensors" for path in saved.folder.iterdir())
    saved.save(state(5))
    assert number_of(saved) == 5


def flipped(content: bytes, where: float) -> bytes:
    """With one wrong bit; half of the cases hit the header."""
    changed = bytearray(content)
    end = len(content) if where < 0.5 else 8 + int.from_bytes(content[:8], "little")
    changed[int(where * end)] ^= 1 << int(where * 1e6) % 8
    return bytes(changed)


ASIDE = "noticed, set aside, the one before is used"
DAMAGE = [
    *(random.Random(seed).random() for seed in range(3)),  # place of a wrong bit
    *(0, 7, 1000, -1),  # length of what is left
    pytest.param(bytes(100_000), id="zeros"),
    pytest.param(save({"weight": torch.zeros(3)}, {"format": "pt"}), id="another file"),
]


@fault(ASIDE, "the newest checkpoint has a wrong bit, is cut or another file", "case", DAMAGE)
def test_a_damaged_or_foreign_file_is_noticed(case, saved):
    before, newest = saved.paths()
    good = newest.read_bytes()
    content = flipped(good, case) if isinstance(case, float) else case
    content = good[:case] if isinstance(case, int) else content
    newest.write_bytes(content)
    loaded = saved.load()
    assert (loaded.path, list(loaded.damaged)) == (before, [newest])
    assert newest.read_bytes() == content  # looking changes nothing
    assert saved.set_aside(loaded) == f"{newest.name}.damaged"
    assert number_of(saved) == 2
    assert newest.with_name(f"{newest.name}.damaged").read_bytes() == content
    saved.save(state(4))
    assert number_of(saved) == 4


@fault(UNTOUCHED, "checkpoint of an older or newer version", "version", ("3", "1000"))
def test_another_format_is_refused_and_not_called_damaged(version, saved, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(checkpoint, "VERSION", version)
        patch.setattr(checkpoint, "_CHECKED", ("version", "state"))
        saved.save(state(4))
    line = refused(config(), saved.folder.parent)
    words = f"{saved.paths()[-1]} has format version {version}; allowed: {VERSION}; continue with"
    assert words in line


@fault(UNTOUCHED, "the backbone's files have changed", "name", FILES)
def test_another_backbone_under_the_same_name_is_refused(name, tmp_path):
    model = shutil.copytree(check_backbone("zoo-mini"), tmp_path / "model")
    folder, settings = tmp_path / "run", config(backbone={"model": str(model)})
    first = model_digest(model)
    Checkpoints(folder, settings, first).save({})
    content = (model / name).read_bytes()
    other = content[:-1] + bytes([content[-1] ^ 1]) if name == FILES[-1] else content + b" "
    (model / name).write_bytes(other)
    assert f" here and '{model}' with {first[:12]} there" in refused(settings, folder)


@fault(UNTOUCHED, "no checkpoint is whole", "number", [2])
def test_when_none_is_whole_all_are_named_and_kept(number, saved):
    assert len(saved.paths()) == number
    for path in saved.paths():
        path.write_bytes(path.read_bytes()[:-5])
    line = refused(config(), saved.folder.parent)
    assert all(f"{path} is damaged" in line for path in saved.paths())


@fault(UNTOUCHED, "checkpoint of another configuration", "gamma", [0.5])
def test_a_run_with_another_configuration_names_the_keys(gamma, saved):
    saved.paths()[-1].write_bytes(b"")  # also if the newest is damaged
    agent = {"gamma": gamma, "n_step": 2, "polyak": 0.5, "batch_size": 8}
    line = refused(config(agent=agent), saved.folder.parent)
    assert "another configuration: agent." in line
    assert "agent.gamma is 0.5 here and 0.99 there" in line
    assert " and 1 more;" in line


def killed(run, folder):
    with struck(raising(Killed()), 5, "update_policy"), pytest.raises(Killed):
        trained(run, folder)
    return folder


@fault(SAME, "the newest checkpoint of a run is damaged", "where", [0.4])
def test_a_run_goes_on_past_a_damaged_checkpoint(where, goes_on, tmp_path, capsys):
    before, newest = Checkpoints(killed(config(), tmp_path), config()).paths()
    newest.write_bytes(flipped(newest.read_bytes(), where))
    goes_on(tmp_path)
    warning = f"the newest checkpoint is damaged: kept as {newest.name}.damaged, continuing from"
    assert f"warning: {warning} {before.name}" in capsys.readouterr().err
    assert warning in (tmp_path / "run.log").read_text()


RICH = config(
    "magellan", observers=["per_goal"], budget={"record_goals": True, "record_outcomes": True}
)


def fill(value):
    return lambda old: old.clone().fill_(value)


def cut(old):
    return old[:-1].contiguous()


# One for each part of a run: path below the trainer's state, and another value, or a function of
# the tensor there. The first window of the collector stands for all.
FORGED = {
    "collector/windows/*/action": 99,
    "collector/positions": fill(10**6),
    "collector/env/elapsed": cut,
    "replay/fields/discounts": lambda old: old.double(),
    "backend/sac/optimizers/joint": 3,
    "backend/competence/snapshots": {},
    "sampler/estimator/snapshots/1": fill(float("nan")),
    "estimators/observers/per_goal/seen": fill(-1),
    "record/tables/practice/0": [0] * 20,
    "pending": [{"goals": [10**6], "success": [1.0]}],
}


@pytest.fixture(scope="module")
def halfway(tmp_path_factory):
    return killed(RICH, tmp_path_factory.mktemp("halfway"))


@pytest.mark.slow
@fault(UNTOUCHED, "a value of a checkpoint is changed, with its checksum", "where", FORGED)
def test_a_forged_state_is_one_clear_error(where, halfway, tmp_path):
    path = Checkpoints(shutil.copytree(halfway, tmp_path / "run"), RICH).paths()[-1]
    forge(path, f"trainer/{where}", FORGED[where])
    line = refused(RICH, tmp_path / "run")
    assert line.startswith(f"--resume: {path}")
    assert line.endswith("move the checkpoints away to start over")


def test_what_another_library_has_read_is_not_continued(tmp_path):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tokenizers, "digest", lambda _: "a" * 64)
        stopped(config(), tmp_path)
    line = refused(config(), tmp_path)
    assert re.search(r"safetensors was made with other token ids: .* SHA-256 a{12} there", line)
