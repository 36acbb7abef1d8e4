"""Opens the parser that a dataset directory or a run directory records."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from jaxsyn.data.options import Trees
from jaxsyn.data.sentence.parsers import PARSERS, Parser, ParserSpec
from jaxsyn.data.store import layout, manifests
from jaxsyn.errors import InputError
from jaxsyn.options import CHECKPOINT_MODE, ConfigPath, from_config


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
    place: where it is now, if elsewhere: a UDPipe file, or the folder of a spaCy
      pipeline or of Stanza's models. Of data without a parser, a UDPipe file.
  """
  known = manifests.recorded_parser(manifest, side)
  if not known:
    return PARSERS["udpipe"]().at(place) if place else None
  trees = from_config(
    Trees,
    manifest["options"]["parse"],
    ConfigPath("manifest", "options", "parse"),
    CHECKPOINT_MODE,
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
) -> Parser:
  """A parser, if it is that of the data.

  Args:
    resolved: what opens it.
    manifest: of the data.
    side: "source" or "target".

  Raises:
    InputError: it is another, or cannot be opened.
  """
  known = manifests.recorded_parser(manifest, side)
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
