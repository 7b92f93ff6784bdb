"""A user's own sampler and estimator: files outside the package, named in a configuration."""

import json

import pytest

from magellan.competence import ESTIMATORS
from magellan.config import counted, grid, load_experiment, resolve_run
from magellan.errors import InputError
from magellan.modules import load_modules
from magellan.samplers import SAMPLERS
from magellan.training.run import train
from tests.snippets import write_files


@pytest.fixture
def files(tmp_path):
    """Both files of docs/extending.md; what they add is forgotten afterwards."""
    paths = write_files("docs/extending.md", tmp_path)
    yield [paths["my_estimator.py"], paths["my_sampler.py"]]
    SAMPLERS.remove("sharp")
    ESTIMATORS.remove("counts")


def test_both_are_named_in_an_experiment_with_constants_of_their_own(files):
    values = {
        "preset": "smoke",
        "modules": files,
        "samplers": ["random", "sharp"],
        "goal_spaces": ["40-20-12-8-8"],
        "overrides": {"observers": ["counts"]},
        "variants": {
            "plain": {},
            "soft": {"sharp": {"power": 0.5}},
            "wide": {"counts": {"prior": 9}},
        },
        "seeds": [0],
    }
    runs = grid(load_experiment(values))
    assert [(run.sampler, run.variant) for run in runs] == [
        ("random", "plain"),
        ("random", "wide"),
        ("sharp", "plain"),
        ("sharp", "soft"),
        ("sharp", "wide"),
    ]
    assert runs[3].config.sharp.power == 0.5


def test_a_run_of_theirs_trains_resumes_and_says_what_it_was(files, tmp_path):
    layer = {"modules": files, "sampler": "sharp", "goal_space": "40-20-12-8-8"}
    manifest = train(resolve_run("smoke", [layer]), tmp_path / "run", False, "none")
    assert manifest["driver"] == "counts"
    assert manifest["counted"]["sampler"] == "sharp"
    assert set(manifest["modules"]) == set(files)
    first = (tmp_path / "run/competence.csv").read_bytes()
    assert b",counts,unseen,grasp," in first
    train(resolve_run("smoke", [layer]), tmp_path / "run", True, "none")
    assert (tmp_path / "run/competence.csv").read_bytes() == first


def test_a_sampler_of_another_name_gets_the_learned_estimator(tmp_path):
    """It asks for `learned` by name: before, it got none and trained as `random`."""
    path = tmp_path / "mine.py"
    path.write_text(
        "from magellan.samplers import GoalSampler, register_sampler\n"
        "from magellan.samplers.signals import learnability\n"
        "@register_sampler('mine', estimator='learned')\n"
        "def build(parts, settings):\n"
        "    epsilon, rng = parts.epsilon, parts.rng\n"
        "    return GoalSampler(parts.goals, parts.estimator, learnability, epsilon, rng)\n"
    )
    try:
        layer = {"modules": [str(path)], "sampler": "mine", "goal_space": "40-20-12-8-8"}
        manifest = train(resolve_run("smoke", [layer]), tmp_path / "run", False, "none")
    finally:
        SAMPLERS.remove("mine")
    assert manifest["driver"] == "learned"
    assert b",learned,train,grasp," in (tmp_path / "run/competence.csv").read_bytes()


def test_an_estimator_that_a_sampler_brings_itself_is_known_by_its_name(tmp_path):
    path = tmp_path / "own.py"
    path.write_text(
        "from magellan.competence.evaluated import EvaluatedBuckets, EvaluatedBucketsSettings\n"
        "from magellan.samplers import GoalSampler, register_sampler\n"
        "from magellan.samplers.signals import absolute_learning_progress\n"
        "@register_sampler('own')\n"
        "def build(parts, settings):\n"
        "    estimator = EvaluatedBuckets(\n"
        "        parts.goals, EvaluatedBucketsSettings(every=40, episodes=4), parts.rng)\n"
        "    return GoalSampler(parts.goals, estimator, absolute_learning_progress,\n"
        "                       parts.epsilon, parts.rng, arms='categories')\n"
    )
    try:
        layer = {"modules": [str(path)], "sampler": "own", "goal_space": "40-20-12-8-8"}
        manifest = train(resolve_run("smoke", [layer]), tmp_path / "run", False, "none")
    finally:
        SAMPLERS.remove("own")
    assert manifest["driver"] == "own"
    assert manifest["estimation_episodes"] == {"own": 5 * 4 * 3}
    assert b",own,train,grasp," in (tmp_path / "run/competence.csv").read_bytes()


BROKEN = {
    "no Python": ("def (", "SyntaxError"),
    "fails": ("1 / 0", "ZeroDivisionError"),
    "a name that is taken": (
        "from magellan.samplers import register_sampler\n"
        "@register_sampler('magellan')\ndef build(parts, settings): ...\n",
        "sampler: name 'magellan' is taken by",
    ),
    "a malformed name": (
        "from magellan.samplers import register_sampler\n"
        "@register_sampler('My Sampler')\ndef build(parts, settings): ...\n",
        "name 'My Sampler' is not allowed",
    ),
}


@pytest.mark.parametrize("case", BROKEN)
def test_a_broken_file_is_named_and_leaves_nothing(case, tmp_path):
    text, words = BROKEN[case]
    path = tmp_path / "broken.py"
    path.write_text(text)
    before = list(SAMPLERS), list(ESTIMATORS)
    with pytest.raises(InputError) as caught:
        load_modules([str(path)])
    assert words in str(caught.value)
    assert "modules: " in str(caught.value)
    assert (list(SAMPLERS), list(ESTIMATORS)) == before


def test_a_sampler_that_names_an_unknown_estimator_is_refused(tmp_path):
    path = tmp_path / "lost.py"
    path.write_text(
        "from magellan.samplers import register_sampler\n"
        "@register_sampler('lost', estimator='nowhere')\ndef build(parts, settings): ...\n"
    )
    with pytest.raises(InputError, match="lost: estimator: 'nowhere' is unknown"):
        resolve_run("smoke", [{"modules": [str(path)], "sampler": "lost"}])
    assert "lost" not in SAMPLERS


def test_where_a_module_lies_does_not_count(files):
    layer = {"modules": files, "sampler": "sharp"}
    assert "modules" not in json.dumps(counted(resolve_run("smoke", [layer])))
