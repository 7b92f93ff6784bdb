"""What a model of the repository is pretrained on: one description for each world."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from transformers import PreTrainedTokenizerFast

from magellan.pretraining.probe import Reader

Triple = tuple[str, str, str]
"""Prompt, action, what is seen next."""


@dataclass(frozen=True)
class Answers:
    """Numbers of the right answers.

    of_prompt: int64 (texts, questions).
    rows, places: of the words of which something is asked, text and token in it, int64 (words,).
    of_words: int64 (words, questions).
    """

    of_prompt: np.ndarray
    rows: np.ndarray
    places: np.ndarray
    of_words: np.ndarray


@dataclass(frozen=True)
class Questions:
    """What is asked of a text, and what a reader should answer.

    named: place in a prompt of the token that the goal names. Which one it is, is asked too.
    of_prompt: questions with the number of their answers, put at the last token of a prompt.
    about_named: the first so many of them are about the named thing.
    of_words: the same, put at words of the text, about what the text says up to there.
    answers: from texts and the tokens of their prompts.
    """

    named: int
    of_prompt: Sequence[tuple[str, int]]
    about_named: int
    of_words: Sequence[tuple[str, int]]
    answers: Callable[[Sequence[Triple], Sequence[np.ndarray]], Answers]


@dataclass(frozen=True)
class Language:
    """Words and texts of a world.

    things: words whose vectors are given and stay as they are, those of training first.
    trained: number of these; the others are in no text of pretraining.
    tokenizer: makes the tokenizer.
    vectors: of the things, (things, width), from a wheel if any, a width and a stream.
    play: endless texts of random play, from a stream and whether the model is to read.
    invent: vectors of other things like those of training, (trained, width), from theirs.
    questions: what reading lessons ask, from the tokenizer.
    figures: of the vectors, for the card.
    probe: of the model when it is made, for the card.
    card: writes the card beside the weights, from recipe and figures.
    """

    things: tuple[str, ...]
    trained: int
    tokenizer: Callable[[], PreTrainedTokenizerFast]
    vectors: Callable[[Path | None, int, np.random.Generator], np.ndarray]
    play: Callable[[np.random.Generator, bool], Iterator[Triple]]
    invent: Callable[[np.ndarray, np.random.Generator], np.ndarray]
    questions: Callable[[PreTrainedTokenizerFast], Questions]
    figures: Callable[[np.ndarray], dict[str, Any]]
    probe: Callable[[Reader], dict[str, dict[str, float]]]
    card: Callable[[Path, dict[str, Any], dict[str, Any]], None]
