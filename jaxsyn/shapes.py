"""The letters: an array is named what_LETTERS, e.g. score_BHQM.

The name is the specification of the shape; `agree` checks it at the door of
each public module, so comments need not repeat it. `LETTERS` are known
everywhere. A file that needs another axis says so at its top, in a line
"Letters: E annotation width; A unit of an alignment."; a test holds every name
in jaxsyn/ to both.
"""

from __future__ import annotations

from typing import Protocol

LETTERS = {
  "B": "sentence in the batch",
  "S": "source subword",
  "T": "target subword",
  "Q": "querying subword (S or T)",
  "M": "remembered subword (S or T)",
  "W": "word",
  "N": "hypothesis of a sentence: a beam",
  "H": "attention head",
  "K": "width of one head",
  "D": "model width",
  "F": "feed-forward width",
  "G": "unit of a recurrent state",
  "V": "target vocabulary",
  "1": "broadcast axis",
}


def split(name: str) -> tuple[str, str]:
  """What an array is, and its letters: ("score", "BHQM") of "score_BHQM"."""
  what, _, letters = name.rpartition("_")
  return what, letters


class Shaped(Protocol):
  """An array of JAX or NumPy, or what stands for one while it is traced."""

  @property
  def shape(self) -> tuple[int, ...]: ...

  @property
  def ndim(self) -> int: ...


def agree(**arrays: Shaped | None) -> None:
  """Raises unless arrays named what_LETTERS agree on the size of each letter.

  Shapes are static under jit, so the check costs nothing at run time.

  Args:
    **arrays: arrays by name; None is skipped (a fact that is not there).

  Raises:
    ValueError: a name without letters, a wrong number of axes, or two arrays
      of different size along one letter; the message names both.
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
