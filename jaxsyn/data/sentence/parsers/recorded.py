"""The parser that a prepared folder or a run names, opened again.

A run may come from somebody else. What its parser does beside reading files, to
start a program or to send text elsewhere, it does where this user has prepared
data by the same parser, or names it. The former stands in the user's own cache
folder (`jaxsyn.storage.private`).
"""

from __future__ import annotations

import contextlib
import os
import pathlib
from collections.abc import Mapping
from typing import Any

from jaxsyn.data.options import Trees
from jaxsyn.data.sentence.parsers import PARSERS, Parser, ParserSpec
from jaxsyn.data.store import layout, manifests
from jaxsyn.errors import InputError
from jaxsyn.options import ConfigPath, ValidationMode, from_config
from jaxsyn.storage import private


def spec(
  folder: os.PathLike[str] | str,
  manifest: Mapping[str, Any],
  side: str,
  place: str = "",
) -> ParserSpec | None:
  """What opens the parser of a side; None where there is none.

  Args:
    folder: of the data or the run, that has a copy of its file.
    manifest: of it.
    side: "source" or "target".
    place: where it is now, if elsewhere: a UDPipe file, spaCy's folder, Stanza's,
      the address of a service, a command line. Of data without a parser, a UDPipe
      file.
  """
  known = manifests.recorded_parser(manifest, side)
  if not known:
    return PARSERS["udpipe"]().at(place) if place else None
  trees = from_config(
    Trees,
    manifest["options"]["parse"],
    ConfigPath("manifest", "options", "parse"),
    ValidationMode(bounded=False),
  )
  parser = getattr(trees, side).parser
  assert parser.kind == known.kind, "both were written together"
  copy = layout.parser_file(folder, manifest, side)
  if not place and copy:
    place = os.fspath(copy)
  # What was prepared knows its model by its whole name.
  parser = parser.with_identity(known)
  return parser.at(place) if place else parser


def open_recorded(
  resolved: ParserSpec,
  manifest: Mapping[str, Any],
  side: str,
  *,
  named: bool = False,
) -> Parser:
  """A parser, if it is that of the data.

  Args:
    resolved: what opens it.
    manifest: of the data.
    side: "source" or "target".
    named: whether the user has said where it is.

  Raises:
    InputError: it is another, cannot be opened, or the user must name it.
  """
  known = manifests.recorded_parser(manifest, side)
  if resolved.side_effects and not named and not _is_allowed(resolved):
    raise InputError(
      f"the {side} parser of data set {manifest['name']} {resolved.side_effects}, and you"
      " have prepared nothing by it here. If you trust whom the run is from, name"
      " it with --parser."
    )
  try:
    parser = resolved.open(known.sha256 if known else "")
  except InputError as error:
    if not known:
      raise
    raise InputError(
      f"{error} It is the {side} parser of data set {manifest['name']}, {known};"
      " --parser says where it is now."
    ) from None
  manifests.check_parser(manifest, parser.identity, side)
  return parser


def allow(parser: ParserSpec) -> None:
  """Keeps in mind that this user's own config has named a parser."""
  if parser.side_effects:
    with contextlib.suppress(OSError):  # then it must be named again
      path = _allowed(parser, make=True)
      path.parent.mkdir(mode=0o700, exist_ok=True)
      path.touch(mode=0o600)


def _is_allowed(parser: ParserSpec) -> bool:
  try:
    return _allowed(parser, make=False).is_file()
  except OSError:
    return False


def _allowed(parser: ParserSpec, make: bool) -> pathlib.Path:
  name = manifests.sha256_texts([parser.kind, parser.side_effects])
  return private.folder(make) / "parsers" / name
