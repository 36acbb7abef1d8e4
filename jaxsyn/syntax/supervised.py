"""Parsing heads: attention heads that a loss trains to attend to parents.

Such a head scores pairs by a bi-affine form instead of a product; the losses are
in `jaxsyn.training.head_losses`. It reads no tree itself, so that translation
needs no parser. It publishes two maps, indexed by the subwords of its side:

  log_parse_BQM   log of the mean weight of the modifier's heads; -inf where the
                  mask hides m, and in rows that belong to no subword
  parent_BQ       subword that q should attend to; -1: no subword
"""

from __future__ import annotations

import dataclasses
import math
from typing import Literal

import jax
import jax.numpy as jnp
from flax import linen as nn
from jax import Array

from jaxsyn.options import option
from jaxsyn.syntax.features import SentenceFeatures
from jaxsyn.syntax.gaussian import HIDDEN
from jaxsyn.syntax.heads import HeadsModifier, OnHeads, put_heads, take_heads
from jaxsyn.syntax.maps import publish
from jaxsyn.syntax.modifier import StackShape

NO_PARENT = -1


def first_of_parent_BS(features: SentenceFeatures) -> Array:
  """Returns the first subword of each subword's parent word; -1 without one.

  For a root it is the first subword of the root itself.

  Source: Bugliarello & Okazaki 2020, on SISA.
  """
  parent_BS = features.parent_word_BS
  is_parent_BSS = parent_BS[:, :, None] == features.word_BS[:, None, :]
  first_BS = jnp.argmax(is_parent_BSS, axis=2).astype(jnp.int32)
  return jnp.where(parent_BS >= 0, first_BS, NO_PARENT)


def chain_BS(features: SentenceFeatures) -> Array:
  """Returns each subword's attention target in DBSA; -1 without a target.

  The target is the next subword of the word; for the last one, the first
  subword of the parent word, and for that of a root, the subword itself.

  Source: Deguchi, Tamura & Ninomiya 2019, as in their preprocessing code.
  """
  position_BS = jnp.arange(features.word_BS.shape[1])[None, :]
  is_word_BS = features.is_word_BS
  is_root_BS = is_word_BS & (features.parent_word_BS == features.word_BS)
  target_BS = jnp.where(is_root_BS, position_BS, first_of_parent_BS(features))
  has_next_BS = is_word_BS & ~features.is_last_of_word_BS
  has_next_BS = features.where_parsed(has_next_BS, False)
  return jnp.where(has_next_BS, position_BS + 1, target_BS)


def visible_BQM(features: SentenceFeatures, stack: str) -> Array:
  """Returns a mask of the keys that are visible to each query.

  It has the axes B1M in an encoder.
  """
  real_B1M = features.real_BS[:, None, :]
  if stack == "encoder" or features.full_context:
    return real_B1M
  position_Q1 = features.position_Q[:, None]
  return real_B1M & (features.position_M[None, :] <= position_Q1)


@dataclasses.dataclass(frozen=True)
class Supervised(OnHeads):
  """Options of parsing heads: attention heads supervised with trees."""

  gold: Literal["off", "training", "always"] = option(
    "off",
    "When to attend to the parents in the data (see config.data.tree) instead "
    'of the predicted parents: "off", never; "training", only during training '
    '(the scores are trained all the same); "always", during evaluation too '
    "(an oracle; translation then needs a parser).",
  )

  @property
  def required_features(self) -> tuple[str, ...]:
    return ("head",) if self.gold == "always" else ()

  @property
  def train_only_features(self) -> tuple[str, ...]:
    return () if self.gold == "off" else ("head",)

  def exclusive_targets(self, stack_shape: StackShape) -> set[str]:
    heads = self.active_heads(stack_shape.layers, stack_shape.heads)
    return {
      f"the scores of attention head {head} of layer {layer}"
      for layer, head in heads
    }


class SupervisedModifier(HeadsModifier):
  """Base class of parsing-head modules, with bilinear attention scores.

  The score of query q̃ and key k̃ is q̃ᵀ U k̃ + u·k̃.
  """

  def setup(self) -> None:
    heads, width = len(self.heads), self.site.head_width
    self.bilinear_HKK = self.param(
      "bilinear_HKK", self.initializer(), (heads, width, width)
    )
    if self.has_bias:
      zeros = nn.initializers.zeros
      self.bias_HK = self.param("bias_HK", zeros, (heads, width))

  def initializer(self) -> nn.initializers.Initializer:
    """Returns the initializer of the bilinear matrix U."""
    raise NotImplementedError

  @property
  def has_bias(self) -> bool:
    """Whether the scores have a bias term u·k̃ that depends on the key only.

    It is initialized to 0.
    """
    return True

  def inputs(self, q_BQHK: Array, k_BMHK: Array) -> tuple[Array, Array]:
    """Transforms queries and keys before the bilinear product.

    The queries are not divided by √K.
    """
    raise NotImplementedError

  def targets(self, features: SentenceFeatures) -> Array:
    """Returns each subword's attention target; -1 without a target."""
    raise NotImplementedError

  def target_rows(self, target_BQ: Array) -> Array:
    """Reindexes attention targets from subwords to query and key positions."""
    return target_BQ

  def by_subword(self, log_p_BQM: Array, features: SentenceFeatures) -> Array:
    """Reindexes log attention weights from query/key positions to subwords."""
    return log_p_BQM

  def rescore(self, score_BHQM: Array, features: SentenceFeatures) -> Array:
    # In float32 up to the last product; U and u of few heads are cheap.
    q_BQHK = take_heads(self.heads, features.query_BQHK).astype(jnp.float32)
    k_BMHK = take_heads(self.heads, features.key_BMHK)
    q_BQHK = q_BQHK * math.sqrt(self.site.head_width)
    q_BQHK, k_BMHK = self.inputs(q_BQHK, k_BMHK)
    q_BQHK = jnp.einsum("BQHJ,HJK->BQHK", q_BQHK, self.bilinear_HKK)
    if self.has_bias:
      q_BQHK = q_BQHK + self.bias_HK
    new_BHQM = jnp.einsum(
      "BQHK,BMHK->BHQM",
      q_BQHK.astype(k_BMHK.dtype),
      k_BMHK,
      preferred_element_type=jnp.float32,
    )
    self._publish(new_BHQM, features)
    gold = self.spec.gold
    if gold == "always" or (features.train and gold == "training"):
      new_BHQM = self._gold_scores(new_BHQM, features)
    return put_heads(self.heads, new_BHQM, score_BHQM)

  def _publish(self, score_BHQM: Array, features: SentenceFeatures) -> None:
    visible_B1QM = visible_BQM(features, self.site.stack)[:, None]
    lowest = jnp.finfo(jnp.float32).min
    score_BHQM = jnp.where(visible_B1QM, score_BHQM, lowest)
    log_p_BHQM = jax.nn.log_softmax(score_BHQM, axis=-1)
    log_p_BQM = jax.nn.logsumexp(log_p_BHQM, axis=1) - math.log(len(self.heads))
    # Not before log_softmax, which is NaN for a row of -inf.
    log_p_BQM = jnp.where(visible_B1QM[:, 0], log_p_BQM, -jnp.inf)
    publish(self, "log_parse_BQM", self.by_subword(log_p_BQM, features))
    if features.head_BW is not None:
      publish(self, "parent_BQ", self.targets(features))

  def _gold_scores(
    self, score_BHQM: Array, features: SentenceFeatures
  ) -> Array:
    """Returns attention scores that select the gold target if it is visible."""
    if features.head_BW is None:
      return score_BHQM
    target_BQ1 = self.target_rows(self.targets(features))[:, :, None]
    is_target_BQM = jnp.arange(score_BHQM.shape[3]) == target_BQ1
    is_target_BQM = is_target_BQM & visible_BQM(features, self.site.stack)
    has_target_BQ1 = is_target_BQM.any(2, keepdims=True)
    gold_BQM = jnp.where(is_target_BQM, 0.0, HIDDEN)
    return jnp.where(has_target_BQ1[:, None], gold_BQM[:, None], score_BHQM)
