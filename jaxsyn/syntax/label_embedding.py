"""S&H: dependency labels embedded beside the subwords.

Sennrich & Haddow 2016, "Linguistic Input Features Improve Neural Machine
Translation", as re-done for the Transformer by Bugliarello & Okazaki 2020
(arXiv:1909.03149), experimental set-up, "+S&H": the label takes the last
dimensions of the token embedding, so that nothing grows.

Letters: P of a part's own dimensions.
"""

from __future__ import annotations

import dataclasses
from typing import ClassVar

from jax import Array

from jaxsyn.options import option
from jaxsyn.options.bounds import CountOrOff
from jaxsyn.syntax.labels import table_of
from jaxsyn.syntax.last_dimensions import LastDimensions, LastDimensionsModifier
from jaxsyn.syntax.modifier import Modifier, SentenceFeatures


class _LabelEmbedding(LastDimensionsModifier):
  def setup(self) -> None:
    self.table = table_of(self.site.relations, self.spec.size, self.site)

  def last_dimensions(self, x_BSD: Array, view: SentenceFeatures) -> Array:
    label_BSP = self.table(view.relation_BS).astype(x_BSD.dtype)
    if self.spec.scale_label:
      label_BSP = label_BSP * self.site.width**0.5
    return label_BSP


@dataclasses.dataclass(frozen=True)
class LabelEmbedding(LastDimensions):
  """Embedding whose last dimensions are those of the dependency label.

  All subwords of a word bear the word's label. EOS, pads and labels
  that training never saw share a label of their own; a sentence without a tree
  keeps its token embeddings whole. Positions and dropout come afterwards. The
  dimensions of the token table that are overwritten learn nothing from the
  encoder; tied, they still serve the decoder.
  """

  size: CountOrOff = option(
    10,
    "Number of last dimensions of the embedding that hold the label's "
    "embedding; 10 in the authors' code, not stated in the paper. 0: "
    "none.",
  )
  scale_label: bool = option(
    False,
    "Whether label embeddings are multiplied by √D, as token embeddings "
    "are. In the authors' code they are not, so that they start √D times "
    "smaller. True is ours.",
  )

  modifier: ClassVar[type[Modifier]] = _LabelEmbedding
  required_features: ClassVar[tuple[str, ...]] = ("relation",)
  what: ClassVar[str] = "the label"
