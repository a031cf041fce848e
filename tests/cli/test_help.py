"""`hybrid-lab COMMAND --help` explains every command and argument."""

import argparse

import pytest

from hybrid_lab.cli import parser


def commands(parser):
    """Every parser below a parser, itself included."""
    yield parser
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for below in action.choices.values():
                yield from commands(below)


@pytest.mark.parametrize("command", list(commands(parser())), ids=lambda command: command.prog)
def test_every_command_and_argument_is_explained(command):
    assert command.description
    arguments = [action for action in command._actions if not isinstance(action, argparse._SubParsersAction)]
    assert [action.dest for action in arguments if not action.help] == []
