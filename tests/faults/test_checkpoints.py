"""Damaged, truncated or foreign checkpoint files; interrupted or failed saves."""

import re
import shutil

import numpy as np
import pytest
import torch
from safetensors.torch import load, save

from magellan.config import resolve_run
from magellan.core.errors import InputError, StorageError
from magellan.jobs import checkpoint
from magellan.jobs.checkpoint import VERSION, Checkpoints
from magellan.jobs.run import train
from magellan.model.files import check_backbone
from tests.faults.cases import FORGED, SAVE_CALLS, cases
from tests.faults.conftest import config, struck
from tests.faults.injection import Killed, install, os_error
from tests.runs import contents, forge, metadata_of, refusal, signed, tables
from tests.snippets import raising


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


def killed_at_update_5(run, folder) -> None:
    """Train until a kill."""
    with struck(raising(Killed()), 5, "update"), pytest.raises(Killed):
        train(run, folder, resume=False, progress="none")


def number_of(checkpoints: Checkpoints) -> int:
    """Number of the loaded state, after checking its content."""
    loaded = checkpoints.load().state
    expected = state(loaded["number"])
    assert str(loaded) == str(expected)
    assert torch.equal(loaded["weights"]["a"], expected["weights"]["a"])
    assert np.array_equal(loaded["rows"], expected["rows"])
    return loaded["number"]


def test_the_last_two_are_kept(saved):
    assert [path.name for path in saved.paths()] == ["00000002.safetensors", "00000003.safetensors"]
    assert number_of(saved) == 3


@pytest.mark.parametrize(("nth", "call"), cases("end in save"))
def test_a_save_that_ends_half_way_loses_nothing(nth, call, saved):
    with struck(raising(Killed()), nth) as strike, pytest.raises(Killed):
        saved.save(state(4))
    assert strike.seen >= nth
    # A checkpoint counts only after its rename.
    assert number_of(saved) == (3 if nth <= SAVE_CALLS.index("replace") + 1 else 4)
    saved.remove_partial()
    saved.save(state(5))
    assert number_of(saved) == 5
    assert all(path.suffix == ".safetensors" for path in saved.folder.iterdir())


def test_a_save_makes_exactly_these_calls(saved, monkeypatch):
    seen = []
    install(lambda call, file: seen.append(call), monkeypatch.setattr)
    saved.save(state(4))
    assert tuple(seen) == SAVE_CALLS


@pytest.mark.parametrize(("name", "nth"), cases("error in save"))
def test_a_save_that_fails_loses_nothing(name, nth, saved):
    error = os_error(name)
    with struck(raising(error), nth), pytest.raises(StorageError) as caught:
        saved.save(state(4))
    assert str(saved.folder) in str(caught.value)
    assert error.strerror in str(caught.value)
    assert number_of(saved) == (3 if nth <= SAVE_CALLS.index("replace") + 1 else 4)
    assert not list(saved.folder.glob("*.part"))


def check_falls_back(checkpoints: Checkpoints, content: bytes) -> None:
    """With this content, the newest is set aside and the one before it is used."""
    before, newest = checkpoints.paths()
    newest.write_bytes(content)
    loaded = checkpoints.load()
    assert (loaded.path, list(loaded.damaged)) == (before, [newest])
    assert newest.read_bytes() == content  # looking changes nothing
    assert checkpoints.set_aside(loaded) == f"{newest.name}.damaged"
    assert number_of(checkpoints) == 2
    assert newest.with_name(f"{newest.name}.damaged").read_bytes() == content
    checkpoints.save(state(4))
    assert number_of(checkpoints) == 4


def flipped(content: bytes, where: float) -> bytes:
    """With one wrong bit; half of the cases hit the header."""
    changed = bytearray(content)
    end = len(content) if where < 0.5 else 8 + int.from_bytes(content[:8], "little")
    changed[int(where * end)] ^= 1 << int(where * 1e6) % 8
    return bytes(changed)


FOREIGN = {
    "text": b"not a checkpoint\n" * 100,
    "zeros": bytes(100_000),
    "json": b'{"state": {}}',
    "other safetensors": save({"weight": torch.zeros(3)}, {"format": "pt"}),
}


@pytest.mark.parametrize("case", cases("damage"))
def test_a_damaged_or_foreign_file_is_noticed(case, saved):
    content = saved.paths()[-1].read_bytes()
    if isinstance(case, str):
        content = FOREIGN[case]
    else:
        content = content[:case] if isinstance(case, int) else flipped(content, case)
    check_falls_back(saved, content)


@pytest.mark.parametrize(
    "forgery",
    [
        *({"version": version} for version in ("2", "c", "")),  # as by a wrong bit
        *({"state": tree} for tree in ("[" * 100_000, '{"a": {"__tensor__": "b"}}')),
    ],
)
def test_forged_metadata_is_damage(forgery, saved):
    content = saved.paths()[-1].read_bytes()
    metadata, tensors = {**metadata_of(content), **forgery}, load(content)
    check_falls_back(
        saved, signed(metadata, tensors) if "state" in forgery else save(tensors, metadata)
    )


@pytest.mark.parametrize("version", cases("other format"))
def test_another_format_is_refused_and_not_called_damaged(version, saved, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(checkpoint, "VERSION", version)
        patch.setattr(checkpoint, "_CHECKED", ("version", "state"))
        saved.save(state(4))
    before = contents(saved.folder)
    newest = saved.paths()[-1]
    with pytest.raises(InputError, match=f"^--resume: {newest} has format version {version};"):
        saved.load()
    with pytest.raises(InputError, match=rf"allowed: {VERSION}; .* move {saved.folder} away"):
        train(config(), saved.folder.parent, resume=True, progress="none")
    assert contents(saved.folder) == before


@pytest.mark.parametrize("case", cases("other backbone"))
def test_another_backbone_under_the_same_name_is_refused(case, tmp_path):
    model, folder = tmp_path / "model", tmp_path / "run"
    shutil.copytree(check_backbone("zoo-mini"), model)
    settings = config(backbone={"model": str(model)})
    first = train(settings, folder, resume=False, progress="none")["backbone"]["sha256"]
    if case == "weights":
        weights = load((model / "model.safetensors").read_bytes())
        weights["model.norm.weight"] *= 2
        (model / "model.safetensors").write_bytes(save(weights, {"format": "pt"}))
    else:
        tokenizer = (model / "tokenizer.json").read_text()
        swapped = tokenizer.replace('" cow"', '"X"').replace('" lion"', '" cow"')
        (model / "tokenizer.json").write_text(swapped.replace('"X"', '" lion"'))
    before = contents(folder)
    line = refusal(train, settings, folder, resume=True, progress="none")
    assert line.startswith(f"--resume: {folder}/checkpoints/")
    assert f" here and '{model}' with {first[:12]} there" in line
    assert contents(folder) == before


@pytest.mark.parametrize("number", cases("all damaged"))
def test_when_none_is_whole_all_are_named_and_kept(number, saved):
    for path in saved.paths()[: 2 - number]:
        path.unlink()
    for path in saved.paths():
        path.write_bytes(path.read_bytes()[:-5])
    before = contents(saved.folder)
    line = refusal(saved.load)
    assert all(f"{path} is damaged" in line for path in saved.paths())
    assert contents(saved.folder) == before


@pytest.mark.parametrize(("agent", "listed"), cases("foreign run"))
def test_a_run_with_another_configuration_names_the_keys(agent, listed, saved):
    saved.paths()[-1].write_bytes(b"")  # also if the newest is damaged
    before = contents(saved.folder)
    line = refusal(train, config(agent=agent), saved.folder.parent, resume=True, progress="none")
    assert "another configuration" in line
    assert listed in line
    assert contents(saved.folder) == before


def test_equal_values_are_no_reason_to_refuse(tmp_path):
    """The estimator's constants count only for its sampler; the other run has them too."""
    layer = {"goal_space": "40-8-4-2-2"}
    with_estimator, without = (
        resolve_run("smoke", [{**layer, "sampler": name}]) for name in ("magellan", "random")
    )
    Checkpoints(tmp_path, with_estimator).save(state(1))
    line = refusal(Checkpoints(tmp_path, without).load)
    values = re.findall(r"\S+ is (\S+) here and ([^\s,;]+) there", line)
    assert values
    assert all(here != there for here, there in values)


@pytest.mark.parametrize("case", cases("damaged run"))
def test_a_run_goes_on_past_a_damaged_checkpoint(case, undisturbed, tmp_path, capsys):
    killed_at_update_5(config(), tmp_path)
    before, newest = Checkpoints(tmp_path, config()).paths()
    content = bytearray(newest.read_bytes())
    content[len(content) // 2] ^= 1
    newest.write_bytes(content)
    train(config(), tmp_path, resume=True, progress="none")
    assert tables(tmp_path) == undisturbed["random"]
    warning = f"the newest checkpoint is damaged: kept as {newest.name}.damaged, continuing from"
    assert f"warning: {warning} {before.name}" in capsys.readouterr().err
    assert warning in (tmp_path / "run.log").read_text()


RICH = config(
    "magellan", observers=["per_goal"], budget={"record_goals": True, "record_outcomes": True}
)


@pytest.fixture(scope="module")
def halfway(tmp_path_factory):
    """Folder of an interrupted MAGELLAN run."""
    folder = tmp_path_factory.mktemp("halfway")
    killed_at_update_5(RICH, folder)
    return folder


def forged(halfway, folder, where, value):
    """The newest checkpoint of a copy, with another value at a place in it."""
    shutil.copytree(halfway, folder, dirs_exist_ok=True)
    path = Checkpoints(folder, RICH).paths()[-1]
    forge(path, f"trainer/{where}", value)
    return path


@pytest.mark.slow
@pytest.mark.parametrize("case", cases("forged"))
def test_a_forged_state_is_one_clear_error(case, halfway, tmp_path):
    path = forged(halfway, tmp_path, *FORGED[case])
    before = contents(tmp_path)
    line = refusal(train, RICH, tmp_path, resume=True, progress="none")
    assert line.startswith(f"--resume: {path}")
    assert line.endswith("move the checkpoints away to start over")
    assert contents(tmp_path) == before


def test_a_state_with_its_own_values_goes_on(halfway, tmp_path):
    there, whole = tmp_path / "there", tmp_path / "whole"
    forged(halfway, there, "collector/positions", lambda old: old)
    for folder in (there, whole):
        train(RICH, folder, resume=True, progress="none")
    assert tables(there) == tables(whole)
