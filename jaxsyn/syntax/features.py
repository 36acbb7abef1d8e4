"""Features of a batch of sentences, as read by attention modifiers.

Letters: E eigenvector; X another word.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
from flax import struct
from jax import Array
from jax.typing import ArrayLike

from jaxsyn.arrays.shapes import agree


def gather_words(value_BW: Array, index_BS: Array) -> Array:
  """Looks up integer or boolean values of words by word index; -1 gives 0.

  The result is value[b, index[b,s]]. Indices are compared, because gathers are
  slow on accelerators.
  """
  value_BW, index_BS = jnp.asarray(value_BW), jnp.asarray(index_BS)
  is_index_BSW = index_BS[:, :, None] == jnp.arange(value_BW.shape[1])
  value_B1W = value_BW[:, None, :]
  if value_BW.dtype == bool:
    return jnp.any(is_index_BSW & value_B1W, axis=2)
  return jnp.sum(
    jnp.where(is_index_BSW, value_B1W, 0), axis=2, dtype=value_BW.dtype
  )


# An array; None where the batch does not contain it. A modifier names the
# features that it reads in its `required_features`.
Feature = Any


@struct.dataclass
class SentenceFeatures:
  """Features of the sentences on one side of a batch, which modifiers may read.

  Sequences are right-padded; indices count from 0.

  Attributes:
    real_BS: True for subwords, EOS included; False for padding.
    word_BS: Word that a subword belongs to; -1 for EOS and padding.
    head_BW: Parent of each word; a root is its own parent.
    relation_BW: Dependency relation of each word.
    parent_mid_BS: Middle position of the parent word's subwords.
    tree_distance_BWW: Edges between two words; 254: saturated, 255: no path.
    eigenvectors_BWE: Eigenvectors of the tree's Laplacian
      (`jaxsyn.data.sentence.spectrum`).
    parsed_B: False for sentences without a tree; see `where_parsed`.
    weighting_BSS, weighting_BHSS: The caller's syntax weighting matrix.
    annotations: Other labels of words by name; see `annotation_BS`.
    position_Q: Position of each query in its sentence.
    position_M: Position of each key.
    query_BQHK, key_BMHK: Queries, divided by √K, and keys (`rescore` only).
    inputs: Attention inputs of this encoder layer and all previous ones.
    shared_features: Results of `Modifier.make_shared_features` by modifier.
    full_context: Whether a decoder shows its queries all later positions too,
      as some losses require.
    train: Whether dropout and the noise of modifiers are on.
  """

  real_BS: Array
  word_BS: Feature = None
  head_BW: Feature = None
  relation_BW: Feature = None
  parent_mid_BS: Feature = None
  tree_distance_BWW: Feature = None
  eigenvectors_BWE: Feature = None
  parsed_B: Feature = None
  weighting_BSS: Feature = None
  weighting_BHSS: Feature = None
  annotations: Mapping[str, Array] = struct.field(default_factory=dict)
  position_Q: Feature = None
  position_M: Feature = None
  query_BQHK: Feature = None
  key_BMHK: Feature = None
  inputs: tuple[Array, ...] = ()
  shared_features: Mapping[str, Array] = struct.field(default_factory=dict)
  full_context: bool = struct.field(pytree_node=False, default=False)
  train: bool = struct.field(pytree_node=False, default=False)

  @property
  def is_word_BS(self) -> Array:
    """Mask of the subwords that belong to a word, unlike EOS and padding."""
    return self.word_BS >= 0

  @property
  def is_last_of_word_BS(self) -> Array:
    """Mask of the last subword of each word."""
    next_BS = jnp.pad(self.word_BS[:, 1:], ((0, 0), (0, 1)), "edge")
    is_end_S = jnp.arange(self.word_BS.shape[1]) == self.word_BS.shape[1] - 1
    return self.is_word_BS & ((next_BS != self.word_BS) | is_end_S)

  @property
  def in_word_BWS(self) -> Array:
    """Mask of the subwords that belong to each word."""
    word_B1S = jnp.where(self.real_BS, self.word_BS, -1)[:, None]
    words = self._required("head_BW").shape[1]
    return word_B1S == jnp.arange(words)[:, None]

  @property
  def parent_BW(self) -> Array:
    """Index of each word's parent; parents without subwords are skipped.

    A parent without subwords is replaced by its own parent, as for the feature
    `parent_mid`. A root is its own parent, and so is a word without any such
    ancestor.
    """
    head_BW = self._required("head_BW").astype(jnp.int32)
    index_W = jnp.arange(head_BW.shape[1])
    has_subwords_BW = jnp.any(self.in_word_BWS, axis=2)
    nearest_BW = jnp.where(has_subwords_BW, index_W, head_BW)
    # Pointer doubling: after k rounds, up to 2**k words are skipped.
    for _ in range(max(1, (len(index_W) - 1).bit_length())):
      nearest_BW = gather_words(nearest_BW, nearest_BW)
    parent_BW = gather_words(nearest_BW, head_BW)
    has_parent_BW = gather_words(has_subwords_BW, parent_BW)
    return jnp.where(has_parent_BW, parent_BW, index_W)

  @property
  def is_parent_BWX(self) -> Array:
    """Mask of word pairs (w, x) in which x is the parent of w.

    A root has no parent here.
    """
    parent_BW = self.parent_BW
    index_W = jnp.arange(parent_BW.shape[1])
    has_parent_BW = jnp.any(self.in_word_BWS, axis=2) & (parent_BW != index_W)
    return has_parent_BW[:, :, None] & (parent_BW[:, :, None] == index_W)

  @property
  def parent_word_BS(self) -> Array:
    """Index of the parent of each subword's word; -1 without word or tree.

    Parents without subwords are skipped, as in `parent_BW`.
    """
    parent_BS = self._expand_words(self.parent_BW, -1)
    return self.where_parsed(parent_BS, -1)

  @property
  def depth_BW(self) -> Array:
    """Number of edges from each word to its root."""
    head_BW = self._required("head_BW")
    depth_BW = (head_BW != jnp.arange(head_BW.shape[1])).astype(jnp.int32)
    # Pointer doubling: after k rounds, depth counts up to 2**k edges.
    for _ in range(max(1, (head_BW.shape[1] - 1).bit_length())):
      depth_BW = depth_BW + gather_words(depth_BW, head_BW)
      head_BW = gather_words(head_BW, head_BW)
    return depth_BW

  @property
  def depth_BS(self) -> Array:
    """Number of edges from each subword's word to its root; -1 for no word."""
    return self._expand_words(self.depth_BW, -1)

  @property
  def relation_BS(self) -> Array:
    """Dependency relation of each subword's word to its parent; 0: no word."""
    return self._expand_words(self._required("relation_BW"), 0)

  @property
  def tree_distance_BSS(self) -> Array:
    """Tree distance between the words of each subword pair; 255: no word."""
    return self.expand_pairs(self._required("tree_distance_BWW"), 255)

  def annotation_BS(self, name: str) -> Array:
    """Returns the annotation id of each subword's word; 0 without a word.

    Args:
      name: Annotation (`jaxsyn.data.annotations`).
    """
    return self._expand_words(self.annotations[name], 0)

  def expand_pairs(self, value_BWW: Array, fill: int) -> Array:
    """Expands values for pairs of words to pairs of their subwords.

    Args:
      value_BWW: Integers from 0 to 255, or booleans.
      fill: Value where one of the two subwords has no word.

    Returns:
      value_BSS, int32.
    """
    one_BSW = jax.nn.one_hot(self.word_BS, value_BWW.shape[1])
    # Exact on every device: bfloat16 holds all integers up to 256.
    value_BSS = jnp.einsum(
      "BSW,BWX,BRX->BSR", one_BSW, value_BWW.astype(jnp.float32), one_BSW
    )
    both_BSS = self.is_word_BS[:, :, None] & self.is_word_BS[:, None, :]
    return jnp.where(both_BSS, value_BSS.astype(jnp.int32), fill)

  def where_parsed(self, new: Array, old: ArrayLike) -> Array:
    """Returns `new` for sentences with a tree, and `old` for all others.

    Args:
      new, old: Arrays of the same shape, or broadcast to it. Axis 0 is B.
    """
    if self.parsed_B is None:
      return new
    parsed = self.parsed_B.reshape(-1, *[1] * (jnp.ndim(new) - 1)) != 0
    return jnp.where(parsed, new, old)

  def with_positions(self) -> SentenceFeatures:
    """Adds query and key positions for all subwords, and checks all shapes."""
    position_S = jnp.arange(self.real_BS.shape[1])
    return dataclasses.replace(
      self, position_Q=position_S, position_M=position_S
    ).check()

  def check(self) -> SentenceFeatures:
    """Raises ValueError unless all features have consistent shapes."""
    names = [f.name for f in dataclasses.fields(self)]
    arrays = {n: getattr(self, n) for n in names if n[-1].isupper()}
    agree(**arrays)
    return self

  def _required(self, name: str) -> Array:
    """Returns the named feature; raises an error if the batch lacks it.

    Raises:
      ValueError: The batch does not contain it.
    """
    value = getattr(self, name)
    if value is None:
      raise ValueError(
        f"the batch has no {name}: a modifier must name the features that it "
        "reads in required_features"
      )
    return value

  def _expand_words(self, value_BW: Array, fill: int) -> Array:
    value_BS = gather_words(value_BW, self.word_BS)
    return jnp.where(self.is_word_BS, value_BS, fill)
