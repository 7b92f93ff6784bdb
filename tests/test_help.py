"""The help of every option of every command states its default."""

import argparse

from analysis.__main__ import _parser as analysis_parser
from magellan.cli import _parser as magellan_parser


def commands():
    for program, parser in (("magellan", magellan_parser()), ("analysis", analysis_parser())):
        (choice,) = (a for a in parser._actions if isinstance(a, argparse._SubParsersAction))
        yield from ((f"{program} {name}", command) for name, command in choice.choices.items())


def test_help_states_the_default():
    for name, command in commands():
        assert command.format_help()
        for action in command._actions:
            if not action.option_strings or action.dest == "help":
                continue
            text, where = action.help % vars(action), (name, action.option_strings[0])
            if action.required:
                assert text.endswith("(required)"), where
                continue
            assert "(default: " in text, where
            if action.default not in (None, False, []):
                assert f"(default: {action.default})" in text, where
