"""Sentences and the ends of their words, of which subwords are sampled."""

from __future__ import annotations

from collections.abc import Collection

from jaxsyn.data.schema import SPELLING, UTF8
from jaxsyn.data.store.prepared import PreparedSplit
from jaxsyn.data.store.rows import Rows
from jaxsyn.data.store.tfrecord import REMEDY
from jaxsyn.errors import InputError


def features(records: PreparedSplit, sides: Collection[str]) -> tuple[str, ...]:
  """Returns the features with texts and, where there are trees, ends of words."""
  return tuple(
    name
    for name in SPELLING
    if name.partition("_")[0] in sides
    and (name in UTF8 or name in records.features)
  )


def line(rows: Rows, side: str, i: int) -> str:
  """Returns the sentence of an example.

  Raises:
    InputError: It is not UTF-8.
  """
  begin, end = rows.start[f"{side}_utf8"][i : i + 2]
  data = rows.flat[f"{side}_utf8"][begin:end].tobytes()
  try:
    return data.decode()
  except UnicodeDecodeError:
    raise InputError(
      f"{side}_text of a record is not UTF-8. {REMEDY}"
    ) from None
