"""What may be said of the words of a sentence beside its tree, by name.

An annotation is one file here, one line in this table and one test. Prepared
with config.prepare.parse.annotations=("upos",) it is a feature of the sides with
trees, `source_upos`; a part or a window that reads it names it as any other
feature and finds it in its view: `view.annotation_BS("upos")`.
"""

from __future__ import annotations

from jaxsyn.data.annotations.annotation import Annotation
from jaxsyn.data.annotations.part_of_speech import PartOfSpeech
from jaxsyn.options import Table

ANNOTATIONS: Table[Annotation] = Table(
  "annotation",
  {
    "upos": PartOfSpeech,
  },
)
