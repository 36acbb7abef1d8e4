"""Heads that learn to parse: base of the parts whose weights are supervised.

Such a head scores pairs by a bi-affine form instead of a product, and a loss
(`jaxsyn.training.head_losses`) draws its weights to the parents. It reads no
tree itself, so translating needs no parser.

For the losses a part publishes, indexed by the subwords of its side:

  log_parse_BQM   log of the weight, the mean over the part's heads; -inf where
                  a mask hides m, and in rows that stand for no subword
  parent_BQ       the subword that q is to find; -1: none
"""

from __future__ import annotations

import dataclasses
import math
from typing import ClassVar, Literal

import jax
import jax.numpy as jnp
from flax import linen as nn
from jax import Array

from jaxsyn.options import option
from jaxsyn.syntax.gaussian import HIDDEN
from jaxsyn.syntax.heads import HeadsModifier, OnHeads, of_heads, onto_heads
from jaxsyn.syntax.maps import publish
from jaxsyn.syntax.modifier import SentenceFeatures, gather_words

NO_PARENT = -1


def last_of_word_BS(view: SentenceFeatures) -> Array:
  """True for the last subword of each word."""
  following_BS = jnp.pad(view.word_BS[:, 1:], ((0, 0), (0, 1)), "edge")
  end_S = jnp.arange(view.word_BS.shape[1]) == view.word_BS.shape[1] - 1
  return view.is_word_BS & ((following_BS != view.word_BS) | end_S)


def head_word_BS(view: SentenceFeatures) -> Array:
  """The parent word of a subword's word; -1 where there is no word or tree.

  A parent without any subword (where subwords run over blanks that are not
  there, or normalisation deletes a word) is passed over for its own parent;
  where none above has any, the word counts as a root: as for the stored
  `parent_mid` (`jaxsyn.data.sentence.tree`).
  """
  head_BW = view.head_BW.astype(jnp.int32)
  index_W = jnp.arange(head_BW.shape[1])
  has_BW = jnp.any(view.word_BS[:, :, None] == index_W, axis=1)
  climb_BW = jnp.where(has_BW, index_W, head_BW)
  # Doubling: after k rounds a climb has passed over up to 2**k words.
  for _ in range(len(index_W).bit_length()):
    climb_BW = gather_words(climb_BW, climb_BW)
  head_BW = gather_words(climb_BW, head_BW)
  has_head_BW = gather_words(has_BW, head_BW)
  head_BW = jnp.where(has_head_BW, head_BW, index_W)
  head_BS = gather_words(head_BW, view.word_BS)
  head_BS = jnp.where(view.is_word_BS, head_BS, NO_PARENT)
  return view.where_parsed(head_BS, NO_PARENT)


def first_of_parent_BS(view: SentenceFeatures) -> Array:
  """The first subword of the parent word, for every subword of a word.

  A root's subwords point to the first one of its own word.

  Args:
    view: with word_BS and head_BW.

  Returns: positions; -1: none.
  Source: Bugliarello & Okazaki 2020, on SISA.
  """
  head_BS = head_word_BS(view)
  is_parent_BSS = head_BS[:, :, None] == view.word_BS[:, None, :]
  first_BS = jnp.argmax(is_parent_BSS, axis=2).astype(jnp.int32)
  return jnp.where(head_BS >= 0, first_BS, NO_PARENT)


def chain_BS(view: SentenceFeatures) -> Array:
  """The next subword inside a word; from its last one, the parent's first.

  The last subword of a root points to itself.

  Args:
    view: with word_BS and head_BW.

  Returns: positions; -1: none.
  Source: Deguchi, Tamura & Ninomiya 2019, as their code prepares subwords.
  """
  position_BS = jnp.arange(view.word_BS.shape[1])[None, :]
  root_BS = view.is_word_BS & (head_word_BS(view) == view.word_BS)
  parent_BS = jnp.where(root_BS, position_BS, first_of_parent_BS(view))
  inside_BS = view.is_word_BS & ~last_of_word_BS(view)
  inside_BS = view.where_parsed(inside_BS, False)
  return jnp.where(inside_BS, position_BS + 1, parent_BS)


def shown_BQM(view: SentenceFeatures, place: str) -> Array:
  """Which pairs attention's own mask shows (B1M in an encoder)."""
  real_B1M = view.real_BS[:, None, :]
  if place == "encoder" or view.full_context:
    return real_B1M
  return real_B1M & (view.position_M[None, :] <= view.position_Q[:, None])


@dataclasses.dataclass(frozen=True)
class Supervised(OnHeads):
  """Heads whose scores are replaced, to be supervised by a loss."""

  gold: Literal["off", "training", "always"] = option(
    "off",
    "Use of the parents in the data (see config.data.tree) instead of "
    'predicted ones: "off"; "training", in training, where the scores are '
    'still trained; "always", in evaluation too, an oracle that needs a '
    "parser for translation.",
  )

  replaces: ClassVar[bool] = True
  supervised: ClassVar[bool] = True

  @property
  def required_features(self) -> tuple[str, ...]:
    return ("head",) if self.gold == "always" else ()

  @property
  def train_only_features(self) -> tuple[str, ...]:
    return () if self.gold == "off" else ("head",)


class SupervisedModifier(HeadsModifier):
  """Base of the modules; they say what is scored and whom to find.

  score = q̃ᵀ U k̃ + u·k̃ for each head, of the forms q̃, k̃ of query and key that
  `inputs` gives.
  """

  def setup(self) -> None:
    heads, width = len(self.heads), self.site.head_width
    self.bilinear_HKK = self.param(
      "bilinear_HKK", self.initial(), (heads, width, width)
    )
    if self.biased:
      zeros = nn.initializers.zeros
      self.bias_HK = self.param("bias_HK", zeros, (heads, width))

  @property
  def biased(self) -> bool:
    """Whether there is a u; it starts at 0."""
    return True

  def initial(self) -> nn.initializers.Initializer:
    """Of U."""
    raise NotImplementedError

  def inputs(self, q_BQHK: Array, k_BMHK: Array) -> tuple[Array, Array]:
    """Queries, as projected, not divided by √K, and keys: to be scored."""
    raise NotImplementedError

  def parents(self, view: SentenceFeatures) -> Array:
    """The subword that each is to find (BS); see `parent_BQ` above."""
    raise NotImplementedError

  def rows_of(self, parent_BQ: Array) -> Array:
    """Parents by subword to parents by row of the attention."""
    return parent_BQ

  def subwords_of(self, log_p_BQM: Array, view: SentenceFeatures) -> Array:
    """Rows and columns of the attention to those of subwords."""
    return log_p_BQM

  def rescore(
    self,
    score_BHQM: Array,
    q_BQHK: Array,
    k_BMHK: Array,
    view: SentenceFeatures,
  ) -> Array:
    # In float32 up to the last product: U and u of few heads cost little.
    q_BQHK, k_BMHK = (of_heads(self.heads, x) for x in (q_BQHK, k_BMHK))
    q_BQHK = q_BQHK.astype(jnp.float32)
    q_BQHK = q_BQHK * math.sqrt(self.site.head_width)
    q_BQHK, k_BMHK = self.inputs(q_BQHK, k_BMHK)
    q_BQHK = jnp.einsum("BQHJ,HJK->BQHK", q_BQHK, self.bilinear_HKK)
    if self.biased:
      q_BQHK = q_BQHK + self.bias_HK
    new_BHQM = jnp.einsum(
      "BQHK,BMHK->BHQM",
      q_BQHK.astype(k_BMHK.dtype),
      k_BMHK,
      preferred_element_type=jnp.float32,
    )
    self._publish(new_BHQM, view)
    gold = self.spec.gold
    if gold == "always" or (view.train and gold == "training"):
      new_BHQM = self._gold(new_BHQM, view)
    return onto_heads(self.heads, new_BHQM, score_BHQM)

  def _publish(self, score_BHQM: Array, view: SentenceFeatures) -> None:
    shown_B1QM = shown_BQM(view, self.site.stack)[:, None]
    lowest = jnp.finfo(jnp.float32).min
    score_BHQM = jnp.where(shown_B1QM, score_BHQM, lowest)
    log_p_BHQM = jax.nn.log_softmax(score_BHQM, axis=-1)
    log_p_BQM = jax.nn.logsumexp(log_p_BHQM, axis=1) - math.log(len(self.heads))
    # Not before: of a row that is hidden as a whole, log_softmax would be NaN.
    log_p_BQM = jnp.where(shown_B1QM[:, 0], log_p_BQM, -jnp.inf)
    publish(self, "log_parse_BQM", self.subwords_of(log_p_BQM, view))
    if view.head_BW is not None:
      publish(self, "parent_BQ", self.parents(view))

  def _gold(self, score_BHQM: Array, view: SentenceFeatures) -> Array:
    """Scores that leave all weight to the parent, where there is one to see."""
    if view.head_BW is None:
      return score_BHQM
    parent_BQ1 = self.rows_of(self.parents(view))[:, :, None]
    gold_BQM = jnp.arange(score_BHQM.shape[3]) == parent_BQ1
    gold_BQM = gold_BQM & shown_BQM(view, self.site.stack)
    has_BQ1 = gold_BQM.any(2, keepdims=True)
    only_BQM = jnp.where(gold_BQM, 0.0, HIDDEN)
    return jnp.where(has_BQ1[:, None], only_BQM[:, None], score_BHQM)
