"""What an annotation is: one value a word, made from a parse."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from jaxsyn.options import Choice

if TYPE_CHECKING:
  from jaxsyn.data.sentence.conllu_text import Parse

# Columns of a row of CoNLL-U, which `Parse.row_W` has.
ID, FORM, LEMMA, UPOS, XPOS, FEATURES, HEAD, RELATION, DEPS, MISC = range(10)


@dataclasses.dataclass(frozen=True)
class Annotation(Choice):
  """One value a word (axes "W"); 0 where there is none, and for pads."""

  meaning: ClassVar[str]  # one line for the data set's page
  # A closed set, so that ids are the same in all data sets: a label's id is its
  # place here, from 1; any other label is 0. Empty: values are numbers.
  labels: ClassVar[tuple[str, ...]] = ()
  dtype: ClassVar[np.dtype] = np.dtype(np.int32)

  def read(self, parse: Parse) -> Sequence[str] | Sequence[float]:
    """The label of each word, or its number where there are no labels.

    What a parser does not say can come in the MISC column of given CoNLL-U.
    """
    raise NotImplementedError

  def array(self, parse: Parse) -> np.ndarray:
    """The values of a sentence's words; all 0 without a parser's rows."""
    if not parse.row_W:
      return np.zeros(len(parse.head_W), self.dtype)
    values = self.read(parse)
    if not self.labels:
      return np.asarray(values, self.dtype)
    ids = {label: i for i, label in enumerate(self.labels, start=1)}
    return np.array([ids.get(str(v), 0) for v in values], self.dtype)
