"""Parents among the words that a batch has subwords of.

Letters: X another word.
"""

from __future__ import annotations

import jax.numpy as jnp
from jax import Array

from jaxsyn.syntax.modifier import SentenceFeatures, gather_words


def parents_BWX(view: SentenceFeatures) -> Array:
  """Whether x is the parent of w, among words that have subwords.

  A parent without any is passed over for its own, as `jaxsyn.data.sentence.tree`
  does for its middle; a root, and a word under none that has any, has no parent.

  Args:
    view: with word_BS and head_BW.
  """
  head_BW = view.head_BW
  index_W = jnp.arange(head_BW.shape[1])
  has_subwords_BW = jnp.any(of_words_BWS(view), axis=2)
  # The nearest that has any, of a word and those above: after k rounds, of 2**k.
  near_BW = jnp.where(has_subwords_BW, index_W, head_BW)
  for _ in range(max(1, (len(index_W) - 1).bit_length())):
    near_BW = gather_words(near_BW, near_BW)
  parent_BW = gather_words(near_BW, head_BW)
  has_parent_BW = (
    gather_words(has_subwords_BW, parent_BW)
    & has_subwords_BW
    & (parent_BW != index_W)
  )
  # A root without subwords is above itself alone.
  return has_parent_BW[:, :, None] & (parent_BW[:, :, None] == index_W)


def of_words_BWS(view: SentenceFeatures) -> Array:
  """Whether a subword is of a word."""
  word_B1S = jnp.where(view.real_BS, view.word_BS, -1)[:, None]
  return word_B1S == jnp.arange(view.head_BW.shape[1])[:, None]
