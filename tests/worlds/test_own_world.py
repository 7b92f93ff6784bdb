"""A world of the user's own, from one file, and what all worlds keep."""

import json
import re
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest

from analysis.figures.style import category_colors
from analysis.tables.grid import categories_of
from magellan.config import resolve_run
from magellan.config.modules import load_modules
from magellan.core.errors import shown
from magellan.jobs.run import UNCHECKED, train
from magellan.pretraining import own_words
from magellan.worlds import WORLDS, Categories, Category, Episode, World, register_world
from magellan.worlds.base import describe
from magellan.worlds.episodes import Episodes
from tests.runs import refusal, refuses
from tests.snippets import write_files


@pytest.fixture
def module(tmp_path):
    return write_files("docs/extend.md", tmp_path)["my_world.py"]


@pytest.fixture
def doors(module):
    load_modules([module])
    return WORLDS["doors"]


def layer(module, **more):
    return {"modules": [module], "world": "doors", "goal_space": "30-10", **more}


def test_a_model_that_knows_other_words_is_refused(module, tmp_path):
    config = resolve_run("smoke", [layer(module)])
    words = f"does not know 'Open', in texts of world 'doors'.* --module {re.escape(module)} --out"
    refuses(words, train, config, tmp_path / "run", False, "none")
    assert not (tmp_path / "run").exists()


def test_a_world_that_names_no_texts_takes_any_model_and_logs_it(module, tmp_path):
    text = Path(module).read_text()
    nameless = text.replace("def texts(self)", "def other(self)")
    assert nameless != text
    Path(module).write_text(nameless)
    budget = {"episodes": 20, "evaluate_every": 20}
    train(resolve_run("smoke", [layer(module, budget=budget)]), tmp_path / "run", False, "none")
    assert (tmp_path / "run/run.log").read_text().count(UNCHECKED) == 1
    refuses("--world: 'doors' .* names no", own_words.write, WORLDS["doors"], tmp_path / "model")
    assert not (tmp_path / "model").exists()


SPACES = {
    "craft": "500-500-500-500-500",
    "digits": "36-28-40-40-40-40-40",
    "doors": "30-10",
    "little_zoo": "400-200-100-50-50",
    "simulated": "60-60-20-132-132",
}


@pytest.mark.parametrize("name", SPACES)
def test_goals_are_the_same_for_the_same_seed_and_known_by_code(doors, name):
    world = WORLDS[name]
    spaces = [*(world.goals(SPACES[name], 3) for _ in range(2)), world.unseen(20, 0)]
    prompts, repeated, others = ([*map(space.prompt, range(len(space)))] for space in spaces)
    goals = spaces[0]
    assert "-".join(map(str, goals.sizes.tolist())) == SPACES[name]
    assert prompts == repeated
    assert len(set(prompts)) > 0.99 * len(prompts)
    assert not set(prompts) & set(others)
    assert goals.positions_of(goals.indices).tolist() == list(range(len(goals)))
    assert goals.positions_of(np.array([10**9])).tolist() == [-1]


def test_its_goals_are_counted_and_described(doors):
    assert doors.unseen(99, 0).counts() == {"closed": 20, "locked": 20}
    assert "Example of locked" in describe(doors, "30-10", 0)


def test_its_environment_steps_and_leaves_alone(doors):
    env = doors.environment(3)
    goals = [{"number": number, "locked": number == 2} for number in range(3)]
    env.reset(seed=0, options={"goals": goals})
    wait, knock, push = range(3)
    assert env.step(np.array([push, -1, push]))[1].tolist() == [1, 0, 0]
    env.reset(options={"reset_mask": np.array([True, False, False]), "goals": [goals[2]]})
    assert "locked" in env.prompts()[0]
    assert env.step(np.array([knock, wait, knock]))[1].tolist() == [0, 0, 0]
    for _ in range(2):
        _, _, terminated, truncated, _ = env.step(np.array([wait, -1, wait]))
    assert truncated.tolist() == [False, False, True]
    assert not terminated.any()
    assert "action = 3: allowed are 0..2, or -1" in refusal(env.step, np.array([3, -1, -1]))
    words = "1 given, allowed is one for each of 3 resets"
    assert words in refusal(env.reset, options={"goals": goals[:1]})
    words = "goals: {'size': 5} is not allowed (missing a required argument: 'number')"
    assert words in refusal(env.reset, options={"goals": [goals[0], {"size": 5}, goals[2]]})
    assert "seed: -1 is not allowed" in refusal(env.reset, seed=-1, options={"goals": goals})


PLAYED = [name for name in WORLDS if not WORLDS[name].answer_tokens]


@pytest.mark.parametrize("name", [*PLAYED, "doors"])
def test_environments_go_on_from_their_state(doors, name):
    world = WORLDS[name]
    unseen = world.unseen(9, 0)
    goals = [unseen.goal(place) for place in range(len(unseen))]
    env, other = (world.environment(len(goals)) for _ in range(2))
    env.reset(seed=0, options={"goals": goals})

    def played(vector, seed):
        outputs, rng = [], np.random.default_rng(seed)
        for _ in range(25):
            counts = [len(possible) for possible in vector.possible_actions]
            _, rewards, terminated, truncated, _ = vector.step(rng.integers(counts))
            ended = terminated | truncated
            anew = [goal for goal, over in zip(goals, ended, strict=True) if over]
            vector.reset(options={"reset_mask": ended, "goals": anew})
            outputs.append((vector.prompts(), rewards.tolist(), ended.tolist()))
        return outputs

    played(env, 1)
    state = json.dumps(env.state_dict(), default=np.ndarray.tolist)
    other.load_state_dict(json.loads(state))
    assert json.dumps(other.state_dict(), default=np.ndarray.tolist) == state
    expected = played(env, 2)
    assert played(other, 2) == expected
    assert any(any(rewards) for _, rewards, _ in expected)


@pytest.mark.parametrize("name", [*PLAYED, "doors"])
def test_an_episode_that_has_ended_takes_no_step_until_it_is_reset(doors, name):
    goals = WORLDS[name].unseen(2, 0)
    env, first = WORLDS[name].environment(3), np.array([0, -1, -1])
    refusals = [refusal(env.step, np.zeros(3, int))]
    options = {"goals": [goals.goal(place) for place in range(3)]}
    strange = refusal(env.reset, options={"goals": ["Grasp water"] * 3})
    assert strange.startswith("goals: 'Grasp water' is not allowed; allowed: goals as ")
    if name != "little_zoo":  # which draws goals where none is given
        refusals.append(refusal(env.reset, options={**options, "reset_mask": first == 0}))
    env.reset(seed=0, options=options)
    ends = [[False], [False]]
    while not (ends[0][0] or ends[1][0]):
        _, _, *ends, _ = env.step(first)
    before = env.prompts(), repr(env.state_dict())
    for actions in ([0, -1, -1], [0, 0, 0]):  # the second: all or nothing
        refusals.append(refusal(env.step, np.array(actions)))
        assert (env.prompts(), repr(env.state_dict())) == before
    assert all("allowed" in message and "reset" in message for message in refusals)
    for actions in ([-1, -1, -1], [-1, 0, -1]):
        outcome = np.array(env.step(np.array(actions))[1:4])
        assert not outcome[:, np.array(actions) == -1].any()
    env.reset(options={"reset_mask": first == 0, "goals": [goals.goal(0)]})
    env.step(first)
    for bad in ([0], [99, -1, -1], [-2, -1, -1], [0.0, -1, -1], [[0, -1, -1]], [[0], [0, 1], 0]):
        assert "action" in refusal(env.step, bad)
    for key, value in (("goals", 5), ("goals", iter("a")), ("reset_mask", [[True], [True, False]])):
        assert re.match(f"{key}.* allowed", refusal(env.reset, options={key: value}))
    assert re.match(r"options: 5 is not allowed", refusal(env.reset, options=5))


@pytest.mark.parametrize("name", ["30", "101-1", "0-0", "30-x"])
def test_other_goal_spaces_are_refused(module, name):
    assert "goal_space" in refusal(resolve_run, "smoke", [layer(module, goal_space=name)])


KINDS = {
    "a name for two": ([Category("a"), Category("a")], None),
    "no feasible one": ([Category("a", feasible=False)], None),
    "label with marks": ([Category("a", label="$x$")], None),
    "a total for two": ([Category("a")], (3, 4)),
    "less than none": ([Category("a")], (-3,)),
    "no possible one": ([Category("a"), Category("b", feasible=False)], (0, 3)),
}


@pytest.mark.parametrize("kind", KINDS)
def test_categories_that_tables_cannot_hold_are_refused(kind):
    class Broken(World):
        name, label = "broken", "Broken"
        categories = Categories(KINDS[kind][0])
        parse = goals = unseen = environment = None

        def totals(self, split):
            return KINDS[kind][1]

    refuses(r"world broken: .*allowed", register_world, Broken)
    assert "broken" not in WORLDS


def test_a_manifest_lists_the_categories_of_a_world_that_is_not_registered():
    kinds = Categories([Category("never", feasible=False), Category("now"), Category("then")])
    world = {"name": "gone", "categories": [asdict(category) for category in kinds]}
    categories = categories_of({"config": {"world": "gone"}, "world": world})
    assert categories == kinds
    assert categories.feasible == ("now", "then")
    assert len(set(category_colors(categories).values())) == 3
    assert "does not list its categories" in refusal(categories_of, {"config": {"world": "gone"}})
    assert categories_of({"config": {}}) == WORLDS["little_zoo"].categories


@pytest.mark.parametrize("given", [None, 0.5, "yes"])
def test_an_episode_says_only_whether_its_goal_is_reached(given):
    class Odd(Episode):
        horizon = 2

        def prompt(self):
            return "Goal."

        def possible_actions(self):
            return ["Wait"]

        def act(self, action, rng):
            return given

    episodes = Episodes(1, Odd)
    episodes.reset(options={"goals": [{}]})
    refuses(f"^Odd.act: {re.escape(shown(given))} is not allowed", episodes.step, np.array([0]))
    episodes.episodes[0].place = [{"at": (0, 1)}]  # a checkpoint would make it a list
    refuses(r"^Odd.place: .* is not allowed; allowed: what a che", episodes.state_dict)
    Odd.possible_actions = lambda self: []
    refuses(r"^Odd.possible_actions: \[\] is not allowed", episodes.step, np.array([0]))
    for horizon in (0, 2.5, None):
        Odd.horizon = horizon
        refuses("^Odd.horizon: .* a whole number >= 1", episodes.reset, options={"goals": [{}]})
    Odd.horizon = 2
    Odd.__init__ = lambda self, seen=1: setattr(self, "seen", seen)
    for seen in ({1}, np.float32(0.1), np.array(["a"])):
        message = refusal(Episodes(2, Odd).reset, options={"goals": [{}, {"seen": seen}]})
        assert re.match(r"Odd.seen: .* is not allowed", message)
