"""Morphological features, as Universal Dependencies writes them (FEATS).

All features of a word are one label, `Case=Nom|Number=Sing`, as in Sennrich &
Haddow 2016 (arXiv:1606.02892), section 3: some hundreds of them are nearly all
that a treebank has, and a bag of features would be several values a word.

Source: universaldependencies.org/u/feat, version 2.
"""

from __future__ import annotations

import dataclasses
from typing import ClassVar

from jaxsyn.data.annotations.annotation import FEATURES, Annotation
from jaxsyn.data.sentence.parse import Parse


@dataclasses.dataclass(frozen=True)
class Morphology(Annotation):
  """The morphological features of each word, together one label."""

  meaning: ClassVar[str] = (
    "morphological features of each word, together; 0: none; 1: rare ones"
  )
  open: ClassVar[bool] = True

  def read(self, parse: Parse) -> list[str]:
    # Their order says nothing; CoNLL-U asks for it sorted, not all tools are.
    return [
      "|".join(sorted(row[FEATURES].split("|"), key=str.lower))
      for row in parse.row_W
    ]
