"""Parts of speech, as Universal Dependencies tells them apart (UPOS).

Source: universaldependencies.org/u/pos, version 2.
"""

from __future__ import annotations

import dataclasses
from typing import ClassVar

from jaxsyn.data.annotations.annotation import UPOS, Annotation
from jaxsyn.data.sentence.parse import Parse


@dataclasses.dataclass(frozen=True)
class PartOfSpeech(Annotation):
  """The universal part of speech of each word."""

  meaning: ClassVar[str] = "universal part of speech of each word; 0: none"
  labels: ClassVar[tuple[str, ...]] = (
    *("ADJ", "ADP", "ADV", "AUX", "CCONJ", "DET", "INTJ", "NOUN", "NUM"),
    *("PART", "PRON", "PROPN", "PUNCT", "SCONJ", "SYM", "VERB", "X"),
  )

  def read(self, parse: Parse) -> list[str]:
    return [row[UPOS] for row in parse.row_W]
