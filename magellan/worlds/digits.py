"""Digits: prompts with one right answer, for an agent that writes; no candidate actions.

A prompt names an operation and a string of digits, `reverse 314=`; its answer is the string `413`.
Categories are lengths. The answers of two operations are never right, whatever is written: prompts
of a data set that has no solution for them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from magellan.core.errors import InputError
from magellan.worlds.base import Categories, Category, Environment, register_world
from magellan.worlds.episodes import Episode
from magellan.worlds.listed import ListedWorld

OPERATIONS = ("copy", "reverse", "sort", "increment")
UNSOLVABLE = ("recall", "guess")
LONGEST = 6
"""Digits of the longest prompts."""
NO_ENVIRONMENT = "digits: this world has no environment; its agent writes an answer to a prompt"


def right_answer(operation: str, digits: str) -> str | None:
    """Return the only right answer; None where every answer is wrong."""
    if operation == "copy":
        return digits
    if operation == "reverse":
        return digits[::-1]
    if operation == "sort":
        return "".join(sorted(digits))
    if operation == "increment":  # each digit; 9 becomes 0
        return "".join(str((int(digit) + 1) % 10) for digit in digits)
    return None


def numbers(length: int, split: str) -> int:
    """Number of strings of this length in a split; held out are those that leave 1, by three."""
    held_out = (10**length - 1) // 3
    return held_out if split == "unseen" else 10**length - held_out


def digits_of(length: int, rank: int, split: str) -> str:
    """Return the string of this rank, 0..numbers-1."""
    number = 3 * rank + 1 if split == "unseen" else 3 * (rank // 2) + 2 * (rank % 2)
    return str(number).zfill(length)


class Prompt(Episode):
    """A prompt, for an agent that writes its answer."""

    horizon = 1

    def __init__(self, operation: str, digits: str) -> None:
        self.operation, self.digits = operation, digits

    def prompt(self) -> str:
        return f"{self.operation} {self.digits}="

    def possible_actions(self) -> tuple[str, ...]:
        return ()

    def act(self, action: str, rng: Any) -> bool:
        raise InputError(NO_ENVIRONMENT)


@register_world
class Digits(ListedWorld):
    """Goal spaces are mixes, such as 114-28-40-40-40-40-40: impossible, then by length."""

    name = "digits"
    label = "Digits"
    categories = Categories(
        [
            Category("impossible", feasible=False),
            *(Category(f"length_{length}") for length in range(1, LONGEST + 1)),
        ]
    )
    episode = Prompt
    answer_tokens = LONGEST + 1

    def totals(self, split: str) -> tuple[int, ...]:
        solvable = [len(OPERATIONS) * numbers(n, split) for n in range(1, LONGEST + 1)]
        return (len(UNSOLVABLE) * sum(numbers(n, split) for n in range(1, LONGEST + 1)), *solvable)

    def arguments(self, category: int, rank: int, split: str) -> dict[str, Any]:
        names = OPERATIONS if category else UNSOLVABLE
        rank, operation = divmod(rank, len(names))
        length = category
        if not category:  # any length, each as often
            rank, length = rank // LONGEST, 1 + rank % LONGEST
            rank %= numbers(length, split)
        return {"operation": names[operation], "digits": digits_of(length, rank, split)}

    def is_right(self, goal: Any, answer: str) -> bool:
        return answer == right_answer(**goal)

    def environment(self, num_envs: int) -> Environment:
        raise InputError(NO_ENVIRONMENT)

    def longest(self) -> list[tuple[str, str]]:
        digits = "0123456789"[:LONGEST]
        return [(Prompt(name, digits).prompt(), "") for name in (*OPERATIONS, *UNSOLVABLE)]

    def texts(self) -> Iterator[Mapping[str, str]]:
        prompts = [Prompt(name, "0123456789"[:LONGEST]) for name in (*OPERATIONS, *UNSOLVABLE)]
        yield {prompt.prompt(): prompt.prompt() for prompt in prompts}
        yield {digit: digit for digit in "0123456789"}
