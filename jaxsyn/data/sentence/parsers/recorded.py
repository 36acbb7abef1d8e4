"""Finds and opens the parser that is recorded in a dataset's manifest."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from jaxsyn.data.options import Trees
from jaxsyn.data.sentence.parsers import PARSERS, Parser, ParserSpec
from jaxsyn.data.sentence.parsers.parser import Identity
from jaxsyn.data.store import manifests
from jaxsyn.errors import InputError
from jaxsyn.options import CHECKPOINT_MODE, ConfigPath, from_config


def spec(
  folder: os.PathLike[str] | str,
  manifest: Mapping[str, Any],
  side: str,
  place: str = "",
) -> ParserSpec | None:
  """Returns the config section of a dataset's source or target parser, or None.

  Args:
    folder: Dataset or run directory, which has a copy of the parser's file.
    manifest: Manifest of the dataset.
    side: "source" or "target".
    place: Present location of the parser if it has moved: a UDPipe file, or the
      folder of a spaCy pipeline or of Stanza's models. For data without a recorded
      parser, a UDPipe file.
  """
  known = identity(manifest, side)
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
  copy = manifests.parser_file(folder, manifest, side)
  place = place or os.fspath(copy or "")
  # The manifest has the full name of the model.
  parser = parser.with_identity(known)
  return parser.at(place) if place else parser


def identity(manifest: Mapping[str, Any], side: str) -> Identity | None:
  """Returns the identity of the parser of a dataset's source or target trees.

  Returns None if there are no trees, or if they were imported from CoNLL-U
  files without the name of a parser.
  """
  entry = manifest["parser"].get(side)
  known = entry and (entry.get("name") or entry["sha256"])
  return Identity.of(entry) if entry and known else None


def check(
  manifest: Mapping[str, Any], parser: Identity, side: str = "source"
) -> None:
  """Raises InputError unless a dataset was parsed with the given parser.

  If the manifest names no parser, any parser is accepted.
  """
  expected = identity(manifest, side)
  if expected and expected.key != parser.key:
    raise InputError(
      f"{parser} is not the {side} parser of dataset {manifest['name']}, which"
      f" is {expected}. Use that one, or prepare the data again."
    )


def open_recorded(
  resolved: ParserSpec, manifest: Mapping[str, Any], side: str
) -> Parser:
  """Opens a parser and checks that it is the recorded parser of a dataset.

  Args:
    resolved: Spec of the parser, from `spec`.
    manifest: Manifest of the dataset.
    side: "source" or "target".

  Raises:
    InputError: The parser is another one, or cannot be opened.
  """
  known = identity(manifest, side)
  try:
    parser = resolved.open(known.sha256 if known else "")
  except InputError as error:
    if not known:
      raise
    raise InputError(
      f"{error} It is the {side} parser of dataset {manifest['name']}, {known};"
      " give its present location with --parser."
    ) from None
  check(manifest, parser.identity, side)
  return parser
