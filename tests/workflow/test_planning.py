"""What Snakemake would do, and what it refuses; nothing is run here."""

import hashlib
import json
import re
import shutil
from pathlib import Path

import pytest
import yaml

from magellan.config import load_experiment, parse_assignment
from tests.analysis import synthetic
from tests.analysis.synthetic import PLAIN_FIGURES
from tests.workflow.conftest import ROOT, Project
from workflow.planning import Plan, checked_experiment, files_of_smollm2

DEFAULT = {"experiment": "default", "preset": "reference", "samplers": ["random"]}
DRAWN = {f"draw_{name}": 1 for name in PLAIN_FIGURES}


def test_a_plain_call_plans_the_default_grid_with_the_default_profile(project):
    default = (ROOT / "config/config.yaml").read_text()
    (project / "config/config.yaml").write_text(default)
    experiment = load_experiment(yaml.safe_load(default))
    runs = len(experiment.samplers) * len(experiment.goal_spaces) * len(experiment.seeds)
    assert "profiles/default" in project.snakemake("-n").stdout
    once = dict.fromkeys(("combine", "statistics", "summary"), 1)
    assert project.planned() == {"train": runs, **once, **DRAWN}


def plan(**changes):
    return Plan(load_experiment({**DEFAULT, **changes}))


@pytest.mark.slow
def test_another_config_file_stands_alone(project):
    # A key that only the default file has must not leak into another experiment.
    with (project / "config/config.yaml").open("a") as file:
        file.write("overrides:\n  budget:\n    episodes: 123456\n")
    (project / "mine.yaml").write_text("experiment: mine\nsamplers: [random]\n")
    text = project.run("-n", "-p", "--configfile", "mine.yaml")
    assert "results/mine/runs/random" in text
    assert "123456" not in text
    assert project.planned("--configfile", "mine.yaml")["train"] == 2
    assert "budget.episodes=123456" in project.snakemake("-n", "-p").stdout


def test_the_plan_warns_of_runs_of_another_version_of_a_module(tmp_path, monkeypatch):
    """One of them is there, and what is trained now would be refused beside it."""
    samplers = ["random", "online"]
    declared = synthetic.experiment(preset="reference", samplers=samplers)
    synthetic.write_runs(tmp_path / "results/default", declared, episodes=2_000)
    monkeypatch.chdir(tmp_path)
    Path("helper.py").write_text("import math\n")
    grid = {"goal_spaces": [synthetic.GOAL_SPACE], "seeds": [0, 1], "samplers": samplers}
    complete, lost, *_ = plan(**grid).grid
    shutil.rmtree(Path("results/default") / lost.path)
    path = Path("results/default") / complete.path / "manifest.json"
    manifest = json.loads(path.read_text()) | {"uses": {"file helper.py": "helper.py"}}
    now = hashlib.sha256(b"import math\n").hexdigest()
    path.write_text(json.dumps(manifest | {"modules": {"helper.py": "a" * 64}}))
    warning = plan(**grid, modules=["helper.py"]).before()
    assert warning.startswith("warning: modules: ")
    assert (
        "1 of 4 runs are complete and were made with another version of 'helper.py' (file "
        f"helper.py had SHA-256 {'a' * 12}, now {now[:12]}): sampler 'random'" in warning
    )
    path.write_text(json.dumps(manifest | {"modules": {"helper.py": now}}))
    assert plan(**grid, modules=["helper.py"]).before() == ""


def test_the_plan_warns_of_a_variant_without_runs():
    variants = {"a": {}, "b": {"backbone": {"passes": "torch"}}, "c": {"agent": {"gamma": 0.9}}}
    line = "warning: variants.b: has no runs, as they would equal those of an earlier one"
    assert plan(variants=variants).before() == line


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("experiment", "reference", "experiment: .*its results folder is reserved"),
        ("results", "Snakefile/x", "results: .*Not a directory"),
        ("results", "x" * 300, "results: .*File name too long"),
        ("results", "TMP/link/x", "results: .*No such file or directory"),
        ("modules", ["TMP/b{1}.py"], r".*b\{1\}.py: braces in this path are not allowed"),
    ],
)
def test_bad_configuration_is_one_clear_line(key, value, words, monkeypatch, tmp_path):
    monkeypatch.chdir(ROOT)
    (tmp_path / "link").symlink_to("nothing")
    (tmp_path / "b{1}.py").touch()
    value = json.loads(json.dumps(value).replace("TMP", str(tmp_path)))
    with pytest.raises(SystemExit, match=f"^error: {words}[^\n]*$"):
        checked_experiment({**DEFAULT, key: value}, [], {})


def test_an_empty_mapping_does_not_empty_that_of_the_file(monkeypatch):
    monkeypatch.chdir(ROOT)
    values, given = {**DEFAULT, "variants": {"a": {}}}, {"variants": {}}
    with pytest.raises(SystemExit, match=r"^error: --config: variants: {} is not allowed, as "):
        checked_experiment(values, [], given)
    assert checked_experiment({**DEFAULT, "variants": {}}, [], given)


def test_two_experiments_are_not_merged(project):
    """Keys of the first file would leak into the second, whose runs get another identity."""
    (project / "a.yaml").write_text("experiment: a\noverrides: {agent: {gamma: 0.5}}\n")
    (project / "b.yaml").write_text("experiment: b\nsamplers: [random]\n")
    line = project.refused("-n", "--configfile", "a.yaml", "b.yaml")
    assert re.match(
        r"error: --configfile: \S*a.yaml \S*b.yaml are not allowed together: each", line
    )
    (project / "a.yaml").write_text("seeds: [3]\npreset: smoke\n")
    assert project.planned("--configfile", "b.yaml", "a.yaml")["train"] == 1


def test_braces_in_the_path_of_the_clone_are_one_line(tmp_path):
    folder = tmp_path / "b {1}"
    folder.mkdir()
    line = Project.copied(folder).refused("-n")
    assert line == (
        f"error: {folder}: braces in this path are not allowed: Snakemake takes them for wildcards"
    )


def test_a_narrower_experiment_has_no_old_outputs(tmp_path, monkeypatch):
    """Only what Snakemake has made goes; a note of the user stays, whatever folder it is in."""
    monkeypatch.chdir(tmp_path)
    wide = plan(goal_spaces=["500", "2500"])
    names = {*wide.figures(), "results/default/statistics/mine.csv"}
    notes = {"results/default/figures/2.5k/notes.txt", "results/default/figures/notes.txt"}
    for name in names | notes:
        Path(name).parent.mkdir(parents=True, exist_ok=True)
        Path(name).touch()
    assert wide.remove_old_outputs(names.__contains__).endswith("statistics/mine.csv")
    assert wide.remove_old_outputs(names.__contains__) == ""
    narrow = plan(goal_spaces=["500"])
    said = narrow.remove_old_outputs(names.__contains__)
    gone = {name for name in wide.figures() if name not in narrow.figures()}
    assert gone
    assert all(name in said and not Path(name).exists() for name in gone)
    assert all(Path(name).exists() for name in {*narrow.figures(), *notes})
    Path("results/default/figures/2.5k/notes.txt").unlink()
    narrow.remove_old_outputs(names.__contains__)
    assert not Path("results/default/figures/2.5k").exists()


def test_malformed_yaml_is_named_with_its_line(project):
    (project / "config/config.yaml").write_text("experiment: mine\nseeds: [0, 1\npreset: smoke\n")
    line = project.refused("-n")
    assert "config/config.yaml" in line
    assert "line 3" in line


@pytest.mark.slow
def test_a_model_that_is_not_there_yet_is_made_once_before_the_runs(project, monkeypatch):
    monkeypatch.setenv("MAGELLAN_BACKBONES", "models/a b")
    call = ("--config", "samplers=[random]", "overrides={backbone: {model: smollm2-135m}}")
    planned = project.planned(*call)
    assert (planned["wheel"], planned["backbone_smollm2"], planned["train"]) == (1, 1, 2)
    # A stand-in: nobody reads it here.
    shutil.copytree(project / "magellan/backbones/zoo-mini", project / "models/a b/smollm2-135m")
    planned = project.planned(*call)
    assert planned["train"] == 2
    assert not {"wheel", "backbone_smollm2"} & planned.keys()


def test_a_path_of_any_signs_reaches_the_run():
    experimenter = {"experimenter": {"transcript": 'é\\"\U0001f600.jsonl'}}
    whole = plan(overrides=experimenter)
    *_, word = whole.train_arguments(whole.grid[0], None)
    assert parse_assignment(word) == experimenter


def test_only_runs_that_name_it_wait_for_a_made_model(monkeypatch):
    monkeypatch.setenv("MAGELLAN_BACKBONES", "models")
    weights = files_of_smollm2()[0]
    assert weights == "models/smollm2-135m/model.safetensors"
    for model, files in (("smollm2-135m", [weights]), ("zoo-mini", [])):
        whole = plan(overrides={"backbone": {"model": model}})
        assert whole.backbone_files(whole.grid[0]) == files
    monkeypatch.setenv("MAGELLAN_BACKBONES", "models/a{x}b")
    with pytest.raises(SystemExit, match=r"^error: MAGELLAN_BACKBONES: 'models/a{x}b"):
        files_of_smollm2()


@pytest.mark.slow
def test_modules_are_relative_to_the_file_that_names_them_and_its_log_reaches_each_run(project):
    """Beside the experiment file, wherever it lies; on the command line relative to the caller."""
    (project / "mine").mkdir()
    (project / "mine/helper.py").write_text("")
    text = "experiment: mine\nmodules: [helper.py]\nlog: tensorboard\n"
    (project / "mine/mine.yaml").write_text(text)
    text = project.run("-n", "-p", "--configfile", "mine/mine.yaml")
    assert " --module mine/helper.py " in text
    assert " --log tensorboard " in text
    call = ("-n", "--configfile", "mine/mine.yaml", "--config", "modules=[helper.py]")
    assert "error: modules: 'helper.py' is missing" in project.snakemake(*call).stdout


def test_the_command_at_the_end_repeats_what_was_given(monkeypatch):
    monkeypatch.setattr("workflow.planning.finding_of", lambda folder: {"told": []})
    monkeypatch.setattr("workflow.planning.terminal", lambda summary, folder, commands: commands)
    given = {"seeds": ["0"], "experiment": "foo", "goal_spaces": None, "allow_incomplete": True}
    words = """--config 'seeds=["0"]' experiment=foo goal_spaces= allow_incomplete=true --report """
    files = ["mine.yaml", "more.yaml"]  # of two options Snakemake takes the last
    assert f"snakemake --configfile mine.yaml more.yaml {words}" in plan().after(files, given)
