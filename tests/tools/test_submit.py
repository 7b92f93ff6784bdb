"""`python -m magellan submit`: what keeps the contract gets a card, what breaks it is refused."""

import json
import shutil

import pytest
import yaml

from analysis.tables import store
from magellan.cli import main
from magellan.samplers import SAMPLERS
from magellan.samplers.conformance import GROUPS, SAME, track_of
from magellan.tools import submit
from tests.analysis.synthetic import combined, experiment
from tests.runs import error_line

GOOD = '''"""Goals in proportion to the square of their learning progress."""

from magellan.samplers import GoalSampler, register_sampler


{more}
@register_sampler("{name}", estimator="per_goal")
def build(parts, settings):
    """One window per goal."""
    return {kind}(parts.goals, parts.estimator, lambda a, b: (a - b) ** 2, parts.epsilon, parts.rng)
'''
PROBABILITIES = "\n    def probabilities(self):\n        return super().probabilities()"
BROKEN = {
    "probabilities sum to 1.001": f"{PROBABILITIES} * 1.001\n",
    "has probability": f"{PROBABILITIES}[::-1]\n",
    "state_dict is incomplete": """
    turns = 0

    def update(self, outcomes):
        super().update(outcomes)
        self.turns += 1

    def sample(self, n):
        return self.arms.draw_goals((super().sample(n) + self.turns) % len(self.arms), self._rng)

    def probabilities(self):
        import numpy as np
        return np.roll(super().probabilities(), self.turns)
""",
    "not all randomness is its stream's": """
    def sample(self, n):
        import numpy as np
        return np.random.default_rng().choice(len(self._goals), n, p=self.probabilities())
""",
}
READS_GROUPS = """
    def update(self, outcomes):
        self._goals.categories_at(outcomes.goals)
        super().update(outcomes)
"""


@pytest.fixture
def write(tmp_path):

    def written(name, own=None):
        path, kind = tmp_path / f"{name}.py", "Mine" if own else "GoalSampler"
        more = f"class Mine(GoalSampler):{own}" if own else ""
        path.write_text(GOOD.format(name=name, more=more, kind=kind))
        return path

    return written


def submitted(file, folder, *more):
    return main(["submit", str(file), "--output", str(folder), *map(str, more)])


def test_a_sampler_gets_a_card_that_its_file_is_checked_against(write, tmp_path, capsys):
    file, folder = write("squared"), tmp_path / "out"
    assert submitted(file, folder) == 0
    card = folder / "squared.json"
    found = json.loads(card.read_text())
    assert (found["sampler"], found["track"], found["runs"]) == ("squared", "same information", [])
    assert "square of their learning progress" in (folder / "squared.md").read_text()
    assert submitted(file, folder, "--check", card) == 0
    capsys.readouterr()
    run = {"seed": 21, "identity": "0" * 16, "success": 1.5, "seconds": 60.0}
    runs = [{**run, "estimation_episodes": 0}]
    for change, word in (({"contract": []}, "contract"), ({"runs": runs}, "success")):
        card.write_text(json.dumps(found | change))
        assert submitted(file, folder, "--check", card) == 2
        assert word in error_line(capsys)
    card.write_text(json.dumps(found))
    file.write_text(file.read_text().replace("** 2", "** 4"))
    assert submitted(file, folder, "--check", card) == 2
    assert "sha256" in error_line(capsys)


@pytest.mark.slow
def test_runs_stand_beside_those_that_are_committed(write, tmp_path, monkeypatch, capsys):
    """The study of all samplers in small; committed are made-up runs of two seeds."""
    declared = experiment(["random", "online"], goal_spaces=["40-20-12-8-8"])
    (tmp_path / "small.yaml").write_text(yaml.safe_dump(declared))
    store.write(combined(tmp_path / "made", ["random", "online"]), tmp_path / "reference")
    monkeypatch.setattr(submit, "EXPERIMENT", tmp_path / "small.yaml")
    monkeypatch.setattr(submit, "REFERENCE", tmp_path / "reference")
    file, folder = write("squared"), tmp_path / "out"
    assert submitted(file, folder, "--runs", 2) == 0
    found = json.loads((folder / "squared.json").read_text())
    assert [run["seed"] for run in found["runs"]] == [0, 1]
    assert {"`random`", "`online`", "`squared`"} <= set(found["compared"].split())
    assert submitted(file, folder, "--check", folder / "squared.json") == 0
    assert "2 runs, " in capsys.readouterr().out
    SAMPLERS.remove("squared")  # a pull request is looked at by another process
    there = folder / "submissions"
    there.mkdir()
    for path in (file, folder / "squared.json", folder / "squared.md"):
        shutil.copy(path, there)
    assert submitted(there / "squared.py", tmp_path, "--check", there / "squared.json") == 0


@pytest.mark.parametrize("said", BROKEN)
def test_what_breaks_the_contract_is_refused(write, tmp_path, capsys, said):
    file = write("broken", BROKEN[said])
    assert submitted(file, tmp_path / "out") == 2
    error = capsys.readouterr().err
    assert said in error
    assert error.count("\n") == 1
    assert not (tmp_path / "out").exists()


def test_a_sampler_that_reads_groups_is_among_those_that_are_given_them(write):
    assert track_of(submit.registered_by(write("groups", READS_GROUPS))) == GROUPS
    assert track_of(submit.registered_by(write("single"))) == SAME
