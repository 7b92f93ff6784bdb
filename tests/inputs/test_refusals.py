"""Every bad input of `cases` is refused in one line, and nothing is written."""

import json

import pytest

import analysis.__main__
import magellan.cli
from magellan.config import resolve_run
from magellan.worlds.little_zoo.goals import parse_goal_space
from tests.analysis import synthetic
from tests.inputs import cases
from tests.snippets import ROOT, contents

ZOO_MINI = ROOT / "magellan/backbones/zoo-mini"
SMALL = ["train", "--preset", "smoke", "--goal-space", "8-4-2-1-1", "--progress", "none"]


@pytest.fixture
def refused(capfd, monkeypatch):
    """Run a command line and check its one-line error."""

    def run(main, arguments, *words):
        monkeypatch.chdir(ROOT)
        assert main([str(argument) for argument in arguments]) == 2
        out, err = capfd.readouterr()
        assert (out, err.count("\n"), err[-1]) == ("", 1, "\n"), err
        assert err.startswith("error: ")
        missing = [word for part in words for word in part.split(" | ") if word not in err]
        assert not missing, f"{missing} not in {err}"

    return run


def case_of(mapping):
    """Parametrise by the cases of a mapping, named by their truncated keys."""
    return pytest.mark.parametrize("case", mapping, ids=lambda case: case[:60])


@case_of(cases.EXPERIMENTS)
def test_experiment_file(case, tmp_path, refused):
    path = tmp_path / "experiment.yaml"
    path.write_text(cases.unescaped(case) + "\n")
    words = cases.EXPERIMENTS[case]
    refused(magellan.cli.main, ["check", path, "--run-modules"], words)


@case_of(cases.RUNS)
def test_run_configuration(case, tmp_path, refused):
    arguments = [*SMALL, "--output", tmp_path / "run", *cases.arguments_of_train(case)]
    refused(magellan.cli.main, arguments, cases.RUNS[case])
    assert not (tmp_path / "run").exists()


@case_of(cases.COMMANDS)
def test_command_line(case, tmp_path, refused):
    arguments = [tmp_path / "out" if word == "OUT" else word for word in cases.arguments(case)]
    refused(magellan.cli.main, arguments, cases.COMMANDS[case])
    assert not (tmp_path / "out").exists()


@case_of(cases.ANALYSIS_COMMANDS)
def test_command_line_of_the_analysis(case, places, tmp_path, refused):
    named = {**places, "OUT": tmp_path / "out"}
    before = contents(places["SOURCE"])

    def placed(word):
        name, *rest = word.split("/")
        return str(named[name].joinpath(*rest)) if name in named else word

    words = map(placed, cases.ANALYSIS_COMMANDS[case].split(" | "))
    refused(analysis.__main__.main, map(placed, cases.arguments(case)), *words)
    assert not (tmp_path / "out").exists()
    assert contents(places["SOURCE"]) == before


@case_of(cases.TABLES | cases.MANIFESTS)
def test_combined_tables(case, places, spoiled, tmp_path, refused):
    folder = spoiled(places["TABLES"], (cases.TABLES | cases.MANIFESTS)[case])
    before = contents(folder)
    refused(analysis.__main__.main, ["statistics", folder, tmp_path / "out"], case)
    assert not (tmp_path / "out").exists()
    assert contents(folder) == before


@case_of(cases.RUN_FOLDERS)
def test_run_folder(case, places, spoiled, tmp_path, refused):
    good = places["RUNS"]
    declared = json.dumps(synthetic.experiment(("random", "magellan")))
    folders = [*good[1:], spoiled(good[0], cases.RUN_FOLDERS[case])]
    arguments = ["combine", *folders, "--experiment", declared, "--output", tmp_path / "out"]
    refused(analysis.__main__.main, arguments, case)
    assert not (tmp_path / "out").exists()


@case_of(cases.OUTPUTS)
def test_folder_to_train_in(case, tmp_path, refused):
    folder = tmp_path / "run"
    (folder / "checkpoints").mkdir(parents=True)
    cases.OUTPUTS[case](folder)
    before = contents(folder)
    refused(magellan.cli.main, [*SMALL, "--output", folder], case)
    assert contents(folder) == before


@case_of(cases.BACKBONE_FILES | cases.BACKBONE_MODELS)
def test_backbone(case, spoiled, tmp_path, refused):
    model = spoiled(ZOO_MINI, (cases.BACKBONE_FILES | cases.BACKBONE_MODELS)[case])
    arguments = [*SMALL, "--output", tmp_path / "run", "--set", f"backbone.model={model}"]
    refused(magellan.cli.main, arguments, "backbone.model | allowed", str(model)[:40], case)
    if case in cases.BACKBONE_FILES:
        assert not (tmp_path / "run").exists()
    assert not contents(tmp_path / "run")


@pytest.mark.parametrize(("files", "model", "words"), cases.BACKBONE_NAMES)
def test_name_of_a_backbone(files, model, words, tmp_path, refused, monkeypatch):
    for name, data in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(data)
    monkeypatch.setenv("MAGELLAN_BACKBONES", str(tmp_path / "made"))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    arguments = [*SMALL, "--output", tmp_path / "run", "--set", f"backbone.model={model}"]
    refused(magellan.cli.main, arguments, "backbone.model | allowed", words)
    assert not (tmp_path / "run").exists()


def test_unspoiled_inputs_are_accepted(places, tmp_path):
    """The cases are refused for their changes; without them they pass."""
    tables, out = places["TABLES"], tmp_path / "out"
    assert analysis.__main__.main(["statistics", str(tables), str(out)]) == 0
    assert len(list(out.iterdir())) > 5
    resolve_run("smoke", [{"backbone": {"model": str(ZOO_MINI)}}])
    assert sum(parse_goal_space("8-4-2-1-1")) == 16
