"""Word-level tokenizers; lossless, and fixed phrases are one token. The default is Little-Zoo's."""

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
    """Tokenizer whose vocabulary is the phrases and ` <object>` for each object, in this order.

    pattern: regular expression that cuts texts into these words.
    """
    words = [*SPECIAL, *phrases, *(f" {name}" for name in objects)]
    return of_words(words, pre_tokenizers.Split(Regex(pattern), behavior="isolated"))


def of_words(words: Iterable[str], split: pre_tokenizers.Split) -> PreTrainedTokenizerFast:
    """Tokenizer with one token for each of these words, in this order; `SPECIAL` are among them.

    split: cuts texts into words.
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
