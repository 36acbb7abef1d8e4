"""Dependency relations in the last dimensions of token embeddings.

Sennrich & Haddow 2016, "Linguistic Input Features Improve Neural Machine
Translation", as adapted to the Transformer by Bugliarello & Okazaki 2020
(arXiv:1909.03149), experimental set-up, "+S&H": the label takes the last
dimensions of the token embedding, so that the width stays the same.

Letters: P dimension of a label's vector.
"""

from __future__ import annotations

import dataclasses
from typing import ClassVar

from jax import Array

from jaxsyn.options import option
from jaxsyn.options.bounds import CountOrOff
from jaxsyn.syntax.features import SentenceFeatures
from jaxsyn.syntax.last_dimensions import (
  LastDimensions,
  label_table,
  replace_last,
)
from jaxsyn.syntax.modifier import Modifier


class _LabelEmbedding(Modifier):
  def setup(self) -> None:
    self.table = label_table(self.site.relations, self.spec.size, self.site)

  def embed(self, x_BSD: Array, features: SentenceFeatures) -> Array:
    label_BSP = self.table(features.relation_BS).astype(x_BSD.dtype)
    if self.spec.scale_label:
      label_BSP = label_BSP * self.site.width**0.5
    return replace_last(x_BSD, label_BSP, features)


@dataclasses.dataclass(frozen=True)
class LabelEmbedding(LastDimensions):
  """Token embeddings whose last dimensions embed the dependency relation.

  All subwords of a word have the word's label. EOS, padding and labels that
  are not in the training data share one label; a sentence without a tree keeps
  its token embeddings. Positions and dropout are applied afterwards. In
  sentences with a tree, the replaced dimensions of the token table get no
  gradient from the encoder; if the tables are tied, the decoder still uses them.
  """

  size: CountOrOff = option(
    10,
    "Size of the label embedding, which replaces the last dimensions of the "
    "token embedding; 10 in the authors' code, not stated in the paper. 0: "
    "none.",
  )
  scale_label: bool = option(
    False,
    "Whether label embeddings are multiplied by √D, as token embeddings are. "
    "In the authors' code, label embeddings are not scaled, so their initial "
    "values are smaller by a factor of √D. True: our variant.",
  )

  modifier: ClassVar[type[Modifier]] = _LabelEmbedding
  required_features: ClassVar[tuple[str, ...]] = ("relation",)
  content: ClassVar[str] = "the label"
