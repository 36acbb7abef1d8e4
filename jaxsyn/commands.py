"""Registry of the `jaxsyn` commands.

The module of a command has a docstring for --help, `define_flags()`, and ends in

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
  """Command of `jaxsyn`: its module, help text and main flags.

  Attributes:
    module: Module that is run.
    meaning: Help text in one line.
    required: Flags that --help lists first.
    common: Flags that --help lists next; all other flags are rare.
  """

  module: str
  meaning: str
  required: tuple[str, ...]
  common: tuple[str, ...] = ()


COMMANDS = {
  "new": Command(
    "jaxsyn.new",
    "write a config for your parallel text",
    ("folder", "source", "target"),
    ("dev_source", "dev_target", "test_source", "test_target"),
  ),
  "prepare": Command(
    "jaxsyn.preprocess.build",
    "clean and parse text, and write records",
    ("config",),
    ("raw_dir", "verify"),
  ),
  "train": Command(
    "jaxsyn.train", "train a system, or resume a run", ("config", "workdir")
  ),
  "translate": Command(
    "jaxsyn.translate",
    "translate text with a trained run",
    ("workdir",),
    ("input", "output", "beam", "nbest", "json", "checkpoint", "conllu"),
  ),
  "serve": Command(
    "jaxsyn.serve",
    "translate over HTTP with trained runs",
    ("run",),
    ("host", "port", "beam", "checkpoint"),
  ),
  "score": Command(
    "jaxsyn.score",
    "score translations, and test differences",
    ("reference", "hypothesis"),
    ("baseline", "metrics", "language", "tokenizer", "source", "json"),
  ),
  "compare": Command(
    "jaxsyn.compare",
    "train systems with several seeds, and compare them",
    ("config", "systems", "workdir"),
    ("seeds", "metrics", "results", "devices", "processes"),
  ),
  "inspect": Command(
    "jaxsyn.inspect",
    "draw the attention and the trees of a run",
    ("workdir",),
    ("input", "output", "layers", "checkpoint"),
  ),
  "export": Command(
    "jaxsyn.export",
    "convert a run for other programs",
    ("workdir", "output"),
    ("format", "checkpoint"),
  ),
}


def again(name: str) -> str:
  """Returns the shell prefix for calling a command as this process was called.

  It is `jaxsyn NAME` or `python -m MODULE`, like that of this process.
  """
  if len(sys.orig_argv) > 1 and pathlib.Path(sys.orig_argv[1]).name == "jaxsyn":
    return f"jaxsyn {name}"
  return f"python -m {COMMANDS[name].module}"
