"""What an annotation is: one value a word, made from a parse."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import ClassVar

import numpy as np

from jaxsyn.data.sentence.parse import Parse
from jaxsyn.options import Choice

# Columns of a row of CoNLL-U, which `Parse.row_W` has.
ID, FORM, LEMMA, UPOS, XPOS, FEATURES, HEAD, RELATION, DEPS, MISC = range(10)

NO_LABEL = 0
NOTHING = ("_", "")  # how CoNLL-U says that there is none
# The first label of an open annotation: of what has no id of its own.
UNKNOWN = "<unk>"


@dataclasses.dataclass(frozen=True)
class Annotation(Choice):
  """One value a word (axes "W"); 0 where there is none, and for pads."""

  meaning: ClassVar[str]  # one line for the data set's page
  # A closed set, so that ids are the same in all data sets: a label's id is its
  # place here, from 1; any other label is 0. Empty: values are numbers, unless
  labels: ClassVar[tuple[str, ...]] = ()
  # labels are what training data has, the most frequent ones; the manifest has
  # them. Any other label is UNKNOWN, the first of them.
  open: ClassVar[bool] = False
  dtype: ClassVar[np.dtype] = np.dtype(np.int32)

  def read(self, parse: Parse) -> Sequence[str] | Sequence[float]:
    """The label of each word, or its number where there are no labels.

    What a parser does not say can come in the MISC column of given CoNLL-U.
    """
    raise NotImplementedError

  def array(
    self, parse: Parse, ids: Mapping[str, int] | None = None
  ) -> np.ndarray:
    """The values of a sentence's words; all 0 without a parser's rows.

    Args:
      parse: of the sentence.
      ids: of an open annotation, of `label_ids`.
    """
    if not parse.line_W:
      return np.zeros(len(parse.head_W), self.dtype)
    values = self.read(parse)
    if ids is None and not self.labels:
      return np.asarray(values, self.dtype)
    ids = label_ids(self.labels) if ids is None else ids
    other = ids.get(UNKNOWN, NO_LABEL)
    known_values = (
      NO_LABEL if v in NOTHING else ids.get(v, other) for v in map(str, values)
    )
    return np.fromiter(known_values, self.dtype, len(values))


def label_ids(labels: Sequence[str]) -> dict[str, int]:
  """Ids of labels: 1, 2, ... in their order."""
  return {label: i for i, label in enumerate(labels, start=1)}


def most_frequent(counts: Mapping[str, int], limit: int) -> list[str]:
  """The labels of an open annotation: UNKNOWN, and then the most frequent ones.

  Of those as frequent as each other the first by their characters, so that the
  order in which they were counted does not matter.

  Args:
    counts: how often the training data has each.
    limit: how many are kept, UNKNOWN not counted.
  """
  left = Counter(counts)
  for none in (*NOTHING, UNKNOWN):
    left.pop(none, None)
  order = sorted(left, key=lambda label: (-left[label], label))
  return [UNKNOWN, *order[:limit]]
