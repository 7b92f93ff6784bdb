"""The environments: checker, seeds, options, errors, vector against single, saving, recordings.

Episodes of the reference environment are replayed: every string and flag must be the same. By
default the committed sample; LITTLEZOO_TRACES=<folder> replays all *.jsonl.gz of a folder.
"""

import gzip
import json
import os
import warnings
from collections import Counter
from itertools import permutations
from pathlib import Path

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from gymnasium.wrappers.vector import DictInfoToList

from magellan.worlds import WORLDS
from magellan.worlds.little_zoo import Goal, LittleZoo, LittleZooVector
from magellan.worlds.little_zoo.dynamics import START_ON_OBJECT
from magellan.worlds.little_zoo.env import draw_start
from magellan.worlds.little_zoo.vocabulary import KIND_OF, KINDS, display_name
from tests.runs import refusal

LION = {"goal": "Grow lion", "objects": ["lion", "water", "cow", "carrot"], "standing_on": -1}
LION_GOAL = Goal("Grow lion", ("lion", "water", "cow", "carrot"), "grow_carnivore")
WATERED = ("Go to water", "Grasp", "Go to carrot seed", "Release water")
GROW_LION = (*WATERED, "Go to baby cow", "Grasp", "Go to carrot", "Release baby cow")
GROW_LION += ("Grasp", "Go to baby lion", "Release cow")


@pytest.mark.parametrize("render_mode", [None, "ansi"])
def test_passes_the_gymnasium_checker_without_a_warning(render_mode):
    env = gymnasium.make("magellan.worlds:LittleZoo-v0", render_mode=render_mode).unwrapped
    assert isinstance(env, LittleZoo)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_env(env)


def registered_vector(num_envs, mode=None, **options):
    name = "magellan.worlds:LittleZoo-v0"
    return gymnasium.make_vec(name, num_envs=num_envs, vectorization_mode=mode, **options)


@pytest.mark.parametrize("mode", [None, "sync"])
def test_registered_vectors_take_sampled_actions_and_render_their_prompts(mode):
    env = registered_vector(3, mode, render_mode="ansi")
    assert isinstance(env, LittleZooVector) == (mode is None)
    observations, infos = env.reset(seed=1)
    assert observations in env.observation_space
    shown = zip(infos["goal"], observations, strict=True)
    assert env.render() == tuple(f"Goal: {goal}\n{text}\nAction: " for goal, text in shown)
    one = env.single_action_space
    assert one.sample(mask=np.array(["Release", "Release"])) == "Release"
    action = env.action_space.sample()
    assert action in env.action_space
    assert env.step(action)[0] in env.observation_space
    assert len(infos["possible_actions"]) == 3
    assert registered_vector(2).render_mode is None
    for kind in (LittleZoo, LittleZooVector):
        assert "render_mode = 'human'" in refusal(kind, render_mode="human")


def test_processes_give_the_observations_of_one_process_and_share_no_memory():
    assert "shared_memory: True is not" in refusal(registered_vector, 2, "async")
    many = registered_vector(2, "async", vector_kwargs={"shared_memory": False})
    one = registered_vector(2, "sync")
    assert many.reset(seed=1)[0] == one.reset(seed=1)[0]
    assert many.step(["Grasp", "Grasp"])[0] == one.step(["Grasp", "Grasp"])[0]
    many.close()


def test_vector_infos_have_the_form_of_gymnasium():
    env, many = registered_vector(2), registered_vector(2, "sync")
    many.reset(options=LION)
    env.reset(options={"goals": [LION_GOAL] * 2, "standing_on": [-1, -1]})
    given, expected = (each.step(["Go to water", "Grasp"])[4] for each in (env, many))
    expected |= {"standing_on": np.array([1, -1], np.int8), "_standing_on": np.ones(2, bool)}
    assert given.keys() == expected.keys()
    for key, value in expected.items():
        assert given[key].dtype == value.dtype
        found, wanted = ([np.array(one).tolist() for one in each] for each in (given[key], value))
        assert found == wanted
    listed = DictInfoToList(env)
    assert listed.reset(seed=0)[1][1]["possible_actions"] == env.possible_actions[1]


def test_what_is_not_given_is_drawn():
    env, vector = LittleZoo(), LittleZooVector(300)
    env.reset(seed=0)
    some = vector.reset(seed=0, options={"standing_on": [2, *[None] * 299]})[1]["standing_on"]
    assert some[0] == 2
    assert {*some[1:].tolist()} > {-1}
    goals, last_objects, starts = set(), set(), vector.reset(seed=0)[1]["standing_on"].tolist()
    for _ in range(300):
        observation, info = env.reset(options={"objects": ["tiger", "water"]})
        names = observation.splitlines()[0].removeprefix("You see: ").split(", ")
        assert names[:2] == ["baby tiger", "water"]
        assert len(names) == 4
        goals.add(info["goal"])
        last_objects.add(names[3])
        starts.append(-1 if "standing on: nothing" in observation else 4)
    assert len(goals) > 45  # of 50: 2 verbs x 25 targets
    assert len(last_objects) == 25
    assert {4} < set(starts) - {-1}  # the vector's are drawn too


def test_starting_on_an_object_has_the_true_probability():
    starts = draw_start(np.random.default_rng(0), 500_000)
    shares = np.array([np.mean(starts == position) for position in range(4)])
    expected = START_ON_OBJECT / 4
    # Five standard errors of the share, plus that of the constant.
    assert np.all(np.abs(shares - expected) < 5 * np.sqrt(expected / len(starts)) + 0.0002)


@pytest.mark.parametrize(
    ("kind", "options", "words"),
    [
        (LittleZoo, {"goal": "Eat lion"}, "goal | Eat lion | Grasp | Grow"),
        (LittleZoo, {"goal": "Grow dragon"}, "goal | dragon | lion"),
        (LittleZoo, {"objects": ["lion"] * 5}, "objects | lion | at most 4"),
        (LittleZoo, {"objects": ["lion", "unicorn"]}, "objects | unicorn | panthera"),
        (LittleZoo, {"standing_on": 4}, "standing_on | 4 | 0..3"),
        (LittleZoo, {"standing_on": True}, "standing_on | True | 0..3"),
        (LittleZoo, {"gaol": "Grow lion"}, "gaol | goal | objects | standing_on"),
        (LittleZooVector, {"goals": []}, "goals"),
        (LittleZooVector, {"reset_mask": [0, 1]}, "reset_mask"),
        (LittleZooVector, {"standing_on": [7]}, "0..3"),
        (LittleZooVector, {"goals": [Goal("Grow lion", ("lion", "water"), "")]}, "objects"),
        (LittleZooVector, {"mask": None}, "reset_mask"),
    ],
)
def test_bad_options_are_one_clear_line_and_a_vector_draws_nothing(kind, options, words):
    env = kind()
    env.reset(seed=1)
    state = env.np_random.bit_generator.state
    message = refusal(env.reset, seed=5, options=options)
    assert [word for word in words.split(" | ") if word not in message] == []
    assert kind is LittleZoo or env.np_random.bit_generator.state == state


def test_a_refused_reset_or_action_leaves_the_episode_alone():
    env = LittleZoo()
    with pytest.raises(gymnasium.error.ResetNeeded):
        env.step("Grasp")
    env.reset(options=LION)
    for bad in ("jump", "Go to tiger", "Release water", "", None, "Grasp water"):
        refusal(env.step, bad)
    refusal(env.reset, options={"goal": "Grow lion", "objects": ["unicorn"]})
    assert [env.step(action)[2] for action in GROW_LION][-1]
    for action in ("Grasp", "Go to water"):
        for use in (env.step, env.check):
            assert "the episode has ended; allowed: a reset first" in refusal(use, action)
    env.reset(options={"goal": "Grasp water", "objects": ["water"], "standing_on": 0})
    assert env.step("Grasp")[1:3] == (1.0, True)


LENIENT = {"go to water": "Go to water", "GO TO water": "Go to water", "grasp": "Grasp"}
LENIENT |= {"Go to baby": "Go to baby lion", "Go to": "Go to baby lion"}


@pytest.mark.parametrize(("typed", "same_as"), LENIENT.items())
def test_lenient_actions(typed, same_as):
    envs = LittleZoo(), LittleZoo(), LittleZooVector(1)
    for env in envs[:2]:
        env.reset(options=LION)
    envs[2].reset(options={"goals": [LION_GOAL], "standing_on": [-1]})
    expected = envs[0].step(same_as)
    assert envs[1].step(typed) == expected
    assert envs[2].step([typed])[0] == (expected[0],)


@pytest.mark.parametrize("number", [2.0, "2", True, 0])
def test_only_whole_numbers_count_environments_and_are_positions_of_actions(number):
    for vector in (LittleZooVector, WORLDS["craft"].environment):
        assert f"num_envs = {number!r}: allowed" in refusal(vector, number)
    env = LittleZooVector(1)
    env.reset(seed=0)
    assert number == 0 or f"action = {number!r}: allowed" in refusal(env.step, [number])


def test_release_of_an_unknown_name_means_the_second_held_object():
    env = LittleZoo()
    env.reset(options={"goal": "Grow lion", "objects": ["door", "water", "berry", "onion"]})
    for action in ("Go to door", "Grasp", "Go to water", "Grasp", "Go to berry seed"):
        env.step(action)
    assert env.step("Release all")[4]["inventory"] == ["door", "water"]
    assert env.step("release everything")[0] == (
        "You see: berry, onion seed\nYou are standing on: berry\nInventory (1/2): door"
    )
    assert "Release door" in refusal(env.step, "Release water")


def test_no_action_costs_no_step_and_changes_nothing():
    env = LittleZooVector(2)
    env.reset(seed=0, options={"goals": [Goal("Grasp bed", ("door",) * 4, "")] * 2})
    for actions in ([0, -1], [0, -1], [-1, 0]):
        prompts = env.prompts()
        _, rewards, terminated, truncated, _ = env.step(np.array(actions))
        assert np.count_nonzero([rewards, terminated, truncated]) == 0
        assert env.prompts() == prompts
    assert env.step(np.array([0, 0]))[3].tolist() == [True, False]
    assert env.step(np.array([-1, 0]))[3].tolist() == [False, True]


def test_only_seeds_clash_with_grown_plants_of_their_type():
    """An action with a whole name then always means an object of the type it names."""
    names = [(o, display_name(o, grown)) for o in range(37) for grown in (False, True)]
    clashes = {(a, b) for (a, short), (b, long) in permutations(names, 2) if long.startswith(short)}
    assert all(a == b for a, b in clashes)
    assert {KINDS[KIND_OF[a]] for a, _ in clashes} == {"furniture", "plant", "supply"}


@pytest.mark.parametrize(
    ("actions", "held"),
    [
        (("Go to baby cow", "Grasp", "Go to carrot seed", "Release baby cow"), "baby cow"),
        ((*WATERED, "Go to water", "Grasp", "Go to carrot", "Release water"), "water"),
        ((*WATERED, "Grasp", "Go to water", "Release carrot"), "carrot"),
    ],
)
def test_only_grown_food_is_eaten_and_a_grown_object_eats_no_more(actions, held):
    """Recorded episodes have the other rules, but no second meal."""
    env = LittleZoo()
    env.reset(options={"goal": "Grow lion", "objects": ["carrot", "cow", "water", "water"]})
    for action in actions:
        observation = env.step(action)[0]
    assert observation.splitlines()[2] == f"Inventory (1/2): {held}"


SAMPLE = Path(__file__).parent / "data"
GRASP_RADIUS = 0.125
LISTED = ("possible_actions", "inventory")


def start_object(trace):
    for position, (x, y) in enumerate(trace["init_positions"]):
        if np.hypot(x, y) < GRASP_RADIUS:
            return position
    return -1


@pytest.fixture(scope="module")
def traces():
    folder = Path(os.environ.get("LITTLEZOO_TRACES", SAMPLE))
    loaded = []
    for path in sorted(folder.glob("*.jsonl.gz")):
        with gzip.open(path, "rt", encoding="utf-8") as lines:
            loaded += [json.loads(line) for line in lines]
    assert loaded, f"no traces in {folder}"
    return loaded


def recorded(step):
    keys = ("obs", "possible_actions", "inventory", "reward")
    return (*(step[key] for key in keys), step["reward"] == 1.0, step["truncated"], step["done"])


def test_traces_cover_all_cells_and_the_rare_events(traces):
    cells = Counter((t["category"], t["split"], t["policy"]) for t in traces)
    assert len([cell for cell in cells if cell[2] != "scripted+random"]) == 20
    assert min(cells.values()) >= 20
    assert sum(start_object(trace) >= 0 for trace in traces) >= 40
    last = [trace["steps"][-1] for trace in traces]
    assert sum(step["truncated"] and step["reward"] == 1 for step in last) >= 20


@pytest.mark.parametrize("as_text", [False, True], ids=["indices", "strings"])
def test_vector_environment_repeats_every_trace(traces, as_text):
    """All traces at once; those that have ended get -1 and must not change any more."""
    env = LittleZooVector(len(traces))
    goals = [Goal(t["goal"], tuple(t["env_desc"][1:]), t["category"]) for t in traces]
    starts = np.array([start_object(trace) for trace in traces])
    observations, infos = env.reset(options={"goals": goals, "standing_on": starts})
    for i, trace in enumerate(traces):
        start = (observations[i], *(list(infos[key][i]) for key in LISTED))
        assert start == tuple(trace[f"init_{key}"] for key in ("obs", *LISTED))
        assert infos["goal"][i] == trace["goal"]
    np.testing.assert_array_equal(infos["standing_on"], starts)

    mismatches = []
    for round_number in range(max(len(trace["steps"]) for trace in traces)):
        live = [i for i, trace in enumerate(traces) if round_number < len(trace["steps"])]
        actions = [-1] * len(traces)
        for i in live:
            action = traces[i]["steps"][round_number]["action"]
            actions[i] = action if as_text else env.possible_actions[i].index(action)
        observations, rewards, terminated, truncated, infos = env.step(actions)
        for values in (rewards, terminated, truncated):
            assert values.sum() == values[live].sum()
        for i, trace in enumerate(traces):
            step = trace["steps"][min(round_number, len(trace["steps"]) - 1)]
            output = (observations[i], *(list(infos[key][i]) for key in LISTED))
            outcome = rewards[i], terminated[i], truncated[i], terminated[i] or truncated[i]
            output += outcome if i in live else recorded(step)[3:]
            if output != recorded(step):
                mismatches.append((trace["id"], round_number, output))
    assert mismatches == []
