"""Words and phrases that must be in a translation, or must not.

A phrase is a sequence of subwords, as the vocabulary cuts it: it is met where they
stand one after the other. How far a hypothesis is in each phrase is that of the
search for a string by Knuth, Morris & Pratt (1977): the longest beginning of the
phrase that the hypothesis ends in; phrases may overlap. No hypothesis ends before
all of its phrases are met, and none completes a phrase to avoid.

The beam is shared by dynamic allocation (Post & Vilar 2018, section 3): hypotheses
that have met as many subwords are a bank, and each bank has its share of the beam.
Beside the 2N best continuations of all, those that go on in a phrase, and the best
one of each hypothesis, are candidates. It is vectorised as by Hu et al. 2019
(section 3): candidates are sorted by their rank within their bank, then by the
bank, fullest first, and the first 2N are taken; so banks with few leave their share
to others. A bank counts the subwords of phrases that are met, and the most of one
that is begun, which the next step can always make more.

Letters: P phrase; L subword of a phrase, also how far it is met; C candidate; J
another candidate.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct
from jax import Array

from jaxsyn.data.loader.batch_shapes import doubled
from jaxsyn.data.schema import BOS, EOS, PAD
from jaxsyn.decode.rank import NEG_INF
from jaxsyn.models.contract import gather_beams

Phrase = tuple[int, ...]


@struct.dataclass
class Phrases:
  """The phrases of some sentences, and how far their hypotheses are in them.

  Attributes:
    token_BPL: subwords, then PAD.
    length_BP: how many; 0 for no phrase.
    must_BP: whether it must be in the translation, or must not.
    border_BPLL: whether the beginning of a phrase of the length of the last axis
      is also the end of that of the axis before.
    met_BNP: subwords of open hypotheses' phrases that are met; before the first
      subword one hypothesis, not N.
  """

  token_BPL: Array
  length_BP: Array
  must_BP: Array
  border_BPLL: Array
  met_BNP: Array

  def restricted(self, logits_BNV: Array) -> Array:
    """NEG_INF where a subword is not allowed."""
    L = self.token_BPL.shape[-1]
    B, N = self.met_BNP.shape[:2]
    # The last subword of a phrase to avoid, where all before it stand.
    last_BP = jnp.maximum(self.length_BP - 1, 0)
    border_BNPL = self._border(self.met_BNP)
    is_last_BPL = jnp.arange(L) == last_BP[..., None]
    there_BNP = jnp.any(border_BNPL & is_last_BPL[:, None], axis=-1)
    banned_BP = jnp.sum(self.token_BPL * is_last_BPL, axis=-1)
    avoid_BP = ~self.must_BP & (self.length_BP > 0)
    banned_BNP = jnp.where(
      there_BNP & avoid_BP[:, None], banned_BP[:, None], PAD
    )
    row = jnp.arange(B)[:, None, None], jnp.arange(N)[:, None]
    logits_BNV = logits_BNV.at[(*row, banned_BNP)].set(NEG_INF)
    end_BN = jnp.where(
      self._all_met(self.met_BNP), logits_BNV[..., EOS], NEG_INF
    )
    return logits_BNV.at[..., EOS].set(end_BN)

  def followed(self, beam_BN: Array, last_BN: Array) -> Phrases:
    """With other open hypotheses, each after one subword more."""
    met_BNP = self._advanced(gather_beams(self.met_BNP, beam_BN), last_BN)
    return dataclasses.replace(self, met_BNP=met_BNP)

  def wanted(self) -> Array:
    """The subword that goes on in each phrase (BNP); PAD where none is wanted."""
    L = self.token_BPL.shape[-1]
    is_next_BNPL = jnp.arange(L) == self.met_BNP[..., None]
    next_BNP = jnp.sum(self.token_BPL[:, None] * is_next_BNPL, axis=-1)
    open_BNP = self.met_BNP < self.length_BP[:, None]
    return jnp.where(open_BNP & self.must_BP[:, None], next_BNP, PAD)

  def bank(self, beam_BC: Array, token_BC: Array) -> Array:
    """What continuations have met (BC)."""
    met_BCP = self._advanced(gather_beams(self.met_BNP, beam_BC), token_BC)
    met_BCP = jnp.where(self.must_BP[:, None], met_BCP, 0)
    whole_BCP = met_BCP == self.length_BP[:, None]
    whole_BC = jnp.sum(jnp.where(whole_BCP, met_BCP, 0), axis=-1)
    return whole_BC + jnp.max(jnp.where(whole_BCP, 0, met_BCP), axis=-1)

  def _all_met(self, met_BNP: Array) -> Array:
    whole_BNP = met_BNP >= self.length_BP[:, None]
    return jnp.all(whole_BNP | ~self.must_BP[:, None], axis=-1)

  def _border(self, met_BNP: Array) -> Array:
    """border_BNPL of what each hypothesis has met of each phrase."""
    L = self.token_BPL.shape[-1]
    at_BNPL = met_BNP[..., None] == jnp.arange(L)
    return jnp.einsum(
      "BNPL,BPLM->BNPM",
      at_BNPL.astype(jnp.float32),
      self.border_BPLL.astype(jnp.float32),
    ).astype(bool)

  def _advanced(self, met_BNP: Array, token_BN: Array) -> Array:
    """met_BNP after a subword more of each."""
    L = self.token_BPL.shape[-1]
    same_BNPL = self.token_BPL[:, None] == token_BN[..., None, None]
    within_BPL = jnp.arange(L) < self.length_BP[..., None]
    goes_BNPL = same_BNPL & within_BPL[:, None] & self._border(met_BNP)
    new_BNP = jnp.max(jnp.where(goes_BNPL, jnp.arange(L) + 1, 0), axis=-1)
    whole_BNP = met_BNP >= self.length_BP[:, None]
    return jnp.where(whole_BNP & self.must_BP[:, None], met_BNP, new_BNP)


def allocated(
  phrases: Phrases,
  best: tuple[Array, Array, Array],
  log_p_BNV: Array,
  last_B: Array,
) -> tuple[Array, Array, Array]:
  """Continuations by dynamic beam allocation, in the order they are wanted.

  Args:
    phrases: before the step.
    best: the best continuations of all (log_p_BC, beam_BC, token_BC), of
      `jaxsyn.decode.rank.continuations`; as many are given back.
    log_p_BNV: of each hypothesis with each subword; NEG_INF where not allowed.
    last_B: sentences at their last position.
  """
  B, N, _ = log_p_BNV.shape
  number = best[0].shape[1]
  wanted_BNP = phrases.wanted()
  token_V = jnp.arange(log_p_BNV.shape[-1])
  allowed_V = (token_V != PAD) & (token_V != BOS)
  first_BN = jnp.argmax(jnp.where(allowed_V, log_p_BNV, NEG_INF), axis=-1)
  token_BNC = jnp.concatenate([wanted_BNP, first_BN[..., None]], axis=-1)
  log_p_BNC = jnp.take_along_axis(log_p_BNV, token_BNC, axis=-1)
  dead_BNC = (token_BNC == PAD) | last_B[:, None, None]
  log_p_BNC = jnp.where(dead_BNC, NEG_INF, log_p_BNC)
  beam_BNC = jnp.broadcast_to(jnp.arange(N)[:, None], token_BNC.shape)
  log_p_BC, beam_BC, token_BC = (
    jnp.concatenate([a, b.reshape(B, -1)], axis=1)
    for a, b in zip(best, (log_p_BNC, beam_BNC, token_BNC))
  )
  C = log_p_BC.shape[1]
  earlier_CJ = jnp.arange(C)[:, None] > jnp.arange(C)
  same_BCJ = (beam_BC[:, :, None] == beam_BC[:, None]) & (
    token_BC[:, :, None] == token_BC[:, None]
  )
  log_p_BC = jnp.where(jnp.any(same_BCJ & earlier_CJ, -1), NEG_INF, log_p_BC)
  bank_BC = phrases.bank(beam_BC, token_BC)
  mine_BC1, other_B1J = log_p_BC[:, :, None], log_p_BC[:, None]
  better_BCJ = (other_B1J > mine_BC1) | (other_B1J == mine_BC1) & earlier_CJ
  better_BCJ = better_BCJ & (bank_BC[:, :, None] == bank_BC[:, None])
  rank_BC = jnp.sum(better_BCJ, axis=-1)
  # Fullest bank first among those of one rank.
  order_BC = rank_BC * (1 + jnp.max(bank_BC, 1, keepdims=True)) - bank_BC
  order_BC = jnp.where(log_p_BC > NEG_INF / 2, order_BC, 2**30)
  _, where_BC = jax.lax.top_k(-order_BC, number)
  return (
    gather_beams(log_p_BC, where_BC),
    gather_beams(beam_BC, where_BC),
    gather_beams(token_BC, where_BC),
  )


def batch_of(
  must: Sequence[Sequence[Phrase]],
  avoid: Sequence[Sequence[Phrase]],
  sizes: tuple[int, int],
) -> Phrases:
  """The phrases of some sentences.

  Args:
    must, avoid: those of each.
    sizes: P and L, of `sizes_of` or more.
  """
  (P, L), B = sizes, len(must)
  token_BPL = np.full((B, P, L), PAD, np.int32)
  length_BP, must_BP = np.zeros((B, P), np.int32), np.zeros((B, P), bool)
  border_BPLL = np.zeros((B, P, L, L), bool)
  for b, (wanted, unwanted) in enumerate(zip(must, avoid, strict=True)):
    must_BP[b, : len(wanted)] = True
    for p, phrase in enumerate([*wanted, *unwanted]):
      token_BPL[b, p, : len(phrase)] = phrase
      length_BP[b, p] = len(phrase)
      for had in range(len(phrase)):
        for begun in range(had + 1):
          border_BPLL[b, p, had, begun] = (
            phrase[:begun] == phrase[had - begun : had]
          )
  met_B1P = np.zeros((B, 1, P), np.int32)
  made: Any = token_BPL, length_BP, must_BP, border_BPLL, met_B1P
  return Phrases(*made)


def sizes_of(phrases: Sequence[Sequence[Phrase]]) -> tuple[int, int]:
  """P and L that hold those of any sentence, doubled so that there are few."""
  most = max((len(own) for own in phrases), default=1)
  longest = max((len(one) for own in phrases for one in own), default=1)
  return doubled(max(most, 1), 2), doubled(max(longest, 1), 4)
