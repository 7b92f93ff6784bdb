"""Vocabulary, rules and text, worked out by hand."""

from collections import Counter
from itertools import permutations, product

import pytest

from magellan.worlds.little_zoo.graph import representative, shape_of
from magellan.worlds.little_zoo.text import layout, resolve, scene_words
from magellan.worlds.little_zoo.vocabulary import (
    KIND_OF,
    KINDS,
    OBJECTS,
    display_name,
    feeds,
    object_id,
)
from magellan.worlds.little_zoo.world import GONE, horizon, initial_state, parse_goal, transition


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
        return layout(self.state).observation(scene_words(self.scene))

    @property
    def actions(self):
        return list(layout(self.state).possible_actions(scene_words(self.scene)))


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
    """The graph of a scene shape stands for all its scenes only if no other names clash."""
    names = [(o, display_name(o, grown)) for o in range(37) for grown in (False, True)]
    clashes = {(a, b) for (a, short), (b, long) in permutations(names, 2) if long.startswith(short)}
    assert all(a == b for a, b in clashes)
    assert {KINDS[KIND_OF[a]] for a, _ in clashes} == {"furniture", "plant", "supply"}


def test_there_are_1357_shapes_and_each_has_a_representative():
    # Four of a kind are enough for every pattern of equal objects; all 37^4 scenes take long.
    few = [o for o in range(37) if KIND_OF[:o].count(KIND_OF[o]) < 4]
    shapes = {shape_of(scene) for scene in product(few, repeat=4)}
    assert len(shapes) == 1_357
    assert all(shape_of(representative(shape)) == shape for shape in shapes)


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


def test_first_observation():
    play = Play("water", "carrot", "carrot", "cow")
    assert play.observation == (
        "You see: water, carrot seed, carrot seed, baby cow\n"
        "You are standing on: nothing\nInventory (0/2): empty"
    )
    go = ["Go to water", "Go to carrot seed", "Go to carrot seed", "Go to baby cow"]
    assert play.actions == ["Grasp", *go]


def test_inventory_is_in_scene_order_and_what_is_held_is_not_seen():
    play = Play("carrot", "door", "water", "bed").act("Go to water", "Grasp")
    play.act("Go to carrot seed", "Grasp")
    assert play.observation == (
        "You see: door, bed\nYou are standing on: nothing\nInventory (2/2): carrot seed, water"
    )
    go = ["Go to door", "Go to bed"]
    assert play.actions == ["Grasp", *go, "Release carrot seed", "Release water"]


def test_nothing_left_to_see():
    play = Play("carrot", "water", "cow", "door").act("Go to water", "Grasp", "Go to carrot seed")
    play.act("Release water", "Go to baby cow", "Grasp", "Go to carrot", "Release baby cow")
    play.act("Grasp", "Go to door", "Grasp")
    assert play.observation == (
        "You see: \nYou are standing on: nothing\nInventory (2/2): cow, door"
    )


def test_grasp_on_nothing_or_with_full_hands_does_nothing():
    play = Play("door", "bed", "water", "lion")
    assert play.act("Grasp").state == initial_state()
    play.act("Go to door", "Grasp", "Go to bed", "Grasp", "Go to water")
    before = play.state
    assert play.act("Grasp").state == before


def test_release_without_a_meal_keeps_the_object_in_hand():
    play = Play("door", "water", "lion", "cow").act("Go to water", "Grasp")
    for place in ([], ["Go to door"], ["Go to baby lion"]):
        play.act(*place)
        before = play.state
        assert play.act("Release water").state == before


def test_water_makes_a_seed_grow_and_is_gone():
    play = Play("water", "lettuce", "door", "bed").act("Go to water", "Grasp", "Go to lettuce")
    play.act("Release water")
    assert play.grew == 1
    assert play.observation == (
        "You see: lettuce, door, bed\nYou are standing on: lettuce\nInventory (0/2): empty"
    )
    assert play.state.place[0] == GONE


def test_a_held_eater_eats_what_it_is_put_on_and_stands_there():
    play = Play("water", "lettuce", "door", "bed").act("Go to lettuce", "Grasp", "Go to water")
    play.act("Release lettuce seed")
    assert play.grew == 1
    assert play.observation == (
        "You see: lettuce, door, bed\nYou are standing on: lettuce\nInventory (0/2): empty"
    )


def test_only_grown_food_is_eaten_and_a_grown_object_eats_no_more():
    play = Play("carrot", "cow", "water", "water").act("Go to baby cow", "Grasp")
    play.act("Go to carrot seed", "Release baby cow")
    assert play.grew == -1
    play.act("Go to water", "Grasp", "Go to carrot", "Release water")
    assert play.grew == 0
    play.act("Go to water", "Grasp", "Go to carrot", "Release water")
    assert play.grew == -1
    assert play.observation.splitlines()[2] == "Inventory (2/2): baby cow, water"


def test_both_partners_in_hand_is_a_dead_end():
    play = Play("water", "berry", "door", "bed").act("Go to water", "Grasp", "Go to berry", "Grasp")
    for place in ("Go to door", "Go to bed"):
        play.act(place, "Release water", "Release berry seed")
        assert play.grew == -1
    assert play.observation.splitlines()[2] == "Inventory (2/2): water, berry seed"


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
