"""Checks shapes of arrays by the axis letters in names such as score_BHQM.

Each letter stands for an axis, and `agree` checks the sizes in public modules.
`LETTERS` have one meaning everywhere. A file that needs another axis declares
it in its docstring, in a line "Letters: E annotation width; A unit of an
alignment."; a test checks all names in jaxsyn/.
"""

from __future__ import annotations

from typing import Protocol

LETTERS = {
  "B": "sentence in the batch",
  "S": "source subword",
  "T": "target subword",
  "Q": "query: a subword (S or T)",
  "M": "key, value: a subword (S or T)",
  "W": "word",
  "N": "hypothesis of a sentence (beam)",
  "H": "attention head",
  "K": "width of one head",
  "D": "model width",
  "F": "feed-forward width",
  "G": "unit of a recurrent state",
  "V": "target vocabulary",
  "1": "broadcast axis",
}


def split(name: str) -> tuple[str, str]:
  """Splits an array name, such as "score_BHQM", into "score" and "BHQM"."""
  what, _, letters = name.rpartition("_")
  return what, letters


class Shaped(Protocol):
  """Anything with a shape: a JAX or NumPy array, or a tracer."""

  @property
  def shape(self) -> tuple[int, ...]: ...

  @property
  def ndim(self) -> int: ...


def agree(**arrays: Shaped | None) -> None:
  """Checks that arrays agree on the size of each axis letter in their names.

  Shapes are static under `jit`, so the check has no cost at run time.

  Args:
    **arrays: Arrays by name; None is skipped.

  Raises:
    ValueError: A name has no letters, an array has a wrong number of axes, or
      two arrays differ in the size of a letter; the message names both.
  """
  sizes = {"1": (1, "the letter 1")}
  for name, array in arrays.items():
    if array is None:
      continue
    _, letters = split(name)
    if not all(letter.isupper() or letter in LETTERS for letter in letters):
      raise ValueError(f"{name} does not end in letters of its axes.")
    if array.ndim != len(letters):
      raise ValueError(
        f"{name} must have axes {letters}, got shape {tuple(array.shape)}."
      )
    for letter, size in zip(letters, array.shape):
      expected, owner = sizes.setdefault(letter, (size, name))
      if size != expected:
        raise ValueError(
          f"axis {letter}: {name} has {size}, but {owner} has {expected}."
        )
