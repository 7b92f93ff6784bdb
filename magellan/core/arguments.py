"""Command lines: wrong arguments are input errors like all others, one line each."""

from __future__ import annotations

import argparse
import contextlib
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from magellan.core.errors import InputError, meant, shown


class ArgumentParser(argparse.ArgumentParser):
    """A parser that raises InputError instead of printing its usage; sub-commands inherit it."""

    def error(self, message: str) -> NoReturn:
        """Raise what argparse would have printed."""
        text = message.removeprefix("argument ").replace("invalid choice: ", "")
        choice = re.fullmatch(r".*?: '(.*)' \(choose from (.*)\)", text)
        near = meant(choice[1], re.findall(r"[\w-]+", choice[2])) if choice else ""
        raise InputError(f"{text}{near}; see {self.prog} --help")

    def parse_args(  # type: ignore[override]  # the overloads with a namespace are not used
        self, args: Sequence[str] | None = None
    ) -> argparse.Namespace:
        """Parse, and name every argument that no command knows."""
        options, unknown = self.parse_known_args(args)
        if unknown:
            near = meant(unknown[0], self._options(sys.argv[1:] if args is None else args))
            raise InputError(
                f"{shown(unknown[0])} is not an argument here{near}; see {self.prog} --help"
            )
        return options

    def _options(self, words: Sequence[str]) -> list[str]:
        """Options of this parser and of the command that these words are of."""
        found = list(self._option_string_actions)
        for action in self._actions:
            choices = action.choices if isinstance(action.choices, dict) else {}
            named = [choices[word] for word in map(str, words) if word in choices]
            found += [option for parser in named[:1] for option in parser._options(())]
        return found


def whole_number(text: str) -> int:
    """Type of an argument that is a whole number."""
    with contextlib.suppress(ValueError):
        return int(text)
    raise argparse.ArgumentTypeError(f"{shown(text)} is not allowed; allowed: whole numbers")


def file_path(text: str) -> Path:
    """Type of an argument that names a file or a folder."""
    if not text or "\0" in text:
        raise argparse.ArgumentTypeError(f"{shown(text)} is not allowed; allowed: a path")
    return Path(text)
