"""Flags of all commands, as absl parses them."""

import importlib

import pytest
from absl import flags

from jaxsyn.commands import COMMANDS


@pytest.fixture
def defined():
  """Defines a command's flags, and takes them away again."""
  before = {*flags.FLAGS}

  def define(command):
    importlib.import_module(COMMANDS[command].module).define_flags()
    return {*flags.FLAGS} - before

  yield define
  for name in {*flags.FLAGS} - before:
    delattr(flags.FLAGS, name)


@pytest.mark.parametrize("command", COMMANDS)
def test_of_a_list_that_is_given_twice_nothing_is_lost(command, defined):
  names = sorted(
    name
    for name in defined(command)
    if isinstance(flags.FLAGS[name].parser, flags.BaseListParser)
  )
  for name in names:
    flag = flags.FLAGS[name]
    for words in ("a,b", "c"):  # only the last stood
      flag.parse(words)
    assert flag.value == ["a", "b", "c"], name
    flag.unparse()
    assert flag.value == flag.default
  assert names or command not in ("translate", "compare", "serve")


@pytest.mark.parametrize("command", COMMANDS)
def test_the_flags_that_help_lists_first_exist(command, defined):
  names = {*COMMANDS[command].required, *COMMANDS[command].common}
  assert names <= defined(command)
