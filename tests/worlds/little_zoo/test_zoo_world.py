"""Vocabulary, rules and text, worked out by hand."""

from collections import Counter
from itertools import permutations, product

import pytest

from magellan.worlds.little_zoo.text import observation, possible_actions, resolve
from magellan.worlds.little_zoo.vocabulary import (
    KIND_OF,
    KINDS,
    OBJECTS,
    display_name,
    feeds,
    object_id,
)
from magellan.worlds.little_zoo.world import horizon, initial_state, parse_goal, transition


class Play:
    """A scene played by typed actions."""

    def __init__(self, *objects, standing_on=-1):
        self.scene = tuple(object_id(name) for name in objects)
        self.state = initial_state(standing_on)

    def act(self, *actions):
        for action in actions:
            meant = resolve(self.scene, self.state, action)
            self.state, self.grew = transition(self.scene, self.state, *meant)
        return self

    @property
    def observation(self):
        return observation(self.scene, self.state)

    @property
    def actions(self):
        return list(possible_actions(self.scene, self.state))


def test_37_objects_of_five_kinds():
    assert len(set(OBJECTS)) == 37
    counts = Counter(KINDS[kind] for kind in KIND_OF)
    assert counts == {"furniture": 9, "plant": 9, "herbivore": 9, "carnivore": 9, "supply": 1}
    assert OBJECTS[24] == "water"


def test_who_eats_what():
    meals = {
        (KINDS[KIND_OF[food]], KINDS[KIND_OF[eater]], grown)
        for food, eater in product(range(37), repeat=2)
        for grown in (False, True)
        if feeds(food, grown, eater)
    }
    assert meals == {
        ("supply", "plant", False),
        ("supply", "plant", True),
        ("plant", "herbivore", True),
        ("herbivore", "carnivore", True),
    }


def test_only_seeds_clash_with_grown_plants_of_their_type():
    """An action with a whole name then always means an object of the type it names."""
    names = [(o, display_name(o, grown)) for o in range(37) for grown in (False, True)]
    clashes = {(a, b) for (a, short), (b, long) in permutations(names, 2) if long.startswith(short)}
    assert all(a == b for a, b in clashes)
    assert {KINDS[KIND_OF[a]] for a, _ in clashes} == {"furniture", "plant", "supply"}


@pytest.mark.parametrize(
    ("goal", "steps"),
    [
        ("Grasp lion", 3),
        ("Grow carrot", 6),
        ("Grow goat", 10),
        ("Grow tiger", 15),
        ("Grow door", 10),
        ("Grow water", 10),
    ],
)
def test_horizons(goal, steps):
    assert horizon(*parse_goal(goal)) == steps


def test_only_grown_food_is_eaten_and_a_grown_object_eats_no_more():
    play = Play("carrot", "cow", "water", "water").act("Go to baby cow", "Grasp")
    play.act("Go to carrot seed", "Release baby cow")
    assert play.grew == -1
    play.act("Go to water", "Grasp", "Go to carrot", "Release water")
    assert play.grew == 0
    play.act("Go to water", "Grasp", "Go to carrot", "Release water")
    assert play.grew == -1
    assert play.observation.splitlines()[2] == "Inventory (2/2): baby cow, water"


def test_of_two_equal_objects_only_the_first_is_reached():
    play = Play("door", "water", "water", "bed").act("Go to water", "Grasp")
    assert play.state.place == (0, 1, 0, 0)
    assert play.act("Go to water", "Grasp").actions.count("Release water") == 2
    assert resolve(play.scene, play.state, "Release water") == ("Release", 1)


def test_a_seed_hides_the_grown_plant_of_its_type():
    play = Play("carrot", "carrot", "water", "lion", standing_on=1)
    play.act("Grasp", "Go to water", "Release carrot seed")
    assert play.grew == 1
    assert "Go to carrot" in play.actions
    assert play.act("Go to carrot").observation.splitlines()[1] == (
        "You are standing on: carrot seed"
    )
