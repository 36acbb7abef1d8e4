"""Which sides are parsed, and by what."""

from __future__ import annotations

import dataclasses
import os
import pathlib

from jaxsyn.data.sentence.parsers.udpipe import UDPipe, UDPipeSpec
from jaxsyn.errors import InputError
from jaxsyn.options import ROOT
from jaxsyn.survey import languages

AUTO, NONE = "auto", "none"


@dataclasses.dataclass(frozen=True)
class ParserChoice:
  """Where the trees of a side come from.

  Attributes:
    there: whether it has any.
    model: of UDPipe, a file or a name; "": that of the language.
    why: in a sentence or two.
  """

  is_available: bool
  model: str
  why: str


def find(
  side: str, code: str, requested: str, fetched: pathlib.Path
) -> ParserChoice:
  """The parser of a side; a model is fetched at once.

  Args:
    side: of the pairs.
    code: of its language.
    requested: "auto", "none", or a file.
    fetched: the folder where preparing looks for what is fetched.

  Raises:
    InputError: a file is no model of UDPipe.
  """
  if requested == AUTO:
    return _of_language(side, code, fetched)
  if requested == NONE and side == "target":
    why = "The target is not parsed: few systems learn from its trees."
    return ParserChoice(False, "", why)
  if requested == NONE:
    return ParserChoice(False, "", f"The {side} is not parsed. {_later(side)}")
  if not os.path.isfile(requested):
    raise InputError(f"--{side}_parser {requested}: there is no such file.")
  UDPipe(requested)
  why = f"The {side} is parsed by {os.path.basename(requested)}."
  return ParserChoice(True, os.path.abspath(requested), why)


def _of_language(side: str, code: str, fetched: pathlib.Path) -> ParserChoice:
  """UDPipe's model of a language, if there is one and it can be had."""
  name = languages.with_parser(code)
  if not name:
    why = f"UDPipe has no model of {code}: the {side} is not parsed."
    return ParserChoice(False, "", f"{why} {_later(side)}")
  try:
    at = ROOT / "prepare" / "parse" / side / UDPipeSpec.kind
    spec = UDPipeSpec().resolve(at, name, fetched, {})
  except InputError:
    why = f"UDPipe's model of {code} could not be fetched: the {side} is not parsed."
    return ParserChoice(False, "", f"{why} {_later(side)}")
  model = "" if name == code else name
  return ParserChoice(
    True,
    model,
    f"The {side} is parsed by UDPipe's {pathlib.Path(spec.model).stem}.",
  )


def _later(side: str) -> str:
  """How a side gets trees afterwards."""
  return (
    f"For trees, run the same command with --{side}_parser FILE, a UDPipe model: "
    f'it replaces this file unless you edited it. Or add "{side}" to config.prepare.parse.sides, name the file in '
    f"config.prepare.parse.{side}.udpipe.model (else that of the language is "
    f"fetched) or another parser in config.prepare.parse.{side}.parser, and "
    "prepare again."
  )
