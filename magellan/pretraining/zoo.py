"""The language of Little-Zoo: vectors from SmolLM2, random play, questions about the scene."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from transformers import PreTrainedTokenizerFast

from magellan.pretraining import reading
from magellan.pretraining.language import Answers, Language, Questions, Triple
from magellan.pretraining.play import random_play
from magellan.pretraining.probe import probe
from magellan.pretraining.tokenizer import build_tokenizer
from magellan.pretraining.wheel import centroid_accuracy, object_states, project, required_wheel
from magellan.worlds.little_zoo.vocabulary import (
    HELD_OUT_OBJECTS,
    KIND_OF,
    KINDS,
    NUM_TRAIN,
    OBJECTS,
)


def object_vectors(wheel: Path | None, width: int, rng: np.random.Generator) -> np.ndarray:
    """Vectors of the objects from SmolLM2, (objects, width)."""
    return project(object_states(required_wheel(wheel), list(OBJECTS)), width, rng)


def embedding_figures(vectors: np.ndarray) -> dict[str, Any]:
    """Nearest-centroid accuracy of held-out objects, over the four kinds that have any."""
    kinds = np.asarray(KIND_OF)
    held_out = np.asarray([name in HELD_OUT_OBJECTS for name in OBJECTS])
    rows = kinds != KINDS.index("supply")
    accuracy = centroid_accuracy(vectors[rows], kinds[rows], held_out[rows])
    return {"centroid_accuracy": accuracy, "held_out_objects": int(held_out.sum())}


def questions(tokenizer: PreTrainedTokenizerFast, kinds: bool = True) -> Questions:
    """The questions of `magellan.pretraining.reading`, all asked at the end of a prompt.

    kinds: ask those about kinds of objects, too.
    """
    ids, empty = reading.Ids.of(tokenizer), np.zeros((0, 0), dtype=np.int64)
    asked = range(len(reading.QUESTIONS)) if kinds else reading.NOT_ABOUT_KINDS
    about_named = sum(place < reading.ABOUT_NAMED for place in asked)

    def answers(_: Sequence[Triple], prompts: Sequence[np.ndarray]) -> Answers:
        return Answers(reading.right_answers(prompts, ids)[:, asked], empty, empty, empty)

    chosen = [reading.QUESTIONS[place] for place in asked]
    return Questions(reading.NAMED, chosen, about_named, (), answers)


ZOO = Language(
    things=OBJECTS,
    trained=NUM_TRAIN,
    tokenizer=lambda: build_tokenizer(list(OBJECTS)),
    vectors=object_vectors,
    play=lambda rng, reads: random_play(rng, distinct=reads),
    invent=reading.invented_objects,
    questions=questions,
    figures=embedding_figures,
    probe=probe,
)
ZOO_NO_KINDS = dataclasses.replace(ZOO, questions=partial(questions, kinds=False))
