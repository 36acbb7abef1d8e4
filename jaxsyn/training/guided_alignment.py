"""Guided alignment: attention heads that are trained on word alignments.

The word alignments of the training pairs come from config.prepare.alignments. With
the links G between subwords (all pairs of subwords of linked words), rows
normalized, and the weights A of a head, the loss is

  -Σ over t of Σ over s of G_ts log A_ts

as a mean over the target subwords that have a link. The row of a subword in A is
that of the decoder state which predicts it.

Source: Chen et al. 2016, "Guided Alignment Training for Topic-Aware Neural
Machine Translation" (arXiv:1607.01628), section 4, cross-entropy; Garg et al.
2019, "Jointly Learning to Align and Translate with Transformer Models"
(arXiv:1909.02074), section 4.2: one head of the last layer but one, weight 0.05.
There the mean is over all target subwords.
"""

from __future__ import annotations

import dataclasses
from typing import Annotated, ClassVar

import jax.numpy as jnp
from jax import Array

from jaxsyn.models.spec import ModelSpec
from jaxsyn.options import ConfigPath, option, with_default
from jaxsyn.options.bounds import Amount, Layer, Range
from jaxsyn.syntax.maps import Maps
from jaxsyn.training.attention_options import (
  MIN_WEIGHT,
  LayerLoss,
  cross_attention,
)
from jaxsyn.training.objective import AuxiliaryMetrics, Batch, Loss, Ratio

MEAN = -1  # value of `head` for the mean of all heads


@dataclasses.dataclass(frozen=True)
class GuidedAlignment(LayerLoss):
  """Cross-entropy of a cross-attention head against word alignments."""

  weight: Amount = with_default(Loss, "weight", 0.05)
  layer: Layer = option(
    -2,
    "Decoder layer whose cross-attention is trained, from 0, or from the end "
    "if negative. If the decoder has only one layer, -2 selects this layer.",
  )
  head: Annotated[int, Range(0, 2**20, also=MEAN)] = option(
    0,
    "Cross-attention head that is trained, from 0; -1: the mean of all heads. "
    "In a recurrent decoder, each window counts as a head.",
  )

  required_features: ClassVar[tuple[str, ...]] = ("links",)
  stack: ClassVar[str] = "cross"

  def check(self, at: ConfigPath, spec: ModelSpec) -> None:
    super().check(at, spec)
    windows = getattr(spec.architecture, "windows", ())
    heads = len(windows) or spec.stack_shape("cross").heads
    if self.head >= heads:
      raise (at / "head").error(
        f": {self.head} is not one of the {heads} heads of the layer; they "
        f"count from 0 to {heads - 1}, and -1 is the mean of all."
      )

  def of_rows(self, logits_BTV: Array, maps: Maps, batch: Batch) -> Ratio:
    weight_BTS = self._weights(maps)
    links_BTS, has_link_BT = _links(batch)
    total_BT = jnp.maximum(jnp.sum(links_BTS, axis=2), 1.0)
    log_BTS = jnp.log(jnp.maximum(weight_BTS, MIN_WEIGHT))
    loss_BT = -jnp.sum(links_BTS * log_BTS, axis=2) / total_BT
    return jnp.sum(loss_BT, axis=1), jnp.sum(has_link_BT, axis=1)

  def measure(self, maps: Maps, batch: Batch) -> AuxiliaryMetrics:
    """Counts target subwords that attend most to an aligned source subword."""
    links_BTS, has_link_BT = _links(batch)
    best_BT1 = jnp.argmax(self._weights(maps), axis=2)[..., None]
    right_BT = jnp.take_along_axis(links_BTS, best_BT1, axis=2)[..., 0]
    return {"links": (jnp.sum(right_BT), jnp.sum(has_link_BT))}

  def _weights(self, maps: Maps) -> Array:
    weight_BHTS = cross_attention(maps, self.layer)
    if self.head == MEAN:
      return jnp.mean(weight_BHTS, axis=1)
    return weight_BHTS[:, self.head]


def _links(batch: Batch) -> tuple[Array, Array]:
  """Returns the alignment links (BTS), and a mask of aligned targets (BT)."""
  links_BTS = batch["links_BTS"].astype(jnp.float32)
  return links_BTS, jnp.max(links_BTS, axis=2)
