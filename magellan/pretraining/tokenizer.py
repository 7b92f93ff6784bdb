"""Lossless word-level tokenizers with single tokens for fixed phrases; default: Little-Zoo's."""

from __future__ import annotations

from collections.abc import Iterable

from tokenizers import Regex, Tokenizer, decoders, pre_tokenizers
from tokenizers.models import WordLevel
from transformers import PreTrainedTokenizerFast

SPECIAL = ("<pad>", "<unk>", "<eos>")
PHRASES = (
    "Goal:",
    "\nYou see:",
    "\nYou are standing on:",
    "\nInventory (0/2):",
    "\nInventory (1/2):",
    "\nInventory (2/2):",
    "\nAction: ",
    "Go to",
    "Release",
    "Grasp",
    " Grasp",
    " Grow",
    " nothing",
    " empty",
    " baby",
    " seed",
    ",",
    " ",
)
_LINES = r"\nYou see:|\nYou are standing on:|\nInventory \(\d/2\):|\nAction: |Goal:"
_PATTERN = _LINES + r"|Go to| ?[A-Za-z]+|,| "


def build_tokenizer(
    objects: list[str], phrases: tuple[str, ...] = PHRASES, pattern: str = _PATTERN
) -> PreTrainedTokenizerFast:
    """Tokenizer with the vocabulary: phrases, then ` <object>` for each object.

    pattern: regular expression that splits texts into these words.
    """
    words = [*SPECIAL, *phrases, *(f" {name}" for name in objects)]
    return word_tokenizer(words, pre_tokenizers.Split(Regex(pattern), behavior="isolated"))


def word_tokenizer(
    words: Iterable[str], split: pre_tokenizers.PreTokenizer
) -> PreTrainedTokenizerFast:
    """Tokenizer with one token per word, in this order; `words` includes `SPECIAL`.

    split: splits texts into words.
    """
    tokenizer = Tokenizer(WordLevel({word: i for i, word in enumerate(words)}, unk_token="<unk>"))
    tokenizer.pre_tokenizer = split
    tokenizer.decoder = decoders.Fuse()
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token="<pad>",
        unk_token="<unk>",
        eos_token="<eos>",
        clean_up_tokenization_spaces=False,
    )
