"""Committed models that read, their probes and lessons; small models for the words of one world."""

import itertools
import json
import re
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from magellan.backends.local import LocalBackend
from magellan.config import resolve_run
from magellan.model import tokenizers
from magellan.model.backbone import Backbone
from magellan.model.files import check_backbone, model_digest
from magellan.model.loading import load_model
from magellan.pretraining import build, craft, own_words, read_record
from magellan.pretraining.probe import SETS, probe, probe_goals, reader_of
from magellan.pretraining.reading import QUESTIONS, _losses, invented_objects, right_answers
from magellan.pretraining.tokenizer import build_tokenizer
from magellan.pretraining.zoo import centroid_accuracy, random_play
from magellan.training.collect import uniform
from magellan.training.evaluate import EvaluationSet, by_category, evaluate
from magellan.worlds import SPLITS, WORLDS
from magellan.worlds.little_zoo import Goal
from magellan.worlds.little_zoo.dynamics import goal_text
from magellan.worlds.little_zoo.vocabulary import HELD_OUT_OBJECTS, KIND_OF, NUM_TRAIN, OBJECTS
from tests.runs import refuses
from tests.worlds.little_zoo.test_zoo_goals import shortest_solution


@pytest.mark.slow
def test_the_probe_separates_possible_goals_and_finds_little_in_a_model_that_does_not_read():
    """The goal line is in the state of zoo-mini, whether its object is there is not."""
    scores, of_old = (probe(reader_of(*load_model(name))) for name in ("zoo-reader", "zoo-mini"))
    folder = check_backbone("zoo-reader")
    recorded, text = read_record(folder)["figures"]["probe"], (folder / "README.md").read_text()
    assert of_old["grasp"]["train"] < 0.7
    card = re.findall(r"\| ([\d.]+) \| ([\d.]+) \| [\d.]+ \|", text)
    for (name, split), (new, old) in zip(itertools.product(SETS, SPLITS), card, strict=True):
        assert new == f"{recorded[name][split]:.3f}"
        assert scores[name][split] >= (0.95 if split == "train" else 0.90)
        assert scores[name][split] == pytest.approx(recorded[name][split], abs=2e-3)
        assert of_old[name][split] == pytest.approx(float(old), abs=2e-3)


@pytest.mark.parametrize("name", ["zoo-mini", "zoo-reader"])
def test_held_out_objects_sit_with_their_kind(name):
    kinds = np.asarray(KIND_OF)
    kept = kinds != KIND_OF[OBJECTS.index("water")]
    held_out = np.asarray([name in HELD_OUT_OBJECTS for name in OBJECTS])
    model, tokenizer = load_model(name)
    embeddings = model.get_input_embeddings().weight.detach().numpy()
    vectors = embeddings[build.object_rows(tokenizer, OBJECTS)]
    accuracy = centroid_accuracy(vectors[kept], kinds[kept], held_out[kept])
    assert accuracy >= 11 / 12
    assert f"{accuracy:.3f} of\n  12 objects" in (check_backbone(name) / "README.md").read_text()
    shuffled = np.random.default_rng(0).permutation(vectors[kept])
    assert centroid_accuracy(shuffled, kinds[kept], held_out[kept]) < 0.7


def test_random_play_has_no_held_out_object_and_pursues_no_goal():
    plays = list(itertools.islice(random_play(np.random.default_rng(0), num_envs=32), 4_000))
    text = " ".join(" ".join(play) for play in plays)
    assert not any(name in text for name in HELD_OUT_OBJECTS)
    # Which action is taken does not depend on the goal line: as often the named object as not.
    taken = [(prompt.split("\n")[0].split()[-1], action) for prompt, action, _ in plays]
    named = [action.endswith(target) for target, action in taken if "Go to" in action]
    assert 0.05 < np.mean(named) < 0.3


@pytest.mark.parametrize("split", SPLITS)
@pytest.mark.parametrize("name", SETS)
def test_probe_goals_are_what_they_say(name, split):
    goals = probe_goals(name, split, 400, seed=0)
    assert goals.possible.sum() == 200
    for target, scene, possible in zip(goals.targets, goals.scenes, goals.possible, strict=True):
        objects = tuple(OBJECTS[number] for number in scene)
        goal = Goal(goal_text(goals.verb, int(target)), objects, "")
        assert possible == (shortest_solution(goal) is not None)
    held_out = goals.targets >= NUM_TRAIN
    assert held_out.all() if split == "unseen" else not held_out.any()
    if split == "unseen":  # some held-out object is in every scene
        assert (goals.scenes[:, 0] >= NUM_TRAIN).all()


def test_answers_by_hand():
    lines = "You see: {}\nYou are standing on: {}\nInventory ({}/2): {}\nAction: "
    sight = "Goal: Grow lion\n" + lines.format("door, baby lion, water", "water", 0, "empty")
    hand = "Goal: Grasp cow\n" + lines.format("door, carrot", "nothing", 1, "baby cow")
    under = "Goal: Grasp door\n" + lines.format("door, door", "door", 0, "empty")
    # in sight, in hand, underfoot, kind, verb, then furniture, plant, herbivore, carnivore, supply
    assert [right_answers(prompt) for prompt in (sight, hand, under)] == [
        [1, 0, 0, 3, 1, 1, 0, 0, 1, 1],
        [0, 1, 0, 2, 0, 1, 1, 0, 0, 0],
        [1, 0, 1, 0, 0, 1, 0, 0, 0, 0],
    ]
    assert len(QUESTIONS) == 10


def test_invented_objects_stay_with_their_kind():
    rng = np.random.default_rng(0)
    vectors = rng.standard_normal((NUM_TRAIN, 64)) / 8
    draws = np.stack([invented_objects(vectors, rng) for _ in range(400)])
    means = vectors[:24].reshape(4, 6, 64).mean(axis=1).repeat(6, axis=0)
    np.testing.assert_allclose(draws.mean(axis=0)[:24], means, atol=0.04)
    away = np.linalg.norm(vectors[:24] - means, axis=1).mean()
    assert np.linalg.norm(draws[:, :24] - means, axis=2).mean() == pytest.approx(away, rel=0.02)


def test_pretraining_with_lessons_leaves_object_vectors_alone_and_repeats():
    recipe = build.ReadingRecipe(
        width=16, heads=2, mlp_width=32, layers=2, steps=120, batch_size=16
    )
    vectors = np.random.default_rng(0).standard_normal((len(OBJECTS), 16)) / 4
    tokenizer, states = build_tokenizer(list(OBJECTS)), []
    for _ in range(2):
        torch.manual_seed(0)
        model = build.make_model(recipe, tokenizer, vectors)
        loss = build.pretrain(model, tokenizer, recipe, np.random.default_rng(0))
        states.append(model.state_dict())
    rows = build.object_rows(tokenizer, OBJECTS)
    after = states[0]["model.embed_tokens.weight"][rows]
    np.testing.assert_array_equal(after.numpy(), vectors.astype(np.float32))
    assert loss < np.log(len(tokenizer)) - 0.5
    assert all(torch.equal(values, states[1][name]) for name, values in states[0].items())


@pytest.mark.parametrize("name", build.RECIPES)
def test_committed_models_have_the_recipe_the_words_and_the_card_of_their_name(name):
    folder = check_backbone(name)
    model, tokenizer = load_model(name, WORLDS["craft" if "craft" in name else "little_zoo"])
    assert tokenizer.get_vocab() == build.LANGUAGES[name].tokenizer().get_vocab()
    assert model.get_input_embeddings().weight.shape == (len(tokenizer), 64)
    assert sum(path.stat().st_size for path in folder.iterdir()) < 1_300_000
    record = read_record(folder)
    assert record["recipe"] == vars(build.RECIPES[name])
    card = (folder / "README.md").read_text()
    assert f"# {name}\n" in card
    assert f"{record['figures']['loss']:.4f} nats per token" in card
    rows = [f"| {key} | {value} |" for key, value in record["recipe"].items()]
    assert not [row for row in rows if row not in card]


WORLD = WORLDS["craft"]


@pytest.mark.slow
def test_the_probe_of_craft_is_that_of_the_card():
    scores = craft.probe_depths(reader_of(*load_model("craft-reader", WORLD)))
    folder = check_backbone("craft-reader")
    recorded, card = read_record(folder)["figures"]["probe"], (folder / "README.md").read_text()
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
def test_probe_goals_of_craft_are_what_they_say(name, split):
    goals, depth = craft.probe_goals(name, split, 200, 0), int(name[-1])
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


def test_answers_about_craft_by_hand():
    scene = "Recipes: b = a d, c = a b, f = c e\nAround: a d\nInventory: b g"
    answers = craft.right_answers([(f"Goal: Make c\n{scene}\nAction: ", "Craft b", "")])
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
    for prompt, action, after in itertools.islice(
        craft.random_play(np.random.default_rng(0)), 2_000
    ):
        words = set(f"{prompt}{action}{after}".replace(",", " ").split())
        assert not unseen & words
        recipes |= set(prompt.split("\n")[1].removeprefix("Recipes: ").split(", "))
    assert len(recipes) > 1_000
    assert len(recipes & of_world) < 5


def test_a_model_that_is_built_is_whole_and_readable_for_others(tmp_path, monkeypatch):
    recipe = build.CraftRecipe(width=16, mlp_width=16, layers=2, steps=2, batch_size=4)
    monkeypatch.setitem(build.RECIPES, "craft-reader", recipe)
    without_probe = replace(craft.CRAFT, probe=lambda reader: {})
    monkeypatch.setitem(build.LANGUAGES, "craft-reader", without_probe)
    build.make(None, tmp_path, "craft-reader")
    assert load_model(str(tmp_path), WORLD)[0].config.hidden_size == 16
    assert len({path.stat().st_mode for path in tmp_path.iterdir()}) == 1
    build.make(None, tmp_path, "craft-reader")  # the same model is made again
    refuses(r"--output: .* holds another model", build.make, None, tmp_path, "zoo-mini")


@pytest.mark.parametrize("name", list(WORLDS))
def test_every_text_of_a_world_is_read_whole_and_told_apart(name, tmp_path):
    world = WORLDS[name]
    record = own_words.write(world, tmp_path / "model")
    model, tokenizer = load_model(str(tmp_path / "model"), world)
    assert tokenizers.problem(tokenizer, world) is None
    for group in world.texts():
        for text in group.values():
            assert tokenizer.decode(tokenizer(text)["input_ids"]) == text
    assert record["tokens"] == len(tokenizer) == model.get_input_embeddings().weight.shape[0]
    assert record["parameters"] == sum(weight.numel() for weight in model.parameters())
    assert record == json.loads((tmp_path / "model" / "build.json").read_text())


def test_the_same_world_gives_the_same_files_and_draws_no_number_of_others(tmp_path):
    world = WORLDS["simulated"]
    torch.manual_seed(1)
    before = torch.get_rng_state()
    own_words.write(world, tmp_path / "first")
    assert torch.equal(torch.get_rng_state(), before)
    torch.manual_seed(2)
    own_words.write(world, tmp_path / "second")
    digest = model_digest(tmp_path / "first")
    assert model_digest(tmp_path / "second") == digest
    own_words.write(world, tmp_path / "second")
    assert model_digest(tmp_path / "second") == digest
