"""Agents from folders of runs: which checkpoint counts, and what is refused in one line."""

import re
import shutil

import pytest

from magellan.cli import main
from magellan.config import resolve_run
from magellan.config.modules import load_modules
from magellan.jobs import export, run
from magellan.jobs.checkpoint import Checkpoints, decode
from magellan.jobs.export import agent_files, write_agent
from magellan.jobs.folder import check_folder
from magellan.jobs.trained import TrainedAgent
from magellan.training.loop import Trainer
from tests.faults.test_checkpoints import cut
from tests.runs import contents, error_line, forge
from tests.snippets import write_files
from tests.tools.conftest import config


@pytest.fixture
def refusal(capsys, tmp_path):
    """Export, embed and watch a run; returns the one line with which all refuse it."""

    def refuse(folder):
        before, lines, output = contents(folder), set(), ("--output", str(tmp_path / "out"))
        for command, more in (("export", output), ("embed", output), ("watch", ())):
            assert main([command, str(folder), *more]) == 2
            lines.add(re.sub(r" \(\w+\);", ";", error_line(capsys)))  # without Python's name for it
        assert contents(folder) == before
        assert not (tmp_path / "out").exists()
        (line,) = lines
        return line

    return refuse


def exported(folder, tmp_path, capsys, *more):
    """Output of the command, and the folder it leaves."""
    assert main(["export", str(folder), "--output", str(tmp_path / "out"), *more]) == 0
    return capsys.readouterr().out, tmp_path / "out"


def card(folder):
    return (folder / "README.md").read_text()


@pytest.mark.slow
def test_the_folder_beside_the_tables_is_the_export(complete, tmp_path, capsys):
    before = contents(complete)
    printed, out = exported(complete, tmp_path, capsys)
    files, expected = contents(out), contents(complete / export.FOLDER)
    own, other = (f"agent = {str(folder)!r}" for folder in (out, complete / export.FOLDER))
    files["README.md"] = files["README.md"].replace(own.encode(), other.encode())
    assert files == expected
    assert contents(complete) == before
    assert ", complete) in" in printed
    assert "not complete" not in card(out)
    assert "agent/" in (complete / "run.log").read_text()


def test_a_damaged_checkpoint_gives_way_and_is_left_alone(tmp_path, capsys):
    folder, trainer = tmp_path / "run", Trainer(config())
    folder.mkdir()
    for _ in range(2):
        for _ in range(10):
            trainer.advance()
        Checkpoints(folder, config()).save({"trainer": trainer.state_dict()})
    newest = folder / "checkpoints/00000002.safetensors"
    newest.write_bytes(newest.read_bytes()[:-9])
    before = contents(folder)
    printed, out = exported(folder, tmp_path, capsys)
    _, state = decode(folder / "checkpoints/00000001.safetensors")
    files = agent_files(config(), state["trainer"], TrainedAgent.read(folder).exported_by, out)
    assert f"damaged, using an older one: {newest}\n" in printed
    assert (out / "heads.safetensors").read_bytes() == files["heads.safetensors"]
    assert contents(folder) == before


def only_checkpoint(folder):
    *older, path = sorted((folder / "checkpoints").iterdir())  # more than one on a slow machine
    for one in older:
        one.unlink()
    return path


def test_another_backbone(spoiled, refusal):
    _, state = decode(only_checkpoint(spoiled))
    path = Checkpoints(spoiled, config(), "0" * 64).save(state)
    assert f"{path}: the agent was trained on another backbone" in refusal(spoiled)


FORGED = [("backend", None), ("backend/sac/critic/*", cut), ("updates", True)]


@pytest.mark.slow
@pytest.mark.parametrize(("where", "value"), FORGED)
def test_a_forged_agent_is_one_line(where, value, spoiled, refusal):
    path = only_checkpoint(spoiled)
    forge(path, f"trainer/{where}", value)
    assert refusal(spoiled).startswith(f"error: {path} does not fit this version of the code; ")


def test_files_of_the_user_are_named_again_or_not_run(tmp_path, refusal, capsys):
    module = write_files("docs/extend.md", tmp_path)["my_world.py"]
    layer = {"modules": [module], "world": "doors", "goal_space": "30-10", "sampler": "random"}
    backbone = {"passes": "torch", "model": str(tmp_path / "model")}
    from magellan.pretraining import own_words
    from magellan.worlds import WORLDS

    load_modules([module])
    own_words.write(WORLDS["doors"], tmp_path / "model")
    capsys.readouterr()  # a bar of the library
    settings = resolve_run("smoke", [layer, {"backbone": backbone}])
    folder = tmp_path / "run"
    Checkpoints(folder, settings).folder.parent.mkdir()
    Checkpoints(folder, settings).save({"trainer": Trainer(settings).state_dict()})
    line = refusal(folder)
    assert "name them with --module if you trust them" in line
    _, out = exported(folder, tmp_path, capsys, "--module", module)
    assert "not been evaluated yet" in card(out)
    assert "competence" not in card(out)  # the agent has no estimator
    left = {"policy", "critic_target", "heads.safetensors", "README.md"}
    assert {path.name for path in out.iterdir()} == left
    assert main(["watch", str(folder), "--module", module]) == 0
    printed = capsys.readouterr().out
    assert "Takes: " in printed
    assert "competence" not in printed
    words = ["--goal", "Open it", "--objects", "door"]
    assert main(["watch", str(folder), "--module", module, *words]) == 2
    line = capsys.readouterr().err
    assert re.match(r"error: --goal: 'Open it' is not allowed: world 'doors' reads no", line)


@pytest.mark.parametrize("kind", ["link", "partial"])
def test_an_output_that_is_in_use(kind, complete, tmp_path, capsys):
    if kind == "link":
        (tmp_path / "disk").mkdir()
        (tmp_path / "out").symlink_to(tmp_path / "disk")
    else:
        (tmp_path / "out.part").mkdir()
    before = sorted(tmp_path.rglob("*"))
    assert main(["export", str(complete), "--output", str(tmp_path / "out")]) == 2
    assert re.match(r"error: --output: \S+ ", capsys.readouterr().err)
    assert sorted(tmp_path.rglob("*")) == before


def test_no_link_in_an_agent_is_followed(spoiled, tmp_path, capsys):
    place, theirs = spoiled / "agent/policy", tmp_path / "theirs"
    theirs.mkdir()
    (theirs / "precious").write_text("theirs")
    shutil.rmtree(place)
    place.symlink_to(theirs)
    with pytest.raises(ValueError, match=f"--output: {place} is a symbolic link; allowed"):
        check_folder(spoiled)
    assert main(["watch", str(spoiled)]) == 2
    assert f"error: run: {place} is a symbolic link" in capsys.readouterr().err
    (tmp_path / "agent").symlink_to(theirs)  # put there later
    with pytest.raises(RuntimeError, match=r"cannot be written \(.*symbolic link"):
        write_agent(tmp_path / "agent", {"README.md": b""})
    assert [path.name for path in theirs.iterdir()] == ["precious"]


def test_an_older_agent_and_a_half_written_one_give_way(spoiled):
    expected = contents(spoiled / "agent")  # a copy: its card names the folder that it is of
    original = re.search(rb"^agent = '(.*)'$", expected["README.md"], re.MULTILINE)[1]
    copy = str(spoiled / "agent").encode()
    expected["README.md"] = expected["README.md"].replace(original, copy)
    (spoiled / "manifest.json").unlink()
    (spoiled / "agent/policy/adapter_model.safetensors").write_bytes(b"old")
    shutil.copytree(spoiled / "agent", spoiled / "agent.part")
    run.train(config(export=True), spoiled, resume=True, progress="none")
    assert contents(spoiled / "agent") == expected
    assert not (spoiled / "agent.part").exists()
