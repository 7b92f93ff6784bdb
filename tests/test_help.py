"""The help of every option of every command states its default."""

import argparse

import pytest

from analysis.__main__ import _parser as analysis_parser
from magellan.cli import _parser as magellan_parser


def commands():
    for program, parser in (("magellan", magellan_parser()), ("analysis", analysis_parser())):
        (choice,) = (a for a in parser._actions if isinstance(a, argparse._SubParsersAction))
        yield from ((f"{program} {name}", command) for name, command in choice.choices.items())


def options():
    for name, command in commands():
        for action in command._actions:
            if action.option_strings and action.dest != "help":
                yield pytest.param(action, id=f"{name} {action.option_strings[0]}")


@pytest.mark.parametrize("action", list(options()))
def test_help_states_the_default(action):
    text = action.help % vars(action)
    if action.required:
        assert text.endswith("(required)")
        return
    assert "(default: " in text
    if action.default not in (None, False, []):
        assert f"(default: {action.default})" in text


def test_help_of_every_command_can_be_written():
    for _, command in commands():
        assert command.format_help()
