"""Attention heads restricted to words that are near in the tree.

Li et al. 2021, "Improving BERT with Syntax-aware Local Attention"
(arXiv:2012.15150): a word attends to the words within three edges of itself and
its two neighbors in the sentence, and a gate mixes this with attention to all
words. The mask and the gate follow the authors' code
(github.com/Neutralzz/syntax_aware_local_attention). Zhang et al. 2020, "SG-Net:
Syntax-Guided Machine Reading Comprehension" (arXiv:1908.05147, from memory),
section 3: a word attends to itself and its ancestors.

Letters: X another word.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Annotated, ClassVar, Literal

import jax
import jax.numpy as jnp
from flax import linen as nn
from jax import Array

from jaxsyn.data.schema import FAR
from jaxsyn.options import ConfigPath, option, with_default
from jaxsyn.options.bounds import Range
from jaxsyn.syntax.features import SentenceFeatures
from jaxsyn.syntax.gaussian import HIDDEN
from jaxsyn.syntax.heads import (
  HeadChoice,
  HeadsModifier,
  OnHeads,
  on_heads,
  put_heads,
  take_heads,
)
from jaxsyn.syntax.maps import publish
from jaxsyn.syntax.modifier import Modifier, StackShape


def _siblings(is_parent_BWX: Array) -> Array:
  """Returns a mask of word pairs with the same parent; roots are in no pair."""
  one_BWX = is_parent_BWX.astype(jnp.float32)
  return jnp.einsum("BWY,BXY->BWX", one_BWX, one_BWX) > 0


def _ancestors(is_parent_BWX: Array) -> Array:
  """Returns a mask of word pairs (w, x) in which x is w or an ancestor of w."""
  near_BWX = is_parent_BWX | jnp.eye(is_parent_BWX.shape[1], dtype=bool)
  # After k rounds, ancestors up to 2**k edges above.
  for _ in range(max(1, (near_BWX.shape[1] - 1).bit_length())):
    one_BWX = near_BWX.astype(jnp.float32)
    near_BWX = jnp.einsum("BWX,BXY->BWY", one_BWX, one_BWX) > 0
  return near_BWX


def _inverse(near_BWX: Array) -> Array:
  return jnp.swapaxes(near_BWX, 1, 2)


# Functions from "x is the parent of w" to "w sees x".
RELATIONS: dict[str, Callable[[Array], Array]] = {
  "parent": lambda is_parent_BWX: is_parent_BWX,
  "children": _inverse,
  "siblings": _siblings,
  "ancestors": _ancestors,
  "descendants": lambda is_parent_BWX: _inverse(_ancestors(is_parent_BWX)),
}


class _NeighbourHeads(HeadsModifier):
  def setup(self) -> None:
    if self.spec.gate == "input":
      # BERT's initialization, as in the authors' code.
      normal = nn.initializers.normal(0.02)
      self.gate_D = self.param("gate_D", normal, (self.site.width,))
      self.gate_bias = self.param("gate_bias", nn.initializers.zeros_init(), ())
    elif self.spec.gate == "query":
      vector = nn.initializers.xavier_uniform(-1, (), batch_axis=0)
      shape = len(self.heads), self.site.head_width
      self.gate_HK = self.param("gate_HK", vector, shape)
      zeros = nn.initializers.zeros_init()
      self.gate_H = self.param("gate_H", zeros, (len(self.heads),))

  def _near_BSS(self, features: SentenceFeatures) -> Array:
    spec: NeighbourHeads = self.spec
    if spec.relation == "hops":
      near_BWW = features.tree_distance_BWW <= spec.hops
      for _ in range(spec.context):
        near_BWW = _with_adjacent_words(near_BWW)
    else:
      near_BWW = RELATIONS[spec.relation](features.is_parent_BWX)
    near_BSS = features.expand_pairs(near_BWW, 0) > 0
    if spec.relation == "hops" and spec.eos:
      special_BS = features.real_BS & ~features.is_word_BS
      near_BSS |= special_BS[:, :, None] | special_BS[:, None, :]
    word_BS = features.word_BS
    is_same_BSS = word_BS[:, :, None] == word_BS[:, None, :]
    is_same_BSS &= features.is_word_BS[:, :, None]
    diagonal_SS = jnp.eye(near_BSS.shape[1], dtype=bool)
    pad_BS1 = ~features.real_BS[:, :, None]  # no row may be hidden completely
    return near_BSS | is_same_BSS | diagonal_SS | pad_BS1

  def _gate_logit_BHQ(self, features: SentenceFeatures) -> Array:
    """Returns the logits of the gates between local and full attention.

    H is 1 if all heads share the gate.
    """
    if self.spec.gate == "input":
      x_BQD = features.inputs[-1].astype(jnp.float32)
      return (x_BQD @ self.gate_D + self.gate_bias)[:, None]
    q_BQHK = take_heads(self.heads, features.query_BQHK).astype(jnp.float32)
    logit_BHQ = self.site.head_width**0.5 * jnp.einsum(
      "BQHK,HK->BHQ", q_BQHK, self.gate_HK
    )
    return logit_BHQ + self.gate_H[:, None]

  def rescore(self, score_BHQM: Array, features: SentenceFeatures) -> Array:
    spec: NeighbourHeads = self.spec
    near_BSS = self._near_BSS(features)
    near_B1QM = features.where_parsed(near_BSS, jnp.ones_like(near_BSS))[
      :, None
    ]
    publish(self, "near_BQM", near_B1QM[:, 0].astype(jnp.float32))
    if spec.gate == "none":
      # A sum instead of `where`, so that fused attention can use it as a bias.
      bias_B1QM = jnp.where(near_B1QM, 0.0, HIDDEN)
      return on_heads(spec.heads, score_BHQM + bias_B1QM, score_BHQM)
    logit_BHQ1 = self._gate_logit_BHQ(features)[..., None]
    zero_BHQ1 = jnp.zeros((*score_BHQM.shape[:3], 1), jnp.float32)
    gate_BHQ1 = jnp.broadcast_to(
      jax.nn.sigmoid(logit_BHQ1),
      (len(score_BHQM), len(self.heads), score_BHQM.shape[2], 1),
    )
    gate_BHQ1 = put_heads(self.heads, gate_BHQ1, zero_BHQ1)
    publish(self, "gate_BHQ", gate_BHQ1[..., 0])
    real_B11M = features.real_BS[:, None, None, :]
    selected_BHQM = take_heads(self.heads, score_BHQM, axis=1)
    masked_BHQM = jnp.where(real_B11M, selected_BHQM, HIDDEN)
    local_BHQM = jnp.where(real_B11M & near_B1QM, selected_BHQM, HIDDEN)
    # The scores are the logarithm of the mixed weights, which the softmax of
    # attention then leaves unchanged.
    mixed_BHQM = jnp.logaddexp(
      jax.nn.log_sigmoid(logit_BHQ1) + jax.nn.log_softmax(local_BHQM),
      jax.nn.log_sigmoid(-logit_BHQ1) + jax.nn.log_softmax(masked_BHQM),
    )
    mixed_BHQM = features.where_parsed(mixed_BHQM, selected_BHQM)
    return put_heads(self.heads, mixed_BHQM, score_BHQM)


def _with_adjacent_words(near_BWX: Array) -> Array:
  """Extends each word's mask by the masks of its left and right neighbors."""
  padded_BWX = jnp.pad(near_BWX, ((0, 0), (1, 1), (0, 0)))
  return near_BWX | padded_BWX[:, :-2] | padded_BWX[:, 2:]


@dataclasses.dataclass(frozen=True)
class NeighbourHeads(OnHeads):
  """Attention heads limited to words related to the query's word in the tree.

  All subwords of a word attend to all subwords of the related words and of the
  word itself. For a relation other than "hops", a word without subwords is
  skipped: its children depend on its own parent. Edges of "hops" are edges of
  the complete tree, and `context` counts all words. Without a tree, heads
  attend to the complete sentence. With a gate,

    weight = g · local + (1 - g) · global

  where `local` is the softmax over the words near in the tree and `global` the
  softmax over all words. Attention dropout is applied to the mixture; the authors
  of the gate apply it to each of the two.
  """

  layers: HeadChoice = with_default(OnHeads, "layers", None)
  heads: HeadChoice = with_default(OnHeads, "heads", (0, 1))
  relation: Literal[
    "parent", "children", "siblings", "ancestors", "descendants", "hops"
  ] = option(
    "hops",
    'Visible words: "parent", "children", "siblings", "ancestors" (SG-Net), '
    '"descendants", or "hops": words at most `hops` edges away (Li et al.).',
  )
  hops: Annotated[int, Range(1, FAR - 1)] = option(
    3,
    'Largest tree distance at which a word is visible, with relation="hops".',
    unit="edges",
  )
  context: Annotated[int, Range(0, FAR - 1)] = option(
    1,
    "A word also sees the words that are visible to this many neighbors on "
    'each side in the sentence, with relation="hops". 0: none.',
    unit="words",
  )
  eos: bool = option(
    True,
    "Whether EOS and other subwords that belong to no word are visible to all "
    'words and see the complete sentence, with relation="hops", like [CLS] '
    "and [SEP] in the authors' code. Otherwise, they see only themselves, and "
    "no word sees them.",
  )
  gate: Literal["none", "input", "query"] = option(
    "none",
    'Gate g between attention to nearby words and to all words. "input" (Li '
    "et al.): one gate per position, g = sigmoid(u · x + b) with the layer's "
    'input x, shared by all heads. "query": one gate per position and head, g '
    "= sigmoid(u · q + b) with the query q before it is divided by √K. "
    '"none": g = 1.',
  )

  modifier: ClassVar[type[Modifier]] = _NeighbourHeads

  @property
  def is_additive(self) -> bool:
    return self.gate == "none"

  @property
  def required_features(self) -> tuple[str, ...]:
    return ("tree_distance",) if self.relation == "hops" else ("head",)

  def check(self, at: ConfigPath, stack_shape: StackShape) -> None:
    super().check(at, stack_shape)
    if self.relation != "hops":
      names = ["hops", "context", "eos"]
      self.reject_changed_options(at, names, f"relation={self.relation!r}")
