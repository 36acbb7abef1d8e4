"""What may be said of the words of a sentence beside its tree, by name.

An annotation is one file here, one line in this table and one test. Prepared
with config.prepare.parse.annotations=("upos",) it is a feature of the sides with
trees, `source_upos`; a part or a window that reads it names it as any other
feature and finds it in its view: `view.annotation_BS("upos")`. Where it has
labels it is a factor of system `factors` too.
"""

from __future__ import annotations

from jaxsyn.data.annotations.annotation import Annotation
from jaxsyn.data.annotations.lemma import Lemma
from jaxsyn.data.annotations.morphology import Morphology
from jaxsyn.data.annotations.part_of_speech import PartOfSpeech
from jaxsyn.options import Registry

ANNOTATIONS: Registry[Annotation] = Registry(
  "annotation",
  {
    "upos": PartOfSpeech,
    "feats": Morphology,
    "lemma": Lemma,
  },
)
