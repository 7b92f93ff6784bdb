"""Every bad input of `cases` is refused in one line, and nothing is written."""

import json

import pytest

import analysis.__main__
import magellan.cli
from magellan.config import RunConfig, resolve_run
from magellan.core.errors import InputError
from magellan.worlds.little_zoo.goals import parse_goal_space
from tests.analysis import synthetic
from tests.inputs import cases
from tests.inputs.conftest import ROOT

ZOO_MINI = ROOT / "magellan/backbones/zoo-mini"
SMALL = ["train", "--preset", "smoke", "--goal-space", "8-4-2-1-1", "--progress", "none"]


@pytest.fixture
def refusal(capfd, monkeypatch):
    """Run a command line; gives the one line with which it is refused."""

    def run(main, arguments):
        monkeypatch.chdir(ROOT)
        assert main([str(argument) for argument in arguments]) == 2
        out, err = capfd.readouterr()
        assert out == ""
        assert err.count("\n") == 1, err
        assert err.endswith("\n")
        assert err.startswith("error: ")
        return err

    return run


def assert_says(line, words):
    missing = [word for word in words if word not in line]
    assert not missing, f"{missing} not in {line}"


def files_in(folder):
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("case", cases.EXPERIMENTS)
def test_experiment_file(case, tmp_path, refusal):
    text, words = cases.EXPERIMENTS[case]
    path = tmp_path / "experiment.yaml"
    path.write_text(text)
    assert_says(refusal(magellan.cli.main, ["check", path, "--run-modules"]), words)


@pytest.mark.parametrize("case", cases.RUNS)
def test_run_configuration(case, tmp_path, refusal):
    arguments, words = cases.RUNS[case]
    line = refusal(magellan.cli.main, [*SMALL, "--output", tmp_path / "run", *arguments])
    assert_says(line, words)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("case", cases.RUN_FILES)
def test_file_of_a_run(case, tmp_path, refusal):
    content, words = cases.RUN_FILES[case]
    path = tmp_path / "run.yaml"
    path.write_bytes(content)
    arguments = ["train", "--preset", "smoke", "--output", tmp_path / "run", "--config", path]
    assert_says(refusal(magellan.cli.main, arguments), words)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("name", cases.GOAL_SPACES)
def test_goal_space(name, tmp_path, refusal):
    words = ("goal_space", repr(name), *cases.GOAL_SPACES[name])
    assert_says(refusal(magellan.cli.main, ["goals", f"--size={name}"]), words)
    arguments = ["train", f"--goal-space={name}", "--output", tmp_path / "run"]
    assert_says(refusal(magellan.cli.main, arguments), words)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("case", cases.COMMANDS)
def test_command_line(case, tmp_path, refusal):
    arguments, words = cases.COMMANDS[case]
    arguments = [tmp_path / "out" if word == "OUT" else word for word in arguments]
    assert_says(refusal(magellan.cli.main, arguments), words)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("case", cases.ANALYSIS_COMMANDS)
def test_command_line_of_the_analysis(case, places, tmp_path, refusal):
    arguments, words = cases.ANALYSIS_COMMANDS[case]
    found = {**places, "OUT": tmp_path / "out"}
    before = files_in(places["SOURCE"])

    def placed(word):
        name, *rest = word.split("/")
        return found[name].joinpath(*rest) if name in found else word

    line = refusal(analysis.__main__.main, [placed(word) for word in arguments])
    assert_says(line, [str(placed(word)) for word in words])
    assert not (tmp_path / "out").exists()
    assert files_in(places["SOURCE"]) == before


@pytest.mark.parametrize(
    ("kind", "case"),
    [
        *(("TABLES", case) for case in cases.TABLES),
        *(("MANIFESTS", case) for case in cases.MANIFESTS),
    ],
)
def test_combined_tables(kind, case, places, spoiled, tmp_path, refusal):
    change, words = getattr(cases, kind)[case]
    folder = spoiled(places["TABLES"], change)
    before = files_in(folder)
    line = refusal(analysis.__main__.main, ["statistics", folder, tmp_path / "out"])
    assert_says(line, words)
    assert not (tmp_path / "out").exists()
    assert files_in(folder) == before


@pytest.mark.parametrize("case", cases.RUN_FOLDERS)
def test_run_folder(case, places, spoiled, tmp_path, refusal):
    change, words = cases.RUN_FOLDERS[case]
    good = places["RUNS"]
    declared = json.dumps(synthetic.experiment(("random", "magellan")))
    arguments = ["combine", *good[1:], spoiled(good[0], change), "--experiment", declared]
    line = refusal(analysis.__main__.main, [*arguments, "--output", tmp_path / "out"])
    assert_says(line, words)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("case", cases.OUTPUTS)
def test_folder_to_train_in(case, tmp_path, refusal):
    change, arguments, words = cases.OUTPUTS[case]
    folder = tmp_path / "run"
    (folder / "checkpoints").mkdir(parents=True)
    change(folder)
    before = files_in(folder)
    assert_says(refusal(magellan.cli.main, [*SMALL, "--output", folder, *arguments]), words)
    assert files_in(folder) == before


@pytest.mark.parametrize("case", cases.BACKBONE_FILES)
def test_files_of_a_backbone(case, spoiled, tmp_path, refusal):
    change, words = cases.BACKBONE_FILES[case]
    model = spoiled(ZOO_MINI, change)
    arguments = [*SMALL, "--output", tmp_path / "run", "--set", f"backbone.model={model}"]
    line = refusal(magellan.cli.main, arguments)
    assert_says(line, ("backbone.model", str(model)[:40], "allowed", *words))
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("case", cases.BACKBONE_MODELS)
def test_model_of_a_backbone(case, spoiled, tmp_path, refusal):
    change, words = cases.BACKBONE_MODELS[case]
    model = spoiled(ZOO_MINI, change)
    arguments = [*SMALL, "--output", tmp_path / "run", "--set", f"backbone.model={model}"]
    line = refusal(magellan.cli.main, arguments)
    assert_says(line, ("backbone.model", str(model)[:40], "allowed", *words))
    assert not files_in(tmp_path / "run")


@pytest.mark.parametrize("case", cases.BACKBONE_NAMES)
def test_name_of_a_backbone(case, tmp_path, refusal, monkeypatch):
    files, model, words = cases.BACKBONE_NAMES[case]
    for name, data in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(data)
    monkeypatch.setenv("MAGELLAN_BACKBONES", str(tmp_path / "made"))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    arguments = [*SMALL, "--output", tmp_path / "run", "--set", f"backbone.model={model}"]
    assert_says(refusal(magellan.cli.main, arguments), ("backbone.model", "allowed", *words))
    assert not (tmp_path / "run").exists()


def test_unspoiled_inputs_are_accepted(places, tmp_path):
    """The cases are refused for what was changed, not for what they start from."""
    tables, out = places["TABLES"], tmp_path / "out"
    assert analysis.__main__.main(["statistics", str(tables), str(out)]) == 0
    assert len(list(out.iterdir())) > 5
    config = resolve_run("smoke", [{"backbone": {"model": str(ZOO_MINI)}}])
    assert isinstance(config, RunConfig)
    assert sum(parse_goal_space("8-4-2-1-1")) == 16
    with pytest.raises(InputError):
        parse_goal_space("8-4-2-1")
