"""Pretraining data of the repository's models, as one description per world."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from transformers import PreTrainedTokenizerFast

from magellan.pretraining.probe import Reader

Triple = tuple[str, str, str]
"""Prompt, action, next observation."""


@dataclass(frozen=True)
class Answers:
    """Indices of the right answers.

    of_prompt: int64 (texts, questions).
    rows, places: text and token of the words with questions, int64 (words,).
    of_words: int64 (words, questions).
    """

    of_prompt: np.ndarray
    rows: np.ndarray
    places: np.ndarray
    of_words: np.ndarray


@dataclass(frozen=True)
class Questions:
    """Questions about a text, and their right answers.

    named: place in a prompt of the token that the goal names; which token it is, is a question too.
    of_prompt: questions and their numbers of answers, asked at the last token of a prompt.
    about_named: number of these, the first ones, about the named thing.
    of_words: questions asked at words of the text, about the text up to the word. Where there are
        any, rare answers weigh more.
    answers: texts -> right answers.
    """

    named: int
    of_prompt: Sequence[tuple[str, int]]
    about_named: int
    of_words: Sequence[tuple[str, int]]
    answers: Callable[[Sequence[Triple]], Answers]


@dataclass(frozen=True)
class Language:
    """Words and texts of a world.

    things: words with given, frozen vectors, training things first.
    trained: number of training things; the others are in no text of pretraining.
    tokenizer: makes the tokenizer.
    vectors: (wheel or None, width, random stream) -> vectors of the things, (things, width).
    play: (random stream, whether there are lessons) -> endless texts of random play.
    invent: (vectors of the training things, random stream) -> vectors of invented ones, same shape.
    questions: of the reading lessons.
    figures: vectors -> figures for the record.
    probe: reader of the finished model -> AUC for the record.
    common: first component of the vectors of all things. Layers without biases need one to attend
        to a place in a text, such as "the item before =", whatever thing stands there.
    """

    things: tuple[str, ...]
    trained: int
    tokenizer: Callable[[], PreTrainedTokenizerFast]
    vectors: Callable[[Path | None, int, np.random.Generator], np.ndarray]
    play: Callable[[np.random.Generator, bool], Iterator[Triple]]
    invent: Callable[[np.ndarray, np.random.Generator], np.ndarray]
    questions: Questions
    figures: Callable[[np.ndarray], dict[str, Any]]
    probe: Callable[[Reader], dict[str, dict[str, float]]]
    common: float = 0.0
