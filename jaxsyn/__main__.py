"""Entry point of `jaxsyn COMMAND` and `python -m jaxsyn COMMAND`.

It runs the command's module, as `python -m MODULE` does. Only the module of the
command is imported, so that --help is fast.
"""

from __future__ import annotations

import runpy
import sys

import jaxsyn
from jaxsyn.commands import COMMANDS
from jaxsyn.errors import InputError, did_you_mean
from jaxsyn.utils import exits

_PACKAGES = ("jax", "jaxlib", "jax-cuda12-plugin", "libtpu", "flax")


def main() -> None:
  """Runs the command that the first argument names."""
  first, *rest = sys.argv[1:] or ["--help"]
  if first in COMMANDS:
    sys.argv[1:] = rest
    module = COMMANDS[first].module
    runpy.run_module(module, run_name="__main__", alter_sys=True)
  else:
    exits.guarded(lambda: print(_answer(first)))


def _answer(word: str) -> str:
  """Returns the text that `jaxsyn` prints for --help or --version.

  Raises:
    InputError: The argument is not --help or --version either.
  """
  if word in ("--help", "-h", "help"):
    return _help()
  if word == "--version":
    return _version()
  what = "flag" if word.startswith("-") else "command"
  known = did_you_mean(word, [*COMMANDS, "--help", "--version"])
  raise InputError(f"no {what} {word!r}. {known}")


def _help() -> str:
  width = max(map(len, COMMANDS))
  rows = (f"  {n:{width}}  {c.meaning}" for n, c in COMMANDS.items())
  return "\n".join(
    [
      f"{jaxsyn.__doc__}\n\nusage: jaxsyn COMMAND [flags]\n",
      *rows,
      "\nCOMMAND --help lists its flags; jaxsyn --version prints versions.",
    ]
  )


def _version() -> str:
  import importlib.metadata as metadata

  versions = []
  for name in _PACKAGES:
    try:
      versions.append(f"{name} {metadata.version(name)}")
    except metadata.PackageNotFoundError:
      continue
  python = sys.version.partition(" ")[0]
  return f"jaxsyn {jaxsyn.__version__} ({', '.join(versions)}, Python {python})"


if __name__ == "__main__":
  main()
