"""The committed backbone, and the pieces that build it."""

import itertools

import numpy as np
import pytest

from magellan.core.codec import Codec
from magellan.model.files import check_backbone
from magellan.pretraining.build import object_rows
from magellan.pretraining.play import random_play
from magellan.pretraining.wheel import centroid_accuracy
from magellan.worlds.little_zoo import GoalSpace, LittleZooVector
from magellan.worlds.little_zoo.vocabulary import HELD_OUT_OBJECTS, KIND_OF, KINDS, OBJECTS

FOLDER = check_backbone("zoo-mini")


def test_held_out_objects_sit_with_their_kind(model, tokenizer, figures):
    kinds = np.asarray(KIND_OF)
    kept = kinds != KINDS.index("supply")
    held_out = np.asarray([name in HELD_OUT_OBJECTS for name in OBJECTS])
    rows = object_rows(tokenizer, OBJECTS)
    vectors = model.get_input_embeddings().weight.detach().numpy()[rows]
    accuracy = centroid_accuracy(vectors[kept], kinds[kept], held_out[kept])
    assert accuracy >= 11 / 12
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
            _, _, *ends, _ = env.step([int(rng.integers(len(a))) for a in env.possible_actions])
            env.reset(options={"reset_mask": ends[0] | ends[1]})


def test_random_play_has_no_held_out_object_and_pursues_no_goal():
    plays = list(itertools.islice(random_play(np.random.default_rng(0), num_envs=32), 4_000))
    text = " ".join(" ".join(play) for play in plays)
    assert not any(name in text for name in HELD_OUT_OBJECTS)
    # Which action is taken does not depend on the goal line: as often the named object as not.
    named = [
        action.endswith(prompt.split("\n")[0].split()[-1])
        for prompt, action, _ in plays
        if "Go to" in action
    ]
    assert 0.05 < np.mean(named) < 0.3
