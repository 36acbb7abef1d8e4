"""Lemmas, as a parser or given CoNLL-U has them."""

from __future__ import annotations

import dataclasses
from typing import ClassVar

from jaxsyn.data.annotations.annotation import LEMMA, Annotation
from jaxsyn.data.sentence.parse import Parse


@dataclasses.dataclass(frozen=True)
class Lemma(Annotation):
  """The base form of each word, its case as it is."""

  meaning: ClassVar[str] = "lemma of each word; 0: none; 1: a rare one"
  open: ClassVar[bool] = True

  def read(self, parse: Parse) -> list[str]:
    return [row[LEMMA] for row in parse.row_W]
