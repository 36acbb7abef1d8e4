"""A system of a comparison with options of its own, as --variant says it.

  --variant "dasa_random_tree=dasa,data.tree=random"

NAME=SYSTEM, then options without "config.": what --config.OPTION=VALUE would set, but
of this system alone.
"""

from __future__ import annotations

import ast
import dataclasses
import re
from collections.abc import Mapping
from typing import Any

from ml_collections import ConfigDict
from ml_collections.config_flags import config_path

from jaxsyn import cli
from jaxsyn.errors import InputError

_NAME = r"\w[\w.+-]{0,99}"  # also of a folder
_OPTION = r"[a-z_0-9]+(?:\.[a-z_0-9]+)+"


@dataclasses.dataclass(frozen=True)
class Variant:
  """What was said.

  Attributes:
    name: of the system in the comparison.
    system: of the table of systems, maybe several that are joined.
    options: dotted, without "config." -> the value as it was written.
  """

  name: str
  system: str
  options: Mapping[str, str]

  def on(self, config: ConfigDict) -> None:
    """Sets the options in a config of the system, in place.

    Raises:
      InputError: no such option, or another type; names the variant.
    """
    for path, written in self.options.items():
      try:
        cli.check_option(config, path)
        old = config_path.get_value(path, config)
        cli.set_option(config, path, _value(written, old))
      except InputError as error:
        raise InputError(f"--variant {self.name}: {error}") from None


def read(text: str) -> Variant:
  """What a --variant says.

  Raises:
    InputError: it is not NAME=SYSTEM,OPTION=VALUE,...
  """
  # A comma may be in a value: "losses.distillation.heads=(0, 1)".
  first, *rest = re.split(rf",\s*(?={_OPTION}=)", text)
  options = dict(one.split("=", 1) for one in rest)
  match = re.fullmatch(rf"({_NAME})=([\w+]+)", first.strip())
  if not match or not options:
    raise InputError(
      f"--variant {text!r} must be NAME=SYSTEM,OPTION=VALUE,..., as in "
      '"dasa_random_tree=dasa,data.tree=random".'
    )
  return Variant(match[1], match[2], options)


def _value(written: str, old: Any) -> Any:
  """A value as Python; text as it stands."""
  if isinstance(old, str):
    return written
  if isinstance(old, bool):
    return {"true": True, "false": False}.get(written.lower(), written)
  try:
    return ast.literal_eval(written)
  except (SyntaxError, ValueError):
    return written
