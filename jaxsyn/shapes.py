"""The letters: an array is named what_LETTERS, e.g. score_BHQM.

  B sentence in the batch     H attention head          D model width
  S source subword            K width of one head       F feed-forward width
  T target subword            V target vocabulary       R dependency relation
  Q querying subword (S or T) M remembered subword (S or T)
  W word                      N beam                  1 broadcast axis
  G unit of a recurrent state A unit of its alignment     E annotation width, 2·G
  Z gate of a recurrent cell  L label of a pair of subwords
  C bracket or subword of a bracketed sentence
  U place in a unit of words  O offset in a kernel        P channel of one
  I statistic of a sentence   J resample of a test set    Y seed of a run

The name is the specification of the shape; `agree` checks it at the door of
each public module, so comments need not repeat it.
"""

from __future__ import annotations

LETTERS = frozenset("BSTQMHKDFVRWNLCGAEZUOPIJY1")


def split(name: str) -> tuple[str, str]:
  """What an array is, and the letters of its axes: of "score_BHQM" both sides."""
  what, _, letters = name.rpartition("_")
  return what, letters


def agree(**arrays) -> None:
  """Raises unless arrays named what_LETTERS agree on the size of each letter.

  Shapes are static under jit, so the check costs nothing at run time.

  Args:
    **arrays: arrays by name; None is skipped (a fact that is not there).

  Raises:
    ValueError: a name with an unknown letter, a wrong number of axes, or two
      arrays of different size along one letter; the message names both.
  """
  sizes = {"1": (1, "the letter 1")}
  for name, array in arrays.items():
    if array is None:
      continue
    _, letters = split(name)
    unknown = set(letters) - LETTERS
    if unknown:
      raise ValueError(f"{name}: {sorted(unknown)} are no axis letters.")
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
