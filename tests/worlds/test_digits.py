"""The world `digits`: right answers, splits, and the model that reads it."""

import numpy as np
import pytest

from magellan.model.files import BACKBONES
from magellan.pretraining import digits as pretraining
from magellan.pretraining import read_record
from magellan.worlds import SPLITS, WORLDS
from magellan.worlds.digits import LONGEST, UNSOLVABLE, digits_of, numbers
from tests.runs import refusal

WORLD = WORLDS["digits"]
ANSWERS = {"copy": "3094", "reverse": "4903", "sort": "0349", "increment": "4105"}


@pytest.mark.parametrize("operation", [*ANSWERS, *UNSOLVABLE])
def test_one_answer_is_right_or_none(operation):
    goal = {"operation": operation, "digits": "3094"}
    for answer in (*ANSWERS.values(), "", "3094 ", "03094", "None"):
        assert WORLD.is_right(goal, answer) == (answer == ANSWERS.get(operation))


def test_every_number_is_in_one_split():
    for length in (1, 2, 3):
        ranks = [(rank, split) for split in SPLITS for rank in range(numbers(length, split))]
        assert len(ranks) == len({digits_of(length, *rank) for rank in ranks}) == 10**length


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
    assert "its agent writes" in refusal(WORLD.environment, 2)


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
