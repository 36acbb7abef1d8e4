"""Word annotations in addition to trees: part of speech, morphology, lemma.

`config.prepare.parse.annotations=("upos",)` adds the feature `source_upos` (or
`target_upos`) for each side that has trees. Attention modifiers and windows name
it in `required_features` and read it with `features.annotation_BS("upos")`. An
annotation that has labels is also a factor of the system `factors`. A new
annotation needs a class, an entry in ANNOTATIONS and a test.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import ClassVar

import numpy as np

from jaxsyn.data.sentence.conllu import Parse
from jaxsyn.data.sentence.conllu_blocks import FEATS, LEMMA, UPOS
from jaxsyn.options import Choice, Registry

NO_LABEL = 0
NOTHING = ("_", "")  # CoNLL-U fields without a value
UNKNOWN = "<unk>"  # first label of an open label set: any label without an id
_PARTS_OF_SPEECH = """
ADJ ADP ADV AUX CCONJ DET INTJ NOUN NUM PART PRON PROPN PUNCT SCONJ SYM VERB X
"""


@dataclasses.dataclass(frozen=True)
class Annotation(Choice):
  """Base class of word annotations, such as part of speech: one value per word.

  The value (axes "W") is 0 for words without an annotation and for padding.

  Attributes:
    meaning: One-line description for the documentation of the dataset.
    labels: All labels of a fixed label set, so that ids are the same in all
      datasets: a label's id is its position here, from 1; any other label has
      id 0. Empty if the label set is open or the values are numbers.
    open: Whether the label set is open: the labels are the most frequent ones of
      the training data, stored in the manifest. Any other label is UNKNOWN, the
      first label.
    dtype: NumPy type of the values.
  """

  meaning: ClassVar[str]
  labels: ClassVar[tuple[str, ...]] = ()
  open: ClassVar[bool] = False
  dtype: ClassVar[np.dtype] = np.dtype(np.int32)

  def read(self, parse: Parse) -> Sequence[str] | Sequence[float]:
    """Returns the label or the numeric value of each word in a parse.

    Values that no parser predicts can be given in the MISC column of CoNLL-U.
    """
    raise NotImplementedError

  def array(
    self, parse: Parse, ids: Mapping[str, int] | None = None
  ) -> np.ndarray:
    """Returns the annotation of each word in a parse as an array.

    Labels become ids. All values are 0 if the parse has no CoNLL-U rows.

    Args:
      parse: Parse of the sentence.
      ids: Label ids of an open label set, from `label_ids`.
    """
    if not parse.line_W:
      return np.zeros(len(parse.head_W), self.dtype)
    values = self.read(parse)
    if ids is None and not self.labels:
      return np.asarray(values, self.dtype)
    ids = label_ids(self.labels) if ids is None else ids
    other = ids.get(UNKNOWN, NO_LABEL)
    value_ids = (
      NO_LABEL if value in NOTHING else ids.get(value, other)
      for value in map(str, values)
    )
    return np.fromiter(value_ids, self.dtype, len(values))


def label_ids(labels: Sequence[str]) -> dict[str, int]:
  """Returns the ids of labels, counted from 1 in the given order, as a dict."""
  return {label: i for i, label in enumerate(labels, start=1)}


def most_frequent(counts: Mapping[str, int], limit: int) -> list[str]:
  """Returns a list of "<unk>" and the most frequent labels of an annotation.

  Equally frequent labels are sorted by their characters, so the order of counting
  does not matter.

  Args:
    counts: Number of occurrences of each label in the training data.
    limit: Maximum number of labels, not counting UNKNOWN.
  """
  counted = Counter(counts)
  for excluded in (*NOTHING, UNKNOWN):
    counted.pop(excluded, None)
  order = sorted(counted, key=lambda label: (-counted[label], label))
  return [UNKNOWN, *order[:limit]]


@dataclasses.dataclass(frozen=True)
class PartOfSpeech(Annotation):
  """Universal part of speech of each word (universaldependencies.org/u/pos)."""

  meaning: ClassVar[str] = "universal part of speech of each word; 0: none"
  labels: ClassVar[tuple[str, ...]] = tuple(_PARTS_OF_SPEECH.split())

  def read(self, parse: Parse) -> list[str]:
    return [row[UPOS] for row in parse.row_W]


@dataclasses.dataclass(frozen=True)
class Morphology(Annotation):
  """Morphological features of each word (universaldependencies.org/u/feat).

  All features of a word are one label, `Case=Nom|Number=Sing`, as in Sennrich &
  Haddow 2016 (arXiv:1606.02892), section 3. A few hundred labels cover nearly all
  words of a treebank.
  """

  meaning: ClassVar[str] = (
    "morphological features of each word, together; 0: none; 1: rare ones"
  )
  open: ClassVar[bool] = True

  def read(self, parse: Parse) -> list[str]:
    # CoNLL-U requires sorted features, but not all tools sort them.
    return [
      "|".join(sorted(row[FEATS].split("|"), key=str.lower))
      for row in parse.row_W
    ]


@dataclasses.dataclass(frozen=True)
class Lemma(Annotation):
  """Lemma of each word, from a parser or a CoNLL-U file, case-sensitive."""

  meaning: ClassVar[str] = "lemma of each word; 0: none; 1: a rare one"
  open: ClassVar[bool] = True

  def read(self, parse: Parse) -> list[str]:
    return [row[LEMMA] for row in parse.row_W]


ANNOTATIONS: Registry[Annotation] = Registry(
  "annotation",
  {"upos": PartOfSpeech, "feats": Morphology, "lemma": Lemma},
)
