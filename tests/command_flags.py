"""Command lines that are parsed in the test process."""

from __future__ import annotations

import contextlib

from absl import flags

from jaxsyn import cli


@contextlib.contextmanager
def parsed(module, *words, word=""):
  """Yields the flags of a command line; `word` is that of `jaxsyn.cli.parse`."""
  with defined(module):
    yield cli.parse([module.__name__, *map(str, words)], word=word)


@contextlib.contextmanager
def defined(module):
  """Yields the names of a command's flags, which exist until the block ends."""
  before = {*flags.FLAGS}
  module.define_flags()
  try:
    yield {*flags.FLAGS} - before
  finally:
    for name in {*flags.FLAGS} - before:
      delattr(flags.FLAGS, name)
    flags.FLAGS.unparse_flags()
