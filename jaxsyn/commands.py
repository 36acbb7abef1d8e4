"""The commands by name: the only place where one is added.

A command's module has a docstring for --help, `define_flags()`, and ends in

    if __name__ == "__main__":
      define_flags()
      cli.main(_main)

so that `jaxsyn NAME` and `python -m MODULE` are the same.
"""

from __future__ import annotations

import pathlib
import sys
from typing import NamedTuple


class Command(NamedTuple):
  """A command.

  Attributes:
    module: that is run.
    meaning: in a line.
  """

  module: str
  meaning: str


COMMANDS = {
  "new": Command("jaxsyn.new", "look at your files, and write a config"),
  "prepare": Command(
    "jaxsyn.preprocess.build", "clean and parse text, and make records of it"
  ),
  "train": Command("jaxsyn.train", "train a system, or go on with it"),
  "translate": Command("jaxsyn.translate", "translate text with a trained run"),
  "serve": Command("jaxsyn.serve", "answer over HTTP with trained runs"),
  "score": Command("jaxsyn.score", "score translations, and test differences"),
  "compare": Command(
    "jaxsyn.compare", "train systems with several seeds, and compare them"
  ),
  "inspect": Command("jaxsyn.inspect", "draw what a trained run looks at"),
  "export": Command(
    "jaxsyn.export", "write a run in the form of other programs"
  ),
}


def again(name: str) -> str:
  """How to start a command in the way that this process was started."""
  if len(sys.orig_argv) > 1 and pathlib.Path(sys.orig_argv[1]).name == "jaxsyn":
    return f"jaxsyn {name}"
  return f"python -m {COMMANDS[name].module}"
