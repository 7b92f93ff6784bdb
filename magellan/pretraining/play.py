"""Random play as text: no goal is pursued, no reward is read, no held-out object appears."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from magellan.worlds.little_zoo import Goal, LittleZooVector
from magellan.worlds.little_zoo.vocabulary import TRAIN_OBJECTS, TRAIN_TYPES

SCENE_SIZE = 4


def random_goal(rng: np.random.Generator, distinct: bool = False) -> Goal:
    """A scene whose four objects have uniform kinds, and a goal text that nobody will pursue.

    The goal names an object of the scene half of the time, any training object otherwise. Where
    the object is drawn from the four places, those that are there twice are named more often, and
    random play goes to them more often: a model that reads the goal line would learn to. So
    `distinct` draws it from the different objects of the scene.
    """
    kinds = rng.integers(len(TRAIN_TYPES), size=SCENE_SIZE)
    scene = tuple(TRAIN_TYPES[kind][rng.integers(len(TRAIN_TYPES[kind]))] for kind in kinds)
    there = tuple(dict.fromkeys(scene)) if distinct else scene
    named = there if rng.random() < 0.5 else TRAIN_OBJECTS
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
            prompts, possible = env.prompts(), env.possible_actions
            counts = np.asarray([len(actions) for actions in possible])
            choices = (rng.random(num_envs) * counts).astype(np.int64)
            observations = env.step(choices)[0]
            for row, choice in enumerate(choices):
                yield prompts[row], possible[row][choice], "\n" + observations[row]
