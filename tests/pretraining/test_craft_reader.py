"""The committed model that reads Craft, and what it was asked while it learnt to."""

import itertools
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from magellan.backends.local import LocalBackend
from magellan.config import resolve_run
from magellan.core.errors import InputError
from magellan.model.backbone import Backbone
from magellan.model.files import check_backbone
from magellan.model.loading import load_model
from magellan.pretraining import build, read_record
from magellan.pretraining.craft import CRAFT, probe_depths, probe_goals, random_play, right_answers
from magellan.pretraining.probe import reader_of
from magellan.pretraining.reading import _losses
from magellan.training.collect import uniform
from magellan.training.evaluate import EvaluationSet, by_category, evaluate
from magellan.worlds import SPLITS, WORLDS

WORLD = WORLDS["craft"]
FOLDER = check_backbone("craft-reader")


@pytest.mark.slow
def test_the_probe_is_that_of_the_card():
    scores = probe_depths(reader_of(*load_model("craft-reader", WORLD)))
    recorded = read_record(FOLDER)["figures"]["probe"]
    card = (FOLDER / "README.md").read_text()
    for name in WORLD.categories.feasible:
        for split in SPLITS:
            assert scores[name][split] == pytest.approx(recorded[name][split], abs=2e-3)
        shown = [f"{recorded[name][split]:.3f}" for split in ("train", "unseen")]
        assert f"| {name} | {' | '.join(shown)} |" in card


READERS = {"zoo-reader": "0-400-300-200-200", "craft-reader": "0-200-200-200-200"}


@pytest.mark.slow
@pytest.mark.parametrize("split", SPLITS)
@pytest.mark.parametrize("name", READERS)
def test_an_untrained_reader_plays_no_better_than_at_random(name, split):
    config = resolve_run("reference", [{"backbone": {"model": name}}])
    world = WORLD if name == "craft-reader" else WORLDS["little_zoo"]
    space = world.goals(READERS[name], 3, split)
    goals = EvaluationSet(space, np.arange(len(space)))
    agent = LocalBackend(Backbone(config.backbone, 0, world=world), world)
    agent.start_policy(config.agent, 1)
    at_random = SimpleNamespace(probabilities=uniform, codec=agent.codec)
    rates, chances = (
        by_category(goals.kinds, goals.categories, evaluate(player, goals, seed=7))
        for player in (agent, at_random)
    )
    for category, (n, success) in rates.items():
        by_chance = chances[category][1]
        assert success < by_chance + 3 * np.sqrt(2 * max(by_chance, 0.01) / n), category


@pytest.mark.parametrize("split", SPLITS)
@pytest.mark.parametrize("name", ["depth_1", "depth_3"])
def test_probe_goals_are_what_they_say(name, split):
    goals, depth = probe_goals(name, split, 200, 0), int(name[-1])
    assert goals.possible.sum() == 100
    book = WORLD.book
    names = {book.names[item] for item in book.craftable(split, depth)}
    for prompt, possible in zip(goals.prompts, goals.possible, strict=True):
        lines = [line.split(": ")[-1] for line in prompt.split("\n")]
        named = lines[0].removeprefix("Make ")
        made_of = dict(recipe.split(" = ") for recipe in lines[1].split(", "))
        needed, missing = [named], set()
        while needed:
            item = needed.pop()
            missing |= set() if item in made_of or item in lines[2].split() else {item}
            needed += made_of.get(item, "").split()
        assert named in names
        assert not missing if possible else len(missing) == 1


def test_answers_by_hand():
    scene = "Recipes: b = a d, c = a b, f = c e\nAround: a d\nInventory: b g"
    answers = right_answers([(f"Goal: Make c\n{scene}\nAction: ", "Craft b", "")])
    # made, held; its ingredients held, around, made; recipes, is nothing held
    assert answers.of_prompt.tolist() == [[1, 0, 1, 1, 1, 3, 0]]
    assert answers.places.tolist() == [4, 6, 7, 9, 11, 12, 14, 16, 17, 19, 20, 22, 23, 26]
    # held, around, named, made, ingredient, of the named; its ingredients held, around, made
    assert answers.of_words.tolist() == [
        [0, 0, 0, 1, 0, 0, 0, 0, 0],  # b =
        [0, 0, 0, 0, 1, 0, 0, 0, 0],
        [0, 0, 0, 0, 1, 0, 0, 0, 0],
        [0, 0, 1, 1, 0, 0, 0, 0, 0],  # c =
        [0, 0, 0, 0, 1, 1, 0, 0, 0],
        [0, 0, 0, 1, 1, 1, 0, 0, 0],
        [0, 0, 0, 1, 0, 0, 0, 0, 0],  # f =
        [0, 0, 1, 1, 1, 0, 0, 0, 1],
        [0, 0, 0, 0, 1, 0, 0, 0, 0],
        [0, 1, 0, 0, 1, 1, 0, 0, 0],  # around
        [0, 1, 0, 0, 1, 0, 0, 0, 0],
        [1, 0, 0, 1, 1, 1, 0, 2, 0],  # inventory
        [1, 0, 0, 0, 0, 0, 0, 0, 0],
        [1, 0, 0, 1, 1, 1, 0, 2, 0],  # action
    ]


def test_rare_answers_weigh_more():
    """Three answers 0 and one answer 1: 1 has the weight 1, each 0 that of 1 / sqrt(3)."""
    scores = torch.tensor([[2.0, 0.0]] * 4)
    right = np.array([[0], [0], [0], [1]])
    often, rare = np.log1p(np.exp(-2)), np.log1p(np.exp(2))
    (plain,) = _losses(scores, [("", 2)], right, balanced=False)
    (balanced,) = _losses(scores, [("", 2)], right, balanced=True)
    assert plain.item() == pytest.approx((3 * often + rare) / 4)
    weight = 3**-0.5
    assert balanced.item() == pytest.approx((3 * weight * often + rare) / (3 * weight + 1))


def test_play_names_no_unseen_item_and_no_recipe_of_the_world():
    book = WORLD.book
    unseen = {book.names[item] for item in book.craftable("unseen")}
    of_world = {
        f"{book.names[item]} = {' '.join(book.names[part] for part in book.recipes[item])}"
        for item in book.craftable("train")
    }
    recipes = set()
    for prompt, action, after in itertools.islice(random_play(np.random.default_rng(0)), 2_000):
        words = set(f"{prompt}{action}{after}".replace(",", " ").split())
        assert not unseen & words
        recipes |= set(prompt.split("\n")[1].removeprefix("Recipes: ").split(", "))
    assert len(recipes) > 1_000
    assert len(recipes & of_world) < 5


def test_a_model_that_is_built_is_whole_and_readable_for_others(tmp_path, monkeypatch):
    recipe = build.CraftRecipe(width=16, mlp_width=16, layers=2, steps=2, batch_size=4)
    monkeypatch.setitem(build.RECIPES, "craft-reader", recipe)
    without_probe = replace(CRAFT, probe=lambda reader: {})
    monkeypatch.setitem(build.LANGUAGES, "craft-reader", without_probe)
    build.make(None, tmp_path, "craft-reader")
    assert load_model(str(tmp_path), WORLD)[0].config.hidden_size == 16
    assert len({path.stat().st_mode for path in tmp_path.iterdir()}) == 1
    build.make(None, tmp_path, "craft-reader")  # the same model is made again
    with pytest.raises(InputError, match=r"--output: .* holds another model"):
        build.make(None, tmp_path, "zoo-mini")
