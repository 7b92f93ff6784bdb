"""Linear probe: does the hidden state of a prompt encode whether its goal is possible?

A logistic regression is fit on the hidden state of the last prompt token (after the final norm, as
the heads of the agent read it) at the start of episodes with goals on training objects, and tested
on other goals on training objects and on goals on held-out objects. Half of the goals of each set
are possible. The result is the area under the ROC curve (AUC).

Sets, each for training and for held-out objects:

- `grasp`: possible goals, and impossible ones, whose object is absent.
- `grow`: possible goals, a third each of plants, herbivores and carnivores; impossible ones uniform
  over the raw space, as in the goal spaces of Gaven et al. 2025 (mostly the object or water is
  absent, or the object is furniture or water).
- `grow_near`: the same possible goals; impossible ones differ from a possible one in one object of
  the scene: the target, water, or food is missing.

A held-out object of the raw space is always in its scene, so half of the impossible `grow` goals,
and all impossible `grasp` goals, have another held-out object in its place: seeing some held-out
object is not enough, it must be the one that the goal names.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from torch.nn.utils.rnn import pad_sequence
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from magellan.worlds.little_zoo import text
from magellan.worlds.little_zoo.codes import CATEGORIES, IMPOSSIBLE, SPLITS, categories_of, decode
from magellan.worlds.little_zoo.dynamics import GRASP, GROW, VERBS, goal_text
from magellan.worlds.little_zoo.goals import draw_codes
from magellan.worlds.little_zoo.vocabulary import NUM_TRAIN

SETS = ("grasp", "grow", "grow_near")
RIDGE = 1e-3
"""Penalty on half the squared weights, beside the mean loss."""
Reader = Callable[[list[str]], np.ndarray]
"""Prompts -> states of their last tokens, (prompts, width)."""


@dataclass(frozen=True)
class Goals:
    """Goals as numbers: targets (n,), scenes (n, 4), possible bool (n,); the same verb for all."""

    verb: int
    targets: np.ndarray
    scenes: np.ndarray
    possible: np.ndarray

    @property
    def prompts(self) -> list[str]:
        """Prompts at the start of an episode, standing on no object."""
        rows = zip(self.targets.tolist(), self.scenes.tolist(), strict=True)
        return [text.initial_prompt(goal_text(self.verb, t), tuple(scene)) for t, scene in rows]


def probe_goals(name: str, split: str, size: int, seed: int) -> Goals:
    """`size` goals of one of the SETS and a split, half of them possible, in random order."""
    rng = np.random.default_rng([seed, SETS.index(name), list(SPLITS).index(split)])
    verb, half = (GRASP if name == "grasp" else GROW), size // 2
    codes = _draw_possible(verb, half, split, rng)
    if name == "grow_near":
        targets, scenes = _impossible_by_one_object(
            _draw_possible(verb, half, split, rng), split, rng
        )
    else:
        targets, scenes = _impossible_uniform(verb, half, split, rng)
    _, first, second = decode(codes, split)
    order = rng.permutation(2 * half)
    return Goals(
        verb,
        np.concatenate([first, targets])[order],
        np.concatenate([second, scenes])[order],
        (np.arange(2 * half) < half)[order],
    )


def _draw_possible(verb: int, count: int, split: str, rng: np.random.Generator) -> np.ndarray:
    """Codes of possible goals of a verb, equally many of each category, int64 (count,)."""
    feasible = CATEGORIES[1:2] if verb == GRASP else CATEGORIES[2:]
    mix = [-(-count // len(feasible)) if name in feasible else 0 for name in CATEGORIES]
    return rng.permutation(draw_codes(tuple(mix), int(rng.integers(2**31)), split))[:count]


def _impossible_uniform(
    verb: int, count: int, split: str, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Targets and scenes of impossible goals, uniform over the raw space (see the module)."""
    space = SPLITS[split]
    codes = _encode(
        rng.integers(len(space.targets), size=64 * count),
        np.full(64 * count, verb),
        rng.integers(space.scenes, size=64 * count),
        split,
    )
    if split == "train":
        codes = codes[categories_of(codes, split) == IMPOSSIBLE][:count]
        return decode(codes, split)[1:]
    absent = count if verb == GRASP else count // 2
    _, targets, scenes = decode(codes[:absent], split)
    scenes[:, 0] = _other_objects(targets, rng)
    rest = codes[absent:]
    rest = rest[categories_of(rest, split) == IMPOSSIBLE][: count - absent]
    _, rest_targets, rest_scenes = decode(rest, split)
    return np.concatenate([targets, rest_targets]), np.concatenate([scenes, rest_scenes])


def _impossible_by_one_object(
    codes: np.ndarray, split: str, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Targets and scenes of impossible goals that differ from possible ones in one object."""
    verbs, targets, scenes = decode(codes, split)
    scenes, left = scenes.copy(), np.arange(len(codes))
    original = scenes.copy()
    powers = NUM_TRAIN ** np.arange(SPLITS[split].free - 1, -1, -1)
    digits = np.searchsorted(SPLITS[split].targets, targets)
    while len(left):
        place = rng.integers(scenes.shape[1], size=len(left))
        scenes[left] = original[left]
        scenes[left, place] = rng.integers(NUM_TRAIN, size=len(left))
        swapped = (place == 0) & (split != "train")
        scenes[left[swapped], 0] = _other_objects(targets[left[swapped]], rng)
        number = scenes[left][:, -len(powers) :] @ powers
        new = _encode(digits[left], verbs[left], number, split)
        left = left[(categories_of(new, split) != IMPOSSIBLE) & ~swapped]
    return targets, scenes


def _encode(digits: np.ndarray, verbs: np.ndarray, scene: np.ndarray, split: str) -> np.ndarray:
    return (digits * len(VERBS) + verbs) * SPLITS[split].scenes + scene


def _other_objects(targets: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Another held-out object for each held-out target, (n,)."""
    names = np.asarray(SPLITS["unseen"].targets)
    steps = rng.integers(1, len(names), size=len(targets))
    return names[(np.searchsorted(names, targets) + steps) % len(names)]


def probe(
    reader: Reader,
    fit: int = 4_000,
    test: int = 2_000,
    seed: int = 0,
    sets: Sequence[str] = SETS,
    draw: Callable[[str, str, int, int], Any] = probe_goals,
) -> dict[str, dict[str, float]]:
    """AUC of each of the sets: {"grasp": {"train": ..., "unseen": ...}, ...}.

    draw: (set, split, size, seed) -> goals with `prompts` and `possible`, bool (size,).
    """
    figures = {}
    for name in sets:
        train = draw(name, "train", fit + test, seed)
        unseen = draw(name, "unseen", test, seed)
        train_states, unseen_states = reader(train.prompts), reader(unseen.prompts)
        regression = LogisticRegression(C=1 / (RIDGE * fit), solver="newton-cholesky")
        fitted = make_pipeline(StandardScaler(), regression)
        fitted.fit(train_states[:fit], train.possible[:fit])
        tested = {
            "train": (train.possible[fit:], train_states[fit:]),
            "unseen": (unseen.possible, unseen_states),
        }
        figures[name] = {
            split: float(roc_auc_score(possible, fitted.decision_function(states)))
            for split, (possible, states) in tested.items()
        }
    return figures


def reader_of(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    layer: int | None = None,
    at_once: int = 128,
) -> Reader:
    """States of a causal model after its final norm, or of one of its layers (1 is the first)."""

    @torch.no_grad()
    def read(prompts: list[str]) -> np.ndarray:
        states = []
        for start in range(0, len(prompts), at_once):
            encoded = tokenizer(prompts[start : start + at_once])["input_ids"]
            tokens = pad_sequence([torch.tensor(ids) for ids in encoded], batch_first=True)
            output = model.base_model(tokens, output_hidden_states=layer is not None)
            hidden = output.last_hidden_state if layer is None else output.hidden_states[layer]
            last = torch.tensor([len(ids) - 1 for ids in encoded])
            states.append(hidden[torch.arange(len(tokens)), last].numpy())
        return np.concatenate(states)

    return read
