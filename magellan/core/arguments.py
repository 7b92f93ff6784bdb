"""Command-line parsing with one-line errors, and arguments common to several commands."""

from __future__ import annotations

import argparse
import contextlib
import re
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import NoReturn, TypeAlias

from magellan.core.errors import InputError, shown, suggestion


class ArgumentParser(argparse.ArgumentParser):
    """A parser that raises InputError instead of printing its usage, as do its sub-commands."""

    def error(self, message: str) -> NoReturn:
        """Raise the message of argparse as an InputError."""
        text = message.removeprefix("argument ").replace("invalid choice: ", "")
        choice = re.fullmatch(r".*?: '(.*)' \(choose from (.*)\)", text)
        hint = suggestion(choice[1], re.findall(r"[\w-]+", choice[2])) if choice else ""
        raise InputError(f"{text}{hint}; see {self.prog} --help")

    def parse_args(  # type: ignore[override]  # the overloads with a namespace are not used
        self, args: Sequence[str] | None = None
    ) -> argparse.Namespace:
        """Parse; raise InputError for an unknown argument."""
        options, unknown = self.parse_known_args(args)
        if unknown:
            hint = suggestion(unknown[0], self._options(sys.argv[1:] if args is None else args))
            raise InputError(
                f"{shown(unknown[0])} is not an argument here{hint}; see {self.prog} --help"
            )
        return options

    def _options(self, arguments: Sequence[str]) -> list[str]:
        """Options of this parser and of the sub-command among the arguments."""
        options = list(self._option_string_actions)
        for action in self._actions:
            choices = action.choices if isinstance(action.choices, dict) else {}
            parsers = [choices[word] for word in map(str, arguments) if word in choices]
            options += [option for parser in parsers[:1] for option in parser._options(())]
        return options


Commands: TypeAlias = "argparse._SubParsersAction[ArgumentParser]"


def whole_number(text: str, least: int | None = None, most: int | None = None) -> int:
    """Parse a whole number within optional bounds; an argparse type."""
    with contextlib.suppress(ValueError):
        number = int(text)
        if (least is None or number >= least) and (most is None or number <= most):
            return number
    bounds = "whole numbers" if least is None else f"whole numbers, {least} or more"
    bounds += f", at most {most:,}" if most is not None else ""
    raise argparse.ArgumentTypeError(f"{shown(text)} is not allowed; allowed: {bounds}")


def file_path(text: str) -> Path:
    """Parse a path; an argparse type."""
    if not text or "\0" in text:
        raise argparse.ArgumentTypeError(f"{shown(text)} is not allowed; allowed: a path")
    return Path(text)


def new_file(text: str) -> Path:
    """Parse the path of a file to write; an argparse type."""
    path = file_path(text)
    if not path.name:
        raise argparse.ArgumentTypeError(f"{shown(text)} is no file; allowed: a path with a name")
    return path


# --- common arguments -----------------------------------------------------------------------------


def add_run(command: argparse.ArgumentParser) -> None:
    """Add the run that a command reads."""
    command.add_argument("run", type=file_path, help="folder of a run with its checkpoints")


def add_output(command: argparse.ArgumentParser, of: str) -> None:
    """Add the output folder of a command."""
    command.add_argument("--output", type=file_path, required=True, help=f"{of} (required)")


def add_settings(command: argparse.ArgumentParser, what: str) -> None:
    """Add `--set`, for single keys of a configuration."""
    command.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="section.key=value",
        help=f"{what}; may be repeated (default: none)",
    )


def add_modules(command: argparse.ArgumentParser) -> None:
    """Add `--module`, for user files."""
    command.add_argument(
        "--module",
        action="append",
        default=[],
        metavar="FILE",
        help="Python file with your own samplers, estimators, worlds, backends; may be repeated "
        "(default: none)",
    )


def add_number(
    command: argparse.ArgumentParser,
    name: str,
    of: str,
    default: int,
    least: int = 1,
    most: int | None = None,
) -> None:
    """Add an option for a whole number within bounds."""
    number, text = partial(whole_number, least=least, most=most), f"{of} (default: %(default)s)"
    command.add_argument(name, type=number, default=default, metavar="N", help=text)


def add_flag(command: argparse.ArgumentParser, name: str, does: str) -> None:
    """Add an option without a value, off by default."""
    command.add_argument(name, action="store_true", help=f"{does} (default: no)")


def add_seed(command: argparse.ArgumentParser, of: str) -> None:
    """Add `--seed`, 0 by default."""
    seed = partial(whole_number, least=0)
    command.add_argument("--seed", type=seed, default=0, help=f"{of} (default: %(default)s)")
