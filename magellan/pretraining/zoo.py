"""The language of Little-Zoo: vectors from SmolLM2, random play, questions about the scene."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.neighbors import NearestCentroid

from magellan.pretraining import reading
from magellan.pretraining.language import Answers, Language, Questions, Triple
from magellan.pretraining.probe import probe, reader_of
from magellan.pretraining.smollm2 import load_from_wheel
from magellan.pretraining.tokenizer import build_tokenizer
from magellan.worlds.little_zoo import Goal, LittleZooVector
from magellan.worlds.little_zoo.vocabulary import (
    HELD_OUT_OBJECTS,
    KIND_OF,
    KINDS,
    NUM_TRAIN,
    OBJECTS,
    TRAIN_OBJECTS,
    TRAIN_TYPES,
)

LAYER = 12
TEMPLATES = ("You see: {}", "Goal: Grow {}", "the {}", "Go to {}", "You are standing on: {}")
SCENE_SIZE = 4


def random_goal(rng: np.random.Generator, distinct: bool = False) -> Goal:
    """A scene of four objects with uniform kinds, and the text of a goal that is not pursued.

    Half of the goals name an object of the scene, the others any training object. Drawn by place,
    objects that occur twice would be named more often, and random play goes to them more often: a
    model that reads the goal would learn to go there. `distinct` therefore draws among the
    different objects of the scene.
    """
    kinds = rng.integers(len(TRAIN_TYPES), size=SCENE_SIZE)
    scene = tuple(TRAIN_TYPES[kind][rng.integers(len(TRAIN_TYPES[kind]))] for kind in kinds)
    candidates = tuple(dict.fromkeys(scene)) if distinct else scene
    named = candidates if rng.random() < 0.5 else TRAIN_OBJECTS
    verb = ("Grasp", "Grow")[rng.integers(2)]
    return Goal(
        text=f"{verb} {named[rng.integers(len(named))]}", objects=scene, category="impossible"
    )


def random_play(
    rng: np.random.Generator, num_envs: int = 256, length: int = 16, distinct: bool = False
) -> Iterator[tuple[str, str, str]]:
    """Endless (prompt, action, next observation) of random play, `length` steps a scene.

    distinct: see `random_goal`.
    """
    env = LittleZooVector(num_envs)
    env.reset(seed=int(rng.integers(2**31)))
    while True:
        env.reset(options={"goals": [random_goal(rng, distinct) for _ in range(num_envs)]})
        for _ in range(length):
            prompts, candidates = env.prompts(), env.possible_actions
            counts = np.asarray([len(actions) for actions in candidates])
            taken = (rng.random(num_envs) * counts).astype(np.int64).tolist()
            for episode, prompt, possible, number in zip(
                env.episodes, prompts, candidates, taken, strict=True
            ):
                episode.act(*episode.resolve(possible[number]))  # beyond the end of an episode
                yield prompt, possible[number], "\n" + episode.observation


def project(states: np.ndarray, width: int, rng: np.random.Generator) -> np.ndarray:
    """Centre, rotate at random into `width` dimensions, and scale to mean norm 1.

    An isometry up to scale if width >= n - 1, as n centred states span at most n - 1 directions. No
    label is used.

    Args:
        states: (objects, d).

    Returns:
        (objects, width).
    """
    centred = states - states.mean(axis=0)
    left, singular, _ = np.linalg.svd(centred, full_matrices=False)
    rank = min(width, len(singular))
    coordinates = left[:, :rank] * singular[:rank]
    rotation = np.linalg.qr(rng.standard_normal((width, width)))[0][:rank]
    vectors = coordinates @ rotation
    return vectors / np.linalg.norm(vectors, axis=1).mean()


def centroid_accuracy(vectors: np.ndarray, kinds: np.ndarray, held_out: np.ndarray) -> float:
    """Share of held-out objects nearest to the centroid of their own kind's training objects.

    Args:
        vectors: (objects, width).
        kinds: (objects,) integer kind of each object.
        held_out: (objects,) bool.
    """
    nearest = NearestCentroid().fit(vectors[~held_out], kinds[~held_out])
    return float(nearest.score(vectors[held_out], kinds[held_out]))


def object_vectors(wheel: Path | None, width: int, rng: np.random.Generator) -> np.ndarray:
    """Vectors of the objects from SmolLM2, (objects, width).

    Projections of their mean hidden state of LAYER at the last token over TEMPLATES.
    """
    read = reader_of(*load_from_wheel(wheel), LAYER, at_once=1)
    states = [read([text.format(name) for text in TEMPLATES]).mean(axis=0) for name in OBJECTS]
    return project(np.stack(states), width, rng)


def embedding_figures(vectors: np.ndarray) -> dict[str, Any]:
    """Nearest-centroid accuracy of held-out objects, over the four kinds that have any."""
    kinds = np.asarray(KIND_OF)
    held_out = np.asarray([name in HELD_OUT_OBJECTS for name in OBJECTS])
    rows = kinds != KINDS.index("supply")
    accuracy = centroid_accuracy(vectors[rows], kinds[rows], held_out[rows])
    return {"centroid_accuracy": accuracy, "held_out_objects": int(held_out.sum())}


def questions(asked: Sequence[int] = range(len(reading.QUESTIONS))) -> Questions:
    """These of the questions of `magellan.pretraining.reading`, at the end of a prompt."""
    about_named, empty = sum(place < reading.ABOUT_NAMED for place in asked), np.zeros((0, 0), int)

    def answers(triples: Sequence[Triple]) -> Answers:
        of_prompt = np.array([reading.right_answers(prompt) for prompt, *_ in triples])
        return Answers(of_prompt[:, asked], empty, empty, empty)

    chosen = [reading.QUESTIONS[place] for place in asked]
    return Questions(reading.NAMED, chosen, about_named, (), answers)


ZOO = Language(
    things=OBJECTS,
    trained=NUM_TRAIN,
    tokenizer=lambda: build_tokenizer(list(OBJECTS)),
    vectors=object_vectors,
    play=lambda rng, reads: random_play(rng, distinct=reads),
    invent=reading.invented_objects,
    questions=questions(),
    figures=embedding_figures,
    probe=probe,
)
ZOO_NO_KINDS = dataclasses.replace(ZOO, questions=questions(reading.NOT_ABOUT_KINDS))
