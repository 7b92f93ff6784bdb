"""Every possible goal of Craft can be reached and no impossible one, by rules written down here."""

import numpy as np
import pytest

from magellan.worlds import SPLITS, WORLDS
from magellan.worlds.craft import CONTEXTS, DISTRACTORS, RAW, Crafting, CraftWorld, context, horizon
from tests.runs import refuses

WORLD = WORLDS["craft"]


class Deep(CraftWorld):
    name = "deep"
    depths = 8


DEPTHS = pytest.mark.parametrize("world", [WORLD, Deep()], ids=["craft", "deep"])


def sample(world, split, each=60, seed=0):
    rng = np.random.default_rng(seed)
    for category, total in enumerate(world.totals(split)):
        for rank in rng.integers(total, size=each).tolist():
            yield category, world.arguments(category, rank, split)


def can_be_had(around, recipes):
    had = set(around)
    while new := {made for made, *parts in recipes if set(parts) <= had} - had:
        had |= new
    return had


def plan(item, recipes):
    """Actions that make an item: its ingredients one after the other, each used at once."""
    made_of = {made: parts for made, *parts in recipes}
    if item not in made_of:
        return [f"Get {item}"]
    deep_first = sorted(made_of[item], key=lambda part: part not in made_of)
    steps = [step for part in deep_first for step in plan(part, recipes)]
    return [*steps, f"Craft {item}"]


@DEPTHS
@pytest.mark.parametrize("split", SPLITS)
def test_possible_goals_are_reached_by_a_plan_and_impossible_ones_never(world, split):
    for category, scene in sample(world, split):
        had = can_be_had(scene["around"], scene["recipes"])
        assert (scene["goal"] in had) == (category > 0)
        if not category:
            continue
        episode, steps = Crafting(**scene), plan(scene["goal"], scene["recipes"])
        assert len(steps) == 2 * category + 1 <= scene["horizon"] == horizon(category)
        reached = []
        for step in steps:
            assert step in episode.possible_actions()
            reached.append(episode.act(step, np.random.default_rng(0)))
        assert reached == [False] * (len(steps) - 1) + [True]


def test_what_an_action_does():
    episode = Crafting("c", ["a", "d"], [["c", "a", "b"], ["b", "a", "d"]], 9)
    rng = np.random.default_rng(0)
    assert episode.possible_actions() == ["Get a", "Get d"]

    def do(*actions):
        return [(episode.act(action, rng), " ".join(episode.inventory)) for action in actions]

    expected = [(False, held) for held in ("", "a", "a", "a")]
    assert do("Craft b", "Get a", "Craft b", "Get a") == expected
    assert do("Get d", "Craft b", "Craft c") == [(False, held) for held in ("a d", "b", "b")]
    assert "Inventory: b\n" in episode.prompt()
    assert "Craft b" in episode.commands()
    assert "Craft b" not in episode.possible_actions()
    assert do("Get d", "Get a", "Craft b") == [(False, "b d"), *[(False, "b d a")] * 2]
    assert do("Craft c") == [(True, "d c")]


def test_a_goal_shows_what_it_needs_and_little_else():
    """And an impossible goal lacks one thing, every one of those it needs in turn."""
    book, lacking = WORLD.book, set()
    item = book.craftable("train", 3)[0]
    needed = set(book.needs[item])
    assert len(needed) == 7
    for number in range(200):
        shown = context(book, item, number, True)
        assert needed <= {*shown.around, *shown.recipes}
        assert DISTRACTORS[0] <= len(shown.recipes) - 3 <= DISTRACTORS[1]
        missing = context(book, item, number, False)
        assert needed - {*missing.around, *missing.recipes} == {missing.missing}
        lacking.add(missing.missing)
    assert lacking == needed
    goals = WORLD.goals("300-1-1-1-1", 0)
    words = WORLD.kinds(goals, np.arange(304))
    assert set(words) == {"no raw item", "no recipe", "Depth 1", "Depth 2", "Depth 3", "Depth 4"}


def named(scene):
    return {scene["goal"], *scene["around"], *(item for row in scene["recipes"] for item in row)}


@DEPTHS
def test_no_goal_of_training_names_an_unseen_item(world):
    book = world.book
    assert len(set(book.names)) == len(book.names)
    assert [len(book.recipes[item]) for item in range(RAW)] == [0] * RAW
    unseen = {book.names[item] for item in book.craftable("unseen")}
    for _, scene in sample(world, "train"):
        assert not unseen & named(scene)
    for _, scene in sample(world, "unseen"):
        assert unseen & named(scene) == {scene["goal"]}


def test_goal_spaces_have_sizes_and_mixes():
    assert WORLD.parse("25k") == (20_000, 4_000, 800, 160, 32)
    assert WORLD.canonical("20000-4000-800-160-32") == WORLD.canonical("25000") == "25k"
    assert WORLD.canonical("5-4-3-2-1") == "5-4-3-2-1"
    assert WORLD.totals("train")[1] == 30 * CONTEXTS
    for name in ("25", "2.5", "25k-1", "1-1-1-1", "0-0-0-0-0", "1-300001-1-1-1"):
        refuses(r"goal_space.*sizes such as 25k", WORLD.parse, name)
