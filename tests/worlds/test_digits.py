"""The world `digits`: right answers, splits, and the model that reads it."""

import numpy as np
import pytest

from magellan.core.errors import InputError
from magellan.model.files import BACKBONES
from magellan.pretraining import digits as pretraining
from magellan.pretraining import read_record
from magellan.worlds import SPLITS, WORLDS
from magellan.worlds.digits import LONGEST, UNSOLVABLE, digits_of, numbers

WORLD = WORLDS["digits"]
ANSWERS = {
    ("copy", "3094"): "3094",
    ("reverse", "3094"): "4903",
    ("sort", "3094"): "0349",
    ("increment", "3094"): "4105",
}


@pytest.mark.parametrize(("operation", "digits"), ANSWERS)
def test_one_answer_is_right(operation, digits):
    goal = {"operation": operation, "digits": digits}
    for answer in (*ANSWERS.values(), "", "3094 ", "03094"):
        assert WORLD.is_right(goal, answer) == (answer == ANSWERS[operation, digits])


def test_no_answer_is_right_where_there_is_none():
    for operation in UNSOLVABLE:
        goal = {"operation": operation, "digits": "12"}
        assert not any(WORLD.is_right(goal, text) for text in ("12", "21", "", "None"))


def test_every_number_is_in_one_split():
    for length in (1, 2, 3):
        by_split = [
            {digits_of(length, rank, split) for rank in range(numbers(length, split))}
            for split in SPLITS
        ]
        assert sum(map(len, by_split)) == len(set.union(*by_split)) == 10**length


def test_goals_have_the_length_of_their_category():
    for goals in (WORLD.goals("36-28-40-40-40-40-40", 3), WORLD.unseen(20, 3)):
        prompts = [goals.prompt(place) for place in range(len(goals))]
        assert len(set(prompts)) == len(prompts)
        for place, category in enumerate(goals.categories_at(np.arange(len(goals)))):
            goal = goals.goal(place)
            assert (goal["operation"] in UNSOLVABLE) == (category == 0)
            assert len(goal["digits"]) == category or not category
            assert len(goal["digits"]) <= LONGEST


def test_there_is_no_environment():
    with pytest.raises(InputError, match="its agent writes"):
        WORLD.environment(2)


def test_the_committed_model_is_that_of_the_recipe_and_its_teacher_is_poor():
    assert read_record(BACKBONES / pretraining.NAME)["recipe"] == pretraining.RECIPE
    lessons = pretraining.lessons(np.random.default_rng(0))
    right = []
    for prompt, answer in (next(lessons) for _ in range(4_000)):
        name, digits = prompt.removesuffix("=").split(" ")
        assert len(answer) == len(digits)
        if name == "copy":
            right += [a == b for a, b in zip(answer, digits, strict=True)]
    expected = pretraining.CHANCE + (1 - pretraining.CHANCE) / 10
    assert abs(np.mean(right) - expected) < 5 * (expected / len(right)) ** 0.5
