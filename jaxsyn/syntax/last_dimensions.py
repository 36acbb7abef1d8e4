"""Base classes of modifiers that replace the last embedding dimensions.

Letters: P dimension of a replacement.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, ClassVar

import jax.numpy as jnp
from flax import linen as nn
from jax import Array

from jaxsyn.options import ConfigPath, option
from jaxsyn.options.bounds import CountOrOff
from jaxsyn.syntax.features import SentenceFeatures
from jaxsyn.syntax.modifier import (
  AttentionSite,
  ModifierSpec,
  StackShape,
)

# Exclusive target: only one modifier may replace it.
LAST_DIMENSIONS = "the last dimensions of the embeddings"


class LabelTable(nn.Embed):
  """Embedding table for subword labels; ids out of range count as label 0."""

  def __call__(self, label_BS: Array) -> Array:
    """Returns the embedding vector of each label in float32.

    The caller casts them, because casting before the lookup would add up the
    gradients of a label in bfloat16.
    """
    is_known_BS = (label_BS >= 0) & (label_BS < self.num_embeddings)
    return super().__call__(jnp.where(is_known_BS, label_BS, 0))


def label_table(labels: int, size: int, site: AttentionSite) -> LabelTable:
  """Creates an embedding table for subword labels, scaled like that of tokens.

  Args:
    labels: Number of labels, with ids from 1. Label 0 is "no label".
    size: Width of a vector.
    site: Site of the modifier.
  """
  # Initialized as the token embeddings whose dimensions it replaces.
  initializer = nn.initializers.normal(site.width**-0.5)
  return LabelTable(labels + 1, size, embedding_init=initializer)


def replace_last(
  x_BSD: Array, last_BSP: Array, features: SentenceFeatures
) -> Array:
  """Replaces the last embedding dimensions in sentences that have a tree."""
  token_BSD = x_BSD[..., : x_BSD.shape[-1] - last_BSP.shape[-1]]
  last_BSP = last_BSP.astype(x_BSD.dtype)
  return features.where_parsed(
    jnp.concatenate([token_BSD, last_BSP], -1), x_BSD
  )


@dataclasses.dataclass(frozen=True)
class LastDimensions(ModifierSpec):
  """Options of a modifier that fills the last `size` embedding dimensions."""

  size: CountOrOff = option(
    0, "Number of last dimensions of the embedding that are replaced; 0: none."
  )

  content: ClassVar[str]  # of these dimensions, for messages
  disabled_options: ClassVar[Mapping[str, Any]] = {"size": 0}

  def exclusive_targets(self, stack_shape: StackShape) -> set[str]:
    return {LAST_DIMENSIONS} if self.size else set()

  def check(self, at: ConfigPath, stack_shape: StackShape) -> None:
    if self.size > stack_shape.width:
      raise (at / "size").error(
        f"={self.size} must be from 0 to config.model.width={stack_shape.width}, "
        f"because {self.content} replaces so many dimensions of the embedding."
      )
