"""Seeded harm to files: bits that flip, ends that are cut, values of JSON."""

from __future__ import annotations

import copy
import random
from typing import Any

ODD = (
  *(None, True, -1, 0, 1, 3, 2**31, 2**63, 2**70, -0.5, 1e308, float("nan")),
  *("", "a", "..", "../payload", "/etc/x", "a/b", "a\x00", "\udc80", "ä", "1"),
  *([], [1], ["a"], {}, {"a": 1}, [[]]),
)


def of_bytes(data: bytes, rng: random.Random) -> bytes:
  """The same bytes but for one to three changes; sometimes none at all."""
  new = bytearray(data)
  for _ in range(rng.randint(1, 3)):
    where = rng.randrange(len(new) + 1)
    kind = rng.randrange(5)
    if kind < 2 and where < len(new):
      new[where] ^= 1 << rng.randrange(8)
    elif kind == 2:
      del new[where : where + rng.choice([1, 4, len(new)])]
    elif kind == 3:
      new[where:where] = rng.randbytes(rng.randint(1, 9))
    else:
      new[where : where + 4] = b"\xff" * 4
  return bytes(new)


def of_json(content: Any, rng: random.Random) -> Any:
  """A copy where one value somewhere is another, is gone, or is new."""
  new = copy.deepcopy(content)
  here = new
  while True:
    keys = list(here) if isinstance(here, dict) else list(range(len(here)))
    if not keys:
      break
    key = rng.choice(keys)
    if isinstance(here[key], (dict, list)) and here[key] and rng.random() < 0.8:
      here = here[key]
      continue
    break
  kind = rng.random()
  if not keys or kind < 0.1:
    if isinstance(here, dict):
      here[str(rng.choice(ODD))] = rng.choice(ODD)
    else:
      here.append(rng.choice(ODD))
  elif kind < 0.2:
    del here[key]
  else:
    here[key] = rng.choice(ODD)
  return new
