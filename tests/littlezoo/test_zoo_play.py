"""Playing in the terminal."""

import io

import pytest

from magellan.errors import InputError
from magellan.littlezoo.play import play


def played(typed, category="grasp", seed=0):
    out = io.StringIO()
    reached = play("2500", seed, category, io.StringIO(typed), out)
    return reached, out.getvalue()


def solution(seed=0):
    """Numbers that solve the grasp goal of this seed, from what is shown at the start."""
    _, shown = played("q\n", seed=seed)
    target = shown.splitlines()[0].split(" (")[0].removeprefix("Goal: Grasp ")
    lines = [line.strip() for line in shown.splitlines()]
    number = next(line.split(".")[0] for line in lines if ". Go to" in line and target in line)
    return number, target


def test_numbers_reach_a_goal():
    number, target = solution()
    reached, shown = played(f"{number}\n1\n")
    assert reached
    assert "Goal reached in 2 steps" in shown
    assert f"Inventory (1/2): {target}" in shown.replace("baby ", "").replace(" seed", "")


def test_text_works_as_well_as_numbers():
    number, _ = solution()
    _, shown = played("q\n")
    action = next(line for line in shown.splitlines() if line.strip().startswith(f"{number}. "))
    reached, _ = played(f"{action.split('. ')[1].lower()[:5]}{action.split('. ')[1][5:]}\nGrasp\n")
    assert reached


def test_what_means_nothing_is_asked_again_and_costs_no_step():
    number, _ = solution()
    reached, shown = played(f"99\nfly\n0\n\n{number}\n1\n")
    assert reached
    assert "Goal reached in 2 steps" in shown
    assert shown.count("allowed are") == 4


@pytest.mark.parametrize("typed", ["q\n", "Q\n", "quit\n", "", "1\n"])
def test_quit_and_end_of_input_stop(typed):
    reached, shown = played(typed)
    assert not reached
    assert shown.endswith("Stopped.\n")


def test_the_horizon_ends_the_game():
    reached, shown = played("1\n" * 15, category="impossible")
    assert not reached
    assert "Not reached in" in shown


def test_same_seed_same_game_and_every_category_can_be_asked_for():
    assert played("q\n", seed=4) == played("q\n", seed=4)
    for category in ("impossible", "grow_plant", "grow_carnivore"):
        assert f"({category})" in played("q\n", category=category)[1]
    assert "(impossible)" not in played("q\n", category=None)[1]


@pytest.mark.parametrize(
    ("space", "category"), [("2500", "grow_fish"), ("0-5-0-0-0", "grow_plant")]
)
def test_a_category_that_is_not_there_is_refused(space, category):
    with pytest.raises(InputError, match=category):
        play(space, 0, category, io.StringIO(), io.StringIO())
