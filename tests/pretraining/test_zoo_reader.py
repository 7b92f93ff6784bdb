"""The committed backbone that reads, the probe that shows it, and the lessons it had."""

import itertools
import json

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from magellan.agent.sac import SAC
from magellan.config import resolve_run
from magellan.core.codec import Codec
from magellan.model.backbone import Backbone
from magellan.model.files import check_backbone
from magellan.pretraining import probe as probing
from magellan.pretraining.build import (
    RECIPES,
    ReadingRecipe,
    make_model,
    object_rows,
    pretrain,
)
from magellan.pretraining.craft import CRAFT
from magellan.pretraining.play import random_play
from magellan.pretraining.probe import SETS, auc, fit_logistic, probe, probe_goals, reader_of
from magellan.pretraining.reading import QUESTIONS, Ids, invented_objects, right_answers
from magellan.pretraining.tokenizer import build_tokenizer
from magellan.pretraining.zoo import ZOO
from magellan.training.evaluate import EvaluationSet, by_category, evaluate
from magellan.worlds.little_zoo import GoalSpace, LittleZooVector
from magellan.worlds.little_zoo.goals import draw_codes
from magellan.worlds.little_zoo.vocabulary import (
    HELD_OUT_OBJECTS,
    NUM_TRAIN,
    OBJECTS,
    TRAIN_OBJECTS,
)

FOLDER = check_backbone("zoo-reader")
OLD = check_backbone("zoo-mini")
ZOO_MINI = {
    "grasp": {"train": 0.591, "unseen": 0.567},
    "grow": {"train": 0.959, "unseen": 0.956},
    "grow_near": {"train": 0.841, "unseen": 0.801},
}
"""AUC of the probe on zoo-mini, as on the card."""


# --- the committed model --------------------------------------------------------------------------


@pytest.mark.slow
def test_probe_separates_possible_from_impossible_goals(model, tokenizer, figures):
    scores = probe(reader_of(model, tokenizer))
    for name in ("grasp", "grow"):
        assert scores[name]["train"] >= 0.95
        assert scores[name]["unseen"] >= 0.90
    assert scores["grow_near"]["train"] >= 0.95
    card = (FOLDER / "README.md").read_text()
    for name, split in itertools.product(SETS, ("train", "unseen")):
        assert scores[name][split] == pytest.approx(figures["probe"][name][split], abs=2e-3)
        assert f"| {figures['probe'][name][split]:.3f} | {ZOO_MINI[name][split]:.3f} |" in card


@pytest.mark.slow
def test_the_probe_finds_little_in_a_model_that_does_not_read():
    """The goal line is in the state of zoo-mini, whether its object is there is not."""
    old = AutoModelForCausalLM.from_pretrained(OLD)
    scores = probe(reader_of(old, AutoTokenizer.from_pretrained(OLD)))
    assert scores["grasp"]["train"] < 0.7
    for name, split in itertools.product(SETS, ("train", "unseen")):
        assert scores[name][split] == pytest.approx(ZOO_MINI[name][split], abs=2e-3)


def test_answers_are_no_words_of_the_model(model, tokenizer):
    """Same vocabulary as zoo-mini, and no weights beside those of a Llama."""
    assert tokenizer.get_vocab() == AutoTokenizer.from_pretrained(OLD).get_vocab()
    assert model.get_input_embeddings().weight.shape == (len(tokenizer), 64)


def test_possible_actions_take_nearly_all_probability(model, tokenizer):
    env, codec, total = LittleZooVector(64), Codec(tokenizer), []
    env.reset(seed=1)
    for prompt, actions in zip(env.prompts(), env.possible_actions, strict=True):
        (head,), tails = codec.encode([prompt]), codec.encode(sorted(set(actions)))
        mass = 0.0
        for tail in tails:
            with torch.no_grad():
                tokens = torch.from_numpy(np.concatenate([head, tail]).astype(np.int64))
                logits = model(tokens[None]).logits[0, len(head) - 1 : -1]
            steps = torch.log_softmax(logits, -1).gather(1, tokens[len(head) :, None])
            mass += float(steps.sum().exp())
        total.append(mass)
    assert np.mean(total) > 0.8


def untrained(name: str) -> tuple[SAC, Codec]:
    """An agent of the preset `reference` with a backbone, before any training."""
    config = resolve_run("reference", [{"backbone": {"model": name}}])
    backbone = Backbone(config.backbone, 0)
    return SAC(backbone, config.agent, 1), Codec(backbone.tokenizer)


@pytest.mark.slow
@pytest.mark.parametrize("split", ["train", "unseen"])
def test_untrained_it_plays_no_better_than_zoo_mini(split):
    space = GoalSpace(draw_codes((0, 400, 300, 200, 200), 3, split), split)
    goals = EvaluationSet(space, np.arange(len(space)))
    old, new = (
        by_category(goals.kinds, goals.categories, evaluate(*untrained(name), goals, seed=7))
        for name in ("zoo-mini", "zoo-reader")
    )
    for category, (n, success) in new.items():
        rate = 0.1 if category == "grasp" else 0.02  # of uniform random play, or less
        assert success < old[category][1] + 3 * np.sqrt(2 * rate * (1 - rate) / n), category


# --- the probe ------------------------------------------------------------------------------------


@pytest.mark.parametrize("split", ["train", "unseen"])
@pytest.mark.parametrize("name", SETS)
def test_probe_goals_are_what_they_say(name, split):
    goals = probe_goals(name, split, 400, seed=0)
    assert goals.possible.sum() == 200
    for target, scene, possible in zip(goals.targets, goals.scenes, goals.possible, strict=True):
        assert possible == can_be_reached(goals.verb, int(target), scene.tolist())
    held_out = goals.targets >= NUM_TRAIN
    assert held_out.all() if split == "unseen" else not held_out.any()
    if split == "unseen":  # some held-out object is in every scene
        assert (goals.scenes[:, 0] >= NUM_TRAIN).all()


def can_be_reached(verb: int, target: int, scene: list[int]) -> bool:
    """By the rules: the target is there and, to grow it, the food of each step."""
    plants = set(range(6, 12)) | {OBJECTS.index(o) for o in ("spinach", "broccoli", "lettuce")}
    herbivores = set(range(12, 18)) | {OBJECTS.index(o) for o in ("goat", "horse", "rabbit")}
    carnivores = set(range(18, 24)) | {OBJECTS.index(o) for o in ("leopard", "hyena", "tiger")}
    present = set(scene)
    if target not in present or verb == 0:
        return target in present
    if OBJECTS.index("water") not in present:
        return False
    if target in plants:
        return True
    if target in herbivores:
        return bool(present & plants)
    return target in carnivores and bool(present & plants) and bool(present & herbivores)


def test_probe_goals_repeat_and_mix():
    first, again = (probe_goals("grow_near", "train", 300, seed=2) for _ in range(2))
    np.testing.assert_array_equal(first.scenes, again.scenes)
    assert probe_goals("grow_near", "train", 300, seed=3).scenes.tolist() != first.scenes.tolist()
    water = (first.scenes == OBJECTS.index("water")).any(axis=1)
    target = (first.scenes == first.targets[:, None]).any(axis=1)
    assert water[first.possible].all()
    assert target[first.possible].all()
    impossible = ~first.possible
    # Each of the three reasons occurs, and an impossible goal has one reason only.
    assert not (impossible & ~water & ~target).any()
    for reason in (impossible & ~water, impossible & ~target, impossible & water & target):
        assert reason.sum() > 20


# --- the lessons ----------------------------------------------------------------------------------


def answers_to(*prompts: str) -> list[list[int]]:
    tokenizer = build_tokenizer(list(OBJECTS))
    tokens = Codec(tokenizer).encode(prompts)
    return right_answers(tokens, Ids.of(tokenizer)).tolist()


def test_answers_by_hand():
    lines = "You see: {}\nYou are standing on: {}\nInventory ({}/2): {}\nAction: "
    sight = "Goal: Grow lion\n" + lines.format("door, baby lion, water", "water", 0, "empty")
    hand = "Goal: Grasp cow\n" + lines.format("door, carrot", "nothing", 1, "baby cow")
    under = "Goal: Grasp door\n" + lines.format("door, door", "door", 0, "empty")
    # in sight, in hand, underfoot, kind, verb, then furniture, plant, herbivore, carnivore, supply
    assert answers_to(sight, hand, under) == [
        [1, 0, 0, 3, 1, 1, 0, 0, 1, 1],
        [0, 1, 0, 2, 0, 1, 1, 0, 0, 0],
        [1, 0, 1, 0, 0, 1, 0, 0, 0, 0],
    ]
    assert len(QUESTIONS) == 10


def test_lessons_read_random_play_and_meet_no_held_out_object():
    """The answers are a function of prompts of random play, not of the action taken there."""
    tokenizer, rng = build_tokenizer(list(OBJECTS)), np.random.default_rng(0)
    prompts = [prompt for prompt, _, _ in itertools.islice(random_play(rng, distinct=True), 2_000)]
    tokens = Codec(tokenizer).encode(prompts)
    held_out = object_rows(tokenizer, HELD_OUT_OBJECTS)
    assert not np.isin(np.concatenate(tokens), held_out).any()
    ids = Ids.of(tokenizer)
    assert (ids.kind[held_out] == -1).all()
    answers = right_answers(tokens, ids)
    names = [prompt.split("\n")[0].split()[-1] for prompt in prompts]
    in_sight = [name in prompt.split("\n")[1] for name, prompt in zip(names, prompts, strict=True)]
    np.testing.assert_array_equal(answers[:, 0], in_sight)
    assert 0.3 < np.mean(in_sight) < 0.7


def test_invented_objects_stay_with_their_kind():
    rng = np.random.default_rng(0)
    vectors = rng.standard_normal((NUM_TRAIN, 64)) / 8
    draws = np.stack([invented_objects(vectors, rng) for _ in range(400)])
    means = vectors[:24].reshape(4, 6, 64).mean(axis=1).repeat(6, axis=0)
    np.testing.assert_allclose(draws.mean(axis=0)[:24], means, atol=0.04)
    away = np.linalg.norm(vectors[:24] - means, axis=1).mean()
    assert np.linalg.norm(draws[:, :24] - means, axis=2).mean() == pytest.approx(away, rel=0.02)


def test_pretraining_with_lessons_leaves_object_vectors_alone_and_repeats():
    recipe = ReadingRecipe(width=16, heads=2, mlp_width=32, layers=2, steps=120, batch_size=16)
    vectors = np.random.default_rng(0).standard_normal((len(OBJECTS), 16)) / 4
    tokenizer, states = build_tokenizer(list(OBJECTS)), []
    for _ in range(2):
        torch.manual_seed(0)
        model = make_model(recipe, tokenizer, vectors)
        loss = pretrain(model, tokenizer, recipe, np.random.default_rng(0))
        states.append(model.state_dict())
    rows = object_rows(tokenizer, OBJECTS)
    after = states[0]["model.embed_tokens.weight"][rows]
    np.testing.assert_array_equal(after.numpy(), vectors.astype(np.float32))
    assert loss < np.log(len(tokenizer)) - 0.5
    assert all(torch.equal(values, states[1][name]) for name, values in states[0].items())


# --- recipes --------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", RECIPES)
def test_committed_models_have_the_recipe_and_the_card_of_their_name(name):
    folder = check_backbone(name)
    assert sum(path.stat().st_size for path in folder.iterdir()) < 1_300_000
    record = json.loads((folder / "build.json").read_text())
    assert record["recipe"] == vars(RECIPES[name])
    card = (folder / "README.md").read_text()
    assert f"# {name}\n" in card
    assert f"{record['figures']['loss']:.4f} nats per token" in card
    rows = [f"| {key} | {value} |" for key, value in record["recipe"].items()]
    assert not [row for row in rows if row not in card]


def test_matching_works_for_objects_that_never_existed(model, tokenizer):
    """The probe is fit on the objects there are, and tried where all 25 have new vectors."""
    goals = probe_goals("grasp", "train", 3_000, seed=4)
    states = reader_of(model, tokenizer)(goals.prompts)
    weights = fit_logistic(states[:2_000], goals.possible[:2_000])
    embedding = model.get_input_embeddings().weight
    rows = torch.tensor(object_rows(tokenizer, TRAIN_OBJECTS))
    before = embedding.detach().clone()
    scores = []
    try:
        for seed in range(3):
            new = invented_objects(before[rows].numpy(), np.random.default_rng(100 + seed))
            with torch.no_grad():
                embedding[rows] = torch.from_numpy(new).float()
            states = reader_of(model, tokenizer)(goals.prompts[2_000:])
            scores.append(auc(probing.linear(states, weights), goals.possible[2_000:]))
    finally:
        with torch.no_grad():
            embedding.copy_(before)
    assert min(scores) > 0.9


@pytest.mark.parametrize("language", [ZOO, CRAFT], ids=["zoo", "craft"])
def test_questions_ask_about_the_text_only(language):
    asked = language.questions(language.tokenizer())
    text = " ".join(question for question, _ in (*asked.of_prompt, *asked.of_words)).lower()
    actions = ("action", "go to", "release", "eat", "get", "craft", "next", "should")
    for word in ("possible", "reach", "reward", "goal", *actions):
        assert word not in text
