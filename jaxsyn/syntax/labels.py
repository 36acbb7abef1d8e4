"""Vectors of what is said of words: a table of labels.

Before this file: `part`. After it: `label_embedding`, `factors`.
"""

from __future__ import annotations

import jax.numpy as jnp
from flax import linen as nn
from jax import Array

from jaxsyn.syntax.modifier import AttentionSite


class Labels(nn.Embed):
  """Vectors of labels; what the table does not know is label 0, never NaN."""

  def __call__(self, label_BS: Array) -> Array:
    """Their vectors in float32.

    To be rounded by who looked them up: before, gradients would be added up in
    bfloat16.
    """
    known_BS = (label_BS >= 0) & (label_BS < self.num_embeddings)
    return super().__call__(jnp.where(known_BS, label_BS, 0))


def table_of(labels: int, size: int, site: AttentionSite) -> Labels:
  """A table of vectors; label 0 is of who has none.

  Args:
    labels: how many, numbered from 1.
    size: of a vector.
    where: of the part.
  """
  # As token embeddings are drawn: multiplied by √D a label enters just as the
  # dimensions of the token beside it do.
  draw = nn.initializers.normal(site.width**-0.5)
  return Labels(labels + 1, size, embedding_init=draw)
