"""Command lines: wrong arguments are input errors like all others, one line each."""

from __future__ import annotations

import argparse
import contextlib
import re
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

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


if TYPE_CHECKING:
    Commands = argparse._SubParsersAction[ArgumentParser]
else:
    Commands = argparse._SubParsersAction


def whole_number(text: str, least: int | None = None, most: int | None = None) -> int:
    """Type of an argument that is a whole number, within bounds where there are some."""
    with contextlib.suppress(ValueError):
        number = int(text)
        if (least is None or number >= least) and (most is None or number <= most):
            return number
    bounds = "whole numbers" if least is None else f"whole numbers, {least} or more"
    bounds += f", at most {most:,}" if most is not None else ""
    raise argparse.ArgumentTypeError(f"{shown(text)} is not allowed; allowed: {bounds}")


def file_path(text: str) -> Path:
    """Type of an argument that names a file or a folder."""
    if not text or "\0" in text:
        raise argparse.ArgumentTypeError(f"{shown(text)} is not allowed; allowed: a path")
    return Path(text)


# --- what several commands have -------------------------------------------------------------------


def add_run(command: argparse.ArgumentParser) -> None:
    """The run that a command reads."""
    command.add_argument("run", type=file_path, help="folder of a run with its checkpoints")


def add_output(command: argparse.ArgumentParser, of: str) -> None:
    """The folder that a command makes."""
    command.add_argument("--output", type=file_path, required=True, help=f"{of} (required)")


def add_settings(command: argparse.ArgumentParser, what: str) -> None:
    """Keys of a configuration, each by itself."""
    command.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="section.key=value",
        help=f"{what}; may be repeated (default: none)",
    )


def add_modules(command: argparse.ArgumentParser) -> None:
    """Files of the user."""
    command.add_argument(
        "--module",
        action="append",
        default=[],
        metavar="FILE",
        help="Python file with samplers, estimators, worlds, backends of your own; may be repeated "
        "(default: none)",
    )


def add_seed(command: argparse.ArgumentParser, of: str) -> None:
    """A seed, 0 where none is given."""
    seed = partial(whole_number, least=0)
    command.add_argument("--seed", type=seed, default=0, help=f"{of} (default: %(default)s)")
