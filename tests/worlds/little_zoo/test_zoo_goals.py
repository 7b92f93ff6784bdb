"""Goal spaces: codes, categories by what can be solved, draws, names."""

import sys
from collections import deque

import numpy as np
import pytest

from magellan.worlds import WORLDS
from magellan.worlds.little_zoo import CATEGORIES, FEASIBLE, GoalSpace, WholeSpace, parse_goal_space
from magellan.worlds.little_zoo import dynamics as rules
from magellan.worlds.little_zoo.codes import SPLITS, categories_of, decode
from magellan.worlds.little_zoo.goals import draw_codes
from magellan.worlds.little_zoo.text import possible_actions, resolve
from magellan.worlds.little_zoo.vocabulary import object_id
from tests.runs import refusal
from tests.snippets import run_program

TOTALS = {
    "train": (17_995_213, 1_471_225, 41_484, 18_144, 5_184),
    "unseen": (179_127, 187_500, 5_403, 2_322, 648),
}
MIX_25K = (20_000, 4_000, 800, 160, 32)
BOTH = pytest.mark.parametrize("split", ["train", "unseen"])


def random_goals(split, count, seed=0):
    codes = np.random.default_rng(seed).integers(SPLITS[split].size, size=count)
    return GoalSpace(codes, split)


def shortest_solution(goal):
    """Steps of the shortest play that reaches the goal within its horizon, None without one."""
    scene = tuple(object_id(name) for name in goal.objects)
    verb, target = rules.parse_goal(goal.text)
    queue, seen = deque([(rules.initial_state(), 0)]), {rules.initial_state()}
    while queue:
        state, depth = queue.popleft()
        if depth == rules.horizon(verb, target):
            continue
        for action in possible_actions(scene, state):
            after, grew = rules.transition(scene, state, *resolve(scene, state, action))
            if rules.reached(scene, after, grew, verb, target):
                return depth + 1
            if after not in seen:
                seen.add(after)
                queue.append((after, depth + 1))
    return None


@BOTH
def test_exactly_the_feasible_goals_can_be_solved_within_the_horizon(split):
    shortest = {category: set() for category in CATEGORIES}
    for goals in (GoalSpace.draw((60,) * 5, 1, split), random_goals(split, 150)):
        for position in range(len(goals)):
            goal = goals.goal(position)
            shortest[goal.category].add(shortest_solution(goal))
    assert shortest["impossible"] == {None}
    assert [shortest[category] for category in FEASIBLE[:3]] == [{2}, {4}, {7}]
    assert shortest["grow_carnivore"] == {10}


@BOTH
def test_codes_and_goals_are_one_to_one(split):
    verbs, targets, scenes = decode(np.arange(0, SPLITS[split].size, 37), split)
    rows = np.concatenate([verbs[:, None], targets[:, None], scenes], axis=1)
    keys = rows @ 37 ** np.arange(6)
    assert len(np.unique(keys)) == len(keys)
    if split == "unseen":
        assert np.array_equal(scenes[:, 0], targets)
        assert set(targets.tolist()) == set(range(25, 37))
        assert scenes[:, 1:].max() < 25
    else:
        assert scenes.max() == targets.max() == 24


def test_hand_worked_codes():
    # Target 18 (lion), verb 1 (Grow), scene lion 18, water 24, cow 12, carrot 6.
    code = (18 * 2 + 1) * 25**4 + 18 * 25**3 + 24 * 25**2 + 12 * 25 + 6
    space = GoalSpace(np.array([code]))
    goal = space.goal(0)
    assert (goal.text, goal.objects) == ("Grow lion", ("lion", "water", "cow", "carrot"))
    assert goal.category == "grow_carnivore"
    assert space.prompt(0, standing_on=2) == (
        "Goal: Grow lion\nYou see: baby lion, water, baby cow, carrot seed\n"
        "You are standing on: baby cow\nInventory (0/2): empty\nAction: "
    )
    # Held-out target 11 (tiger), verb 0 (Grasp), remainder door 0, water 24, wolf 23.
    goal = GoalSpace(np.array([11 * 2 * 25**3 + 24 * 25 + 23]), "unseen").goal(0)
    assert (goal.text, goal.objects) == ("Grasp tiger", ("tiger", "door", "water", "wolf"))


def everything(category):
    return np.flatnonzero(categories_of(np.arange(SPLITS["unseen"].size), "unseen") == category)


@pytest.mark.parametrize("category", range(5))
def test_drawing_a_whole_category_gives_all_of_it_once(category):
    mix = tuple(TOTALS["unseen"][c] if c == category else 0 for c in range(5))
    assert np.array_equal(np.sort(draw_codes(mix, 0, "unseen")), everything(category))


@pytest.mark.parametrize("category", [0, 1])
def test_draws_are_uniform_inside_a_category(category):
    """Chi-square of o2 and of the target, against the whole category."""
    whole, mix = everything(category), tuple(60_000 if c == category else 0 for c in range(5))
    drawn = draw_codes(mix, 5, "unseen")
    for values in (lambda codes: codes // 25**3, lambda codes: codes // 25**2 % 25):
        expected = np.bincount(values(whole), minlength=25) * len(drawn) / len(whole)
        counts = np.bincount(values(drawn), minlength=25)
        used = expected > 0
        chi_square = np.sum((counts - expected)[used] ** 2 / expected[used])
        # Without replacement the spread is smaller than that of a chi-square, never larger.
        assert chi_square < 2.5 * used.sum()


def test_named_sizes():
    assert parse_goal_space("25k") == MIX_25K
    assert parse_goal_space("100k") == tuple(4 * count for count in MIX_25K)
    assert parse_goal_space("2500") == parse_goal_space("2.5k") == (2_000, 400, 80, 16, 3)
    assert parse_goal_space("391")[4] == 1
    assert parse_goal_space("0.025M") == MIX_25K
    assert parse_goal_space("16.1k") == parse_goal_space("16100")  # 16.1 * 1000 > 16100 in floats
    assert parse_goal_space("all") == TOTALS["train"]
    assert parse_goal_space("all", "unseen") == TOTALS["unseen"]
    assert parse_goal_space("0-0-5-0-0") == (0, 0, 5, 0, 0)


def test_bad_draws_are_refused():
    assert "seed" in refusal(GoalSpace.draw, (1, 1, 1, 1, 1), 0.5)
    assert "five counts" in refusal(GoalSpace.draw, (1, 1, 1, 1, -1), 0)
    assert "train, unseen" in refusal(GoalSpace.draw, (1, 1, 1, 1, 1), 0, "test")
    for code in (-1, SPLITS["unseen"].size):
        assert "allowed are codes 0" in refusal(GoalSpace, np.array([code]), "unseen")


@BOTH
def test_the_whole_space_is_every_goal_once(split):
    space = GoalSpace.named("all", 0, split)
    assert isinstance(space, WholeSpace)
    assert len(space) == SPLITS[split].size == sum(TOTALS[split])
    assert tuple(space.sizes.tolist()) == TOTALS[split]
    some = np.random.default_rng(0).integers(len(space), size=2_000)
    listed = GoalSpace(some, split)
    assert np.array_equal(space.codes_at(some), some)
    assert np.array_equal(space.categories_at(some), listed.categories)
    for position in range(50):
        assert space.goal(int(some[position])) == listed.goal(position)
        assert space.prompt(int(some[position]), 1) == listed.prompt(position, 1)


def test_ranks_go_through_a_category_of_listed_goals_in_order():
    goals = random_goals("train", 3_000)
    for number, size in enumerate(goals.sizes):
        expected = np.flatnonzero(goals.categories == number)
        for n in (size, size // 2):
            assert np.array_equal(goals.nth(number, np.arange(n)), expected[:n])


def test_the_whole_training_space_by_rank():
    """First, last and random ranks of each category have that category and increase."""
    space = WholeSpace()
    for number, size in enumerate(space.sizes):
        ranks = np.sort(np.random.default_rng(1).integers(size, size=500))
        ranks[0], ranks[-1] = 0, size - 1
        codes = space.nth(number, np.unique(ranks))
        assert (np.diff(codes) > 0).all()
        assert (space.categories_at(codes) == number).all()
        before, after = np.arange(codes[0])[-1_000:], np.arange(codes[-1] + 1, len(space))[:1_000]
        outside = np.concatenate([before, after])
        assert (space.categories_at(outside) != number).all()


COST = """
import resource, sys
from magellan.worlds import WORLDS
from magellan.worlds.base import describe
describe(WORLDS["little_zoo"], sys.argv[1], 0)
used = resource.getrusage(resource.RUSAGE_SELF)
peak = next(int(l.split()[1]) for l in open("/proc/self/status") if l.startswith("VmHWM"))
print(used.ru_utime + used.ru_stime, peak / 1024, "torch" in sys.modules)
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
@pytest.mark.parametrize("name", ["25k", "all"])
def test_goals_cost_at_most_2_s_and_300_mb(name):
    """A whole process with its imports; processor time, so a busy machine does not count."""
    seconds, megabytes, torch_imported = run_program(COST, name).split()
    assert float(seconds) < 2
    assert float(megabytes) < 300
    assert torch_imported == "False"


@pytest.mark.parametrize(
    ("words", "objects", "kind"),
    [
        ("Grasp lion", "cow water door bed", "target not there"),
        ("Grow door", "door water carrot cow", "target never grows"),
        ("Grow carrot", "carrot bed door cow", "no water"),
        ("Grow cow", "cow water bed door", "no plant"),
        ("Grow lion", "lion water carrot bed", "no herbivore"),
        ("Grow lion", "lion cow door bed", "several missing"),
        ("Grow lion", "lion cow carrot water", "Grow carnivore"),
    ],
)
def test_the_kind_of_a_named_goal(words, objects, kind):
    world = WORLDS["little_zoo"]
    assert world.kinds(world.named_goal(words, objects.split()), np.zeros(1, np.int64)) == [kind]
