"""The committed backbone that reads, the probe that shows it, and the lessons it had."""

import itertools
import re

import numpy as np
import pytest
import torch

from magellan.model.files import check_backbone
from magellan.model.loading import load_model
from magellan.pretraining import build, read_record
from magellan.pretraining.probe import SETS, probe, probe_goals, reader_of
from magellan.pretraining.reading import QUESTIONS, invented_objects, right_answers
from magellan.pretraining.tokenizer import build_tokenizer
from magellan.pretraining.zoo import centroid_accuracy, random_play
from magellan.worlds import SPLITS, WORLDS
from magellan.worlds.little_zoo import Goal
from magellan.worlds.little_zoo.dynamics import goal_text
from magellan.worlds.little_zoo.vocabulary import HELD_OUT_OBJECTS, KIND_OF, NUM_TRAIN, OBJECTS
from tests.worlds.little_zoo.test_zoo_goals import shortest_solution

FOLDER = check_backbone("zoo-reader")


@pytest.mark.slow
def test_the_probe_separates_possible_goals_and_finds_little_in_a_model_that_does_not_read():
    """The goal line is in the state of zoo-mini, whether its object is there is not."""
    scores, of_old = (probe(reader_of(*load_model(name))) for name in ("zoo-reader", "zoo-mini"))
    recorded, text = read_record(FOLDER)["figures"]["probe"], (FOLDER / "README.md").read_text()
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
    """Answers to questions are no words of theirs."""
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
