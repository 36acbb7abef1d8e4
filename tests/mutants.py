"""Random changes of the content of JSON and CoNLL-U.

They keep the syntax, since most files with wrong syntax are rejected for it.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from typing import Any

from corruptions import Rng, corrupted

from jaxsyn.storage import checksums

# Wrong values: missing, of another type, at and beyond bounds, paths outside of
# the directory, line breaks.
ODD: tuple[Any, ...] = (
  None, True, False, 0, 1, -1, 2**31, 2**63, 2**70, -(2**70), 0.5, -0.0, 1e308,
  float("nan"), float("inf"), float("-inf"), "", " ", "a", "..", "../x", "/x",
  "a/b", "a\0b", "\n", "é" * 300, "-1", "\udc80", [], {}, [[]], [None],
  {"": None}, [1, 2, 3], ["a", "b"], {"a": 1},
)  # fmt: skip


def tree(content: Any, rng: Rng) -> Any:
  """Returns a copy of nested dicts and lists with one changed value or key."""
  new = copy.deepcopy(content)
  places = list(_places(new))
  holder, key = places[int(rng.integers(len(places)))]
  kind = int(rng.integers(8))
  if kind == 0:
    del holder[key]
  elif kind == 1 and isinstance(holder, dict):
    holder[f"{key}x"] = holder.pop(key)
  elif kind == 2:  # a value from elsewhere
    other, name = places[int(rng.integers(len(places)))]
    holder[key] = copy.deepcopy(other[name])
  elif kind == 3 and isinstance(holder[key], (int, float)):
    holder[key] = holder[key] * -1 if rng.random() < 0.5 else holder[key] + 1
  elif kind == 4 and isinstance(holder[key], str):
    data = corrupted(holder[key].encode(), rng)
    holder[key] = data.decode(errors="replace")
  else:
    holder[key] = copy.deepcopy(ODD[int(rng.integers(len(ODD)))])
  return new


def _places(content: Any) -> Iterator[tuple[Any, Any]]:
  """Yields all pairs (dict, key) and (list, index) in nested content."""
  if isinstance(content, (dict, list)):
    keys = content if isinstance(content, dict) else range(len(content))
    for key in list(keys):
      yield content, key
      yield from _places(content[key])


def json_text(text: bytes, rng: Rng) -> bytes:
  """Returns a JSON file with a changed value, or with corrupt bytes.

  A checksum in the file is corrected, or the rest would never be read.
  """
  if rng.random() < 0.3:
    return corrupted(text, rng)
  page = json.loads(text)
  try:
    page = checksums.add_checksum(tree(checksums.verify_checksum(page), rng))
  except ValueError:  # no checksum, or a value that JSON lacks
    page = tree(page, rng)
  return json.dumps(page).encode()


_FIELDS = (
  "", "_", "-1", "0", "1", "2", "999", "1-2", "2-1", "1.1", "1-", "é", "x" * 500,
  "\u2028", "\u200b", "\xa0", "１", "SpaceAfter=No", "root",
)  # fmt: skip


def conllu(text: str, rng: Rng) -> str:
  """Returns a sentence in CoNLL-U with changed lines or fields."""
  lines = text.split("\n")
  for _ in range(int(rng.integers(1, 4))):
    at, other = (int(rng.integers(len(lines))) for _ in range(2))
    kind = int(rng.integers(7))
    if kind == 0:
      del lines[at]
    elif kind == 1:
      lines.insert(at, lines[other])
    elif kind == 2:
      lines[at], lines[other] = lines[other], lines[at]
    elif kind == 3:
      data = corrupted(lines[at].encode(), rng)
      lines[at] = data.decode(errors="replace")
    else:
      fields = lines[at].split("\t")
      place = int(rng.integers(len(fields)))
      fields[place] = _FIELDS[int(rng.integers(len(_FIELDS)))]
      if kind == 4:
        fields.insert(place, fields[int(rng.integers(len(fields)))])
      lines[at] = "\t".join(fields)
    lines = lines or [""]
  return "\n".join(lines)
