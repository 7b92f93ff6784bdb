"""Random play of Little-Zoo as text, without goals pursued, rewards or held-out objects."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from magellan.worlds.little_zoo import Goal, LittleZooVector
from magellan.worlds.little_zoo.vocabulary import TRAIN_OBJECTS, TRAIN_TYPES

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
