"""The committed backbone, and the pieces that build it."""

import itertools
import json

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from magellan.config import check_backbone
from magellan.core.codec import Codec
from magellan.core.errors import InputError
from magellan.pretraining.build import Recipe, make_model, object_rows, pretrain
from magellan.pretraining.play import random_play
from magellan.pretraining.tokenizer import build_tokenizer
from magellan.pretraining.wheel import check_wheel
from magellan.pretraining.words import centroid_accuracy, project
from magellan.worlds.little_zoo import GoalSpace, LittleZooVector
from magellan.worlds.little_zoo.vocabulary import HELD_OUT_OBJECTS, KIND_OF, KINDS, OBJECTS

FOLDER = check_backbone("zoo-mini")


@pytest.fixture(scope="module")
def model():
    return AutoModelForCausalLM.from_pretrained(FOLDER)


@pytest.fixture(scope="module")
def tokenizer():
    return AutoTokenizer.from_pretrained(FOLDER)


def object_vectors(model, tokenizer) -> np.ndarray:
    rows = object_rows(tokenizer, OBJECTS)
    return model.get_input_embeddings().weight.detach().numpy()[rows]


def test_size_of_the_repository_copy():
    assert sum(path.stat().st_size for path in FOLDER.iterdir()) < 2_000_000


def test_held_out_objects_sit_with_their_kind(model, tokenizer):
    kinds = np.asarray(KIND_OF)
    kept = kinds != KINDS.index("supply")
    held_out = np.asarray([name in HELD_OUT_OBJECTS for name in OBJECTS])
    vectors = object_vectors(model, tokenizer)
    accuracy = centroid_accuracy(vectors[kept], kinds[kept], held_out[kept])
    assert accuracy >= 11 / 12
    figures = json.loads((FOLDER / "build.json").read_text())["figures"]
    assert accuracy == pytest.approx(figures["centroid_accuracy"])
    assert f"{accuracy:.3f} of\n  12 objects" in (FOLDER / "README.md").read_text()
    shuffled = np.random.default_rng(0).permutation(vectors[kept])
    assert centroid_accuracy(shuffled, kinds[kept], held_out[kept]) < 0.7


def test_tokenizer_is_lossless_and_complete(tokenizer):
    codec, rng = Codec(tokenizer), np.random.default_rng(0)
    spaces = [GoalSpace.named("2500", 0), GoalSpace.draw((9, 9, 9, 9, 9), 0, "unseen")]
    for goals in spaces:
        env = LittleZooVector(32)
        drawn = [goals.goal(int(i)) for i in rng.integers(len(goals), size=32)]
        env.reset(seed=0, options={"goals": drawn})
        for _ in range(15):
            texts = [*env.prompts(), *itertools.chain.from_iterable(env.possible_actions)]
            for text, ids in zip(texts, codec.encode(texts), strict=True):
                assert tokenizer.unk_token_id not in ids, text
                assert tokenizer.decode(ids) == text
            env.step([int(rng.integers(len(actions))) for actions in env.possible_actions])


def test_the_model_knows_what_is_possible(model, tokenizer):
    """After random play the model gives possible actions nearly all of its probability."""
    env = LittleZooVector(64)
    env.reset(seed=1)
    total = []
    for prompt, actions in zip(env.prompts(), env.possible_actions, strict=True):
        head = tokenizer(prompt, add_special_tokens=False)["input_ids"]
        mass = 0.0
        for action in set(actions):
            tail = tokenizer(action, add_special_tokens=False)["input_ids"]
            with torch.no_grad():
                logits = model(torch.tensor([head + tail])).logits[0, len(head) - 1 : -1]
            steps = torch.log_softmax(logits, -1).gather(1, torch.tensor(tail)[:, None])
            mass += float(steps.sum().exp())
        total.append(mass)
    assert np.mean(total) > 0.8


def test_random_play_has_no_held_out_object_and_pursues_no_goal():
    seen = list(itertools.islice(random_play(np.random.default_rng(0), num_envs=32), 4_000))
    text = " ".join(" ".join(triple) for triple in seen)
    assert not any(name in text for name in HELD_OUT_OBJECTS)
    # Which action is taken does not depend on the goal line: as often the named object as not.
    named = [
        action.endswith(prompt.split("\n")[0].split()[-1])
        for prompt, action, _ in seen
        if "Go to" in action
    ]
    assert 0.05 < np.mean(named) < 0.3


def test_projection_keeps_all_distances():
    states = np.random.default_rng(0).standard_normal((37, 576))
    vectors = project(states, 64, np.random.default_rng(1))
    pairs = list(itertools.combinations(range(37), 2))
    before = np.array([np.linalg.norm(states[i] - states[j]) for i, j in pairs])
    after = np.array([np.linalg.norm(vectors[i] - vectors[j]) for i, j in pairs])
    np.testing.assert_allclose(after / before, after[0] / before[0], rtol=1e-9)
    assert np.linalg.norm(vectors, axis=1).mean() == pytest.approx(1.0)


def test_centroid_accuracy_by_hand():
    vectors = np.array([[0.0], [1.0], [10.0], [11.0], [2.0], [4.0]])
    kinds = np.array([0, 0, 1, 1, 0, 1])
    held_out = np.array([False, False, False, False, True, True])
    # Centroids at 0.5 and 10.5: 2.0 is nearer to its own, 4.0 is nearer to the other.
    assert centroid_accuracy(vectors, kinds, held_out) == 0.5


def test_pretraining_learns_and_leaves_object_vectors_alone():
    tokenizer = build_tokenizer(list(OBJECTS))
    recipe = Recipe(width=16, heads=2, mlp_width=32, layers=1, steps=150, batch_size=16)
    vectors = np.random.default_rng(0).standard_normal((len(OBJECTS), 16)) / 4
    torch.manual_seed(0)
    model = make_model(recipe, tokenizer, vectors)
    other = model.get_input_embeddings().weight.detach().clone()
    loss = pretrain(model, tokenizer, recipe, np.random.default_rng(0))
    after = model.get_input_embeddings().weight.detach()
    rows = object_rows(tokenizer, OBJECTS)
    np.testing.assert_array_equal(after[rows].numpy(), vectors.astype(np.float32))
    assert (after[: rows[0]] != other[: rows[0]]).any()
    assert loss < np.log(len(tokenizer)) - 0.5


def test_a_foreign_wheel_is_refused(tmp_path):
    wheel = tmp_path / "other.whl"
    wheel.write_bytes(b"not a model")
    with pytest.raises(InputError, match="SHA-256"):
        check_wheel(wheel)
    with pytest.raises(InputError, match="does not exist"):
        check_wheel(tmp_path / "absent.whl")
