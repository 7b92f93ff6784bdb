"""Command-line parsing with one-line errors, and arguments common to several commands."""

from __future__ import annotations

import argparse
import contextlib
import io
import re
import sys
from collections.abc import Callable, Sequence
from functools import partial
from operator import methodcaller
from pathlib import Path
from typing import Any, NoReturn

from magellan.core.errors import InputError, shown, suggestion


class ArgumentParser(argparse.ArgumentParser):
    """A parser that raises InputError instead of printing its usage, as do its sub-commands."""

    def add_argument(self, *names: str, **options: Any) -> argparse.Action:
        """Add an argument; the help of an option ends with its default, unless it says it."""
        action = super().add_argument(*names, **options)
        if action.option_strings and "(default:" not in str(action.help) and names[0] != "-h":
            none = {"None": "none", "False": "no", "[]": "none"}
            default = f"default: {none.get(str(action.default), '%(default)s')}"
            action.help = f"{action.help} ({'required' if action.required else default})"
        return action

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


# --- commands -------------------------------------------------------------------------------------


Function = Callable[[argparse.Namespace], None]
Option = Callable[[argparse.ArgumentParser], Any]

option: Callable[..., Option] = partial(methodcaller, "add_argument")
path, output = partial(option, type=file_path), partial(option, type=new_file)
flag = partial(option, action="store_true")
several = partial(option, action="append", default=[])
"""Arguments of a command: any, a file or folder, a file to write, a switch, a repeated one."""


def number(name: str, least: int = 1, most: int | None = None, **options: Any) -> Option:
    """An option for a whole number within bounds."""
    return option(name, type=partial(whole_number, least=least, most=most), **options)


class Commands:
    """A program of commands: decorates the function of each, `_NAME`; its docstring is the help."""

    def __init__(self, prog: str, description: str) -> None:
        self.parser = ArgumentParser(prog=prog, description=description)
        self._added = self.parser.add_subparsers(required=True, metavar="COMMAND")

    def __call__(self, *options: Option) -> Callable[[Function], Function]:
        def add(function: Function) -> Function:
            text = str(function.__doc__)
            text = text[0].lower() + text[1:].rstrip(".")
            subparser = self._added.add_parser(function.__name__[1:], help=text)
            subparser.set_defaults(act=function)
            for add_to in options:
                add_to(subparser)
            return function

        return add

    def run(self, arguments: Sequence[str] | None) -> int:
        """Run one command; return its exit status. Its errors are raised."""
        if isinstance(sys.stdout, io.TextIOWrapper):  # not closed: escape what its encoding lacks
            sys.stdout.reconfigure(errors="backslashreplace")
        try:
            options = self.parser.parse_args(arguments)
            options.act(options)
            print(end="", flush=True)
        except KeyboardInterrupt:
            print("stopped", file=sys.stderr)
            return 130
        except BrokenPipeError:
            sys.stderr.close()
        return 0


command = Commands("python -m magellan", "MAGELLAN bench: goal samplers for LLM agents.")
RUN = path("run", help="folder of a run with its checkpoints")
FOLDER = partial(path, "--output", required=True)
SEED = partial(number, "--seed", least=0, default=0)
SET = partial(several, "--set", metavar="section.key=value")
MODULES = several(
    "--module",
    metavar="FILE",
    help="Python file with your own samplers, estimators, worlds, backends; may be repeated",
)
