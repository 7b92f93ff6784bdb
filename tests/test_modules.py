"""User-defined sampler and estimator: files outside the package, named in a configuration."""

import hashlib
import json
import os

import pytest

from analysis.statistics.registry import STATISTICS
from magellan.cli import main
from magellan.config import beginning, own_code_of, resolve_run
from magellan.config.modules import forget_modules, load_modules
from magellan.curriculum import Curriculum
from magellan.jobs.run import train
from magellan.samplers import SAMPLERS
from magellan.training.loop import Trainer
from tests.runs import error_line, refusal, refuses
from tests.snippets import write_files


def test_a_rule_of_their_own_remembers(tmp_path):
    """Goal 0 succeeded, 1 failed, an update each ago; 2 was never tried in two: exp(log(1 + age) /
    .5) is (1 + age) ** 2, so weights 1, 4, 9."""
    load_modules([write_files("docs/extend.md", tmp_path)["my_sampler.py"]])
    settings = {"samplers": {"epsilon_start": 0.0, "epsilon_end": 0.0}}
    curriculum = Curriculum(["a", "b", "c"], "overdue", settings=settings)
    curriculum.update([0, 1], [1, 0])
    curriculum.update([], [])
    assert curriculum.probabilities() == pytest.approx([1 / 14, 4 / 14, 9 / 14])


def test_functions_of_this_package_under_another_name_are_the_files_own(tmp_path):
    path = tmp_path / "mine.py"
    path.write_text(
        "from analysis.statistics.registry import register_statistic\n"
        "from analysis.statistics.summaries import practice\n"
        "from magellan.samplers import learnability, register_sampler\n"
        "register_statistic('mine')(practice)\n"
        "register_sampler('mine', estimator='learned', explores='arms')(learnability.build)\n"
    )
    load_modules([str(path)])
    assert SAMPLERS["mine"].source == STATISTICS["mine"].source == str(path)
    forget_modules()
    assert "mine" not in {*SAMPLERS, *STATISTICS}


def test_a_check_names_files_and_runs_them_only_on_request(tmp_path, capsys):
    mine, run = tmp_path / "mine.py", tmp_path / "was_run"
    mine.write_text(f"open({str(run)!r}, 'w')")
    path = tmp_path / "theirs.yaml"
    path.write_text(f"experiment: a\npreset: smoke\nmodules: [{mine}]\n")
    assert main(["check", str(path)]) == 2
    error = error_line(capsys)
    assert not run.exists()
    assert error.startswith("error: modules: ")
    assert str(mine) in error
    assert "--run-modules" in error
    assert main(["check", str(path), "--run-modules"]) == 0
    assert run.exists()


BRINGS_ITS_ESTIMATOR = """
from magellan.competence.evaluated import EvaluatedBuckets, EvaluationSettings
from magellan.samplers import GoalSampler, register_sampler
from magellan.samplers.signals import learnability
@register_sampler('mine')
def build(parts, settings):
    estimator = EvaluatedBuckets(
        parts.goals, EvaluationSettings(every=40, episodes=4), parts.rng)
    return GoalSampler(
        parts.goals, estimator, learnability, parts.epsilon, parts.rng, arms='categories')
"""


def test_an_estimator_that_a_sampler_brings_itself_has_the_samplers_name(mine, tmp_path):
    mine.write_text(BRINGS_ITS_ESTIMATOR)
    manifest = train(run_of(mine), tmp_path / "run", False, "none")
    assert manifest["driver"] == "mine"
    assert manifest["estimation_episodes"] == {"mine": 5 * 4 * 3}
    assert b",mine,train,grasp," in (tmp_path / "run/competence.csv").read_bytes()


@pytest.mark.parametrize("slip", ["37.0 + now", "now * float('nan')", "now[1:]"])
def test_an_estimator_that_predicts_no_chances_is_refused_at_once(slip, mine, tmp_path):
    line = f"    estimator.predict = lambda goals, now: [{slip}] * 2\n"  # of the positions
    mine.write_text(BRINGS_ITS_ESTIMATOR.replace("    return", f"{line}    return"))
    says = "^estimator mine: competence: .*; allowed: now and delayed, one number from 0 to 1 for"
    refuses(says, train, run_of(mine), tmp_path / "run", False, "none")


MINE = """
from magellan.samplers import GoalSampler, register_sampler
from magellan.samplers.signals import learnability
@register_sampler('mine')
def build(parts, settings):
    return GoalSampler(parts.goals, None, learnability, parts.epsilon, parts.rng)
"""
FIGURE = """
from analysis.statistics.registry import register_figure
@register_figure('mine', label='Mine', section='Own', caption='Mine')
def draw(results, statistics, goal_space): ...
"""
OTHER = "# another\n"


def sha256(text):
    return hashlib.sha256(text.encode()).hexdigest()


@pytest.fixture
def mine(tmp_path):
    path = tmp_path / "mine.py"
    path.write_text(MINE)
    return path


def run_of(*files, **layer):
    named = {"modules": [str(path) for path in files], "goal_space": "40-20-12-8-8"}
    return resolve_run("smoke", [{"sampler": "mine", **named, **layer}])


def test_a_run_names_the_bytes_that_were_loaded(mine, tmp_path, monkeypatch):
    def advance(trainer, original=Trainer.advance):
        mine.write_text(OTHER)
        return original(trainer)

    monkeypatch.setattr(Trainer, "advance", advance)
    manifest = train(run_of(mine), tmp_path / "run", False, "none")
    assert manifest == json.loads((tmp_path / "run/manifest.json").read_text())
    begun = json.loads((tmp_path / "run/attempts.jsonl").read_text().splitlines()[0])
    for record in (manifest, *manifest["attempt_log"], begun):
        assert record["modules"] == {str(mine): sha256(MINE)}
    assert manifest["uses"] == {"sampler mine": str(mine)}


def test_what_is_run_is_what_was_read_even_where_an_earlier_version_was_compiled(tmp_path):
    path, output = tmp_path / "module.py", tmp_path / "output.txt"
    for number in (1, 2):  # of one size and one time, as an editor and a coarse clock leave them
        path.write_text(f"open({str(output)!r}, 'w').write('{number}')")
        os.utime(path, (1, 1))
        load_modules([str(path)])
        assert output.read_text() == str(number)


def test_checkpoints_of_another_version_are_refused(mine, tmp_path):
    """That of a run which is to go on, one that it has kept, and the start of another run."""
    layer = {"phases": [{"until": 20}, {"goals": {"split": "unseen"}}]}
    begun, run, keeping = tmp_path / "begun", tmp_path / "run", {"budget": {"keep_every": 100}}
    train(beginning(run_of(mine, **layer)), begun, False, "none")
    train(run_of(mine, **keeping), run, False, "none")
    mine.write_text(MINE + OTHER)
    has = f"with sampler mine has SHA-256 {sha256(MINE + OTHER)[:12]} here"
    words = (
        f"safetensors belongs to a run with another version of a file under modules: "
        f"{str(mine)!r} {has} and {sha256(MINE)[:12]} there; restore that version, or use another "
        "--output"
    )
    assert words in refusal(train, run_of(mine, **keeping), run, True, "none")
    (run / "checkpoints").rename(tmp_path / "away")
    message = refusal(train, run_of(mine, **keeping), run, True, "none")
    assert "run/100/checkpoints/00000001" in message
    message = refusal(train, run_of(mine, **layer), tmp_path / "new", False, "none", start=begun)
    assert has in message


def test_a_file_counts_where_a_run_uses_what_it_adds(mine, tmp_path):
    """Figures of a study and other samplers may change while its runs train."""
    figure, helper = tmp_path / "figure.py", tmp_path / "helper.py"
    figure.write_text(FIGURE)
    helper.write_text("import math\n")
    code = own_code_of(run_of(mine, figure, helper))
    other = own_code_of(run_of(mine, figure, helper, sampler="random"))
    assert set(code["modules"]) == set(other["modules"]) == set(map(str, (mine, figure, helper)))
    assert code["uses"] == {"sampler mine": str(mine), f"file {helper}": str(helper)}
    assert other["uses"] == {f"file {helper}": str(helper)}
