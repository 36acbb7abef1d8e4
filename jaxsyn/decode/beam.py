"""Beam search, over the model contract.

A sentence's result depends on nothing but itself: it stops taking part when
it is finished or at its own limit, whatever its neighbours in the batch do.
By config.decode.stop it is finished when N hypotheses have ended ("first",
fairseq's rule; where the last step ends more than were missing, the best N of
all stay), or when no open one can still win ("bound"). Where words must be in a
translation they share the beam: see `jaxsyn.decode.phrases`.

Letters: C continuation, of the 2·N best of a sentence.
"""

from __future__ import annotations

import dataclasses
from typing import ClassVar

import jax
import jax.numpy as jnp
from flax import struct
from jax import Array

from jaxsyn.data.schema import EOS
from jaxsyn.decode.phrases import allocated
from jaxsyn.decode.rank import NEG_INF, continuations, score
from jaxsyn.decode.search import Decoding, Hypotheses, Next, Search
from jaxsyn.decode.strategy import Decode, DecodingStrategy
from jaxsyn.models.contract import gather_beams


@dataclasses.dataclass(frozen=True)
class Beam(DecodingStrategy):
  """The N best hypotheses at each step."""

  constrains: ClassVar[bool] = True

  def advance(self, decoding: Decoding, search: Search) -> Next:
    """What may follow: all that the model and what is asked allow."""
    return decoding.advance(search)

  def step(self, decoding: Decoding, search: Search, decode: Decode) -> Search:
    new, last_B = self.advance(decoding, search), is_last(search)
    # All continuations of a sentence compete; 2N leave N open ones even if N
    # of them end.
    best = continuations(
      new.logits_BNV, new.lse_BN, search.log_p_BN, last_B, 2 * decode.beam
    )
    if search.phrases is not None:
      before_BN1 = (search.log_p_BN - new.lse_BN)[..., None]
      log_p_BNV = before_BN1 + new.logits_BNV
      best = allocated(search.phrases, best, log_p_BNV, last_B)
    selected = select_beams(search, Continuations(*best), decode, search.open_B)
    return decoding.follow(
      search,
      new.cache,
      selected.beam_BN if decode.beam > 1 else None,  # greedy: nothing to move
      selected.last_BN,
      open_B=selected.open_B,
      token_BNT=selected.token_BNT,
      log_p_BN=selected.log_p_BN,
      ended=selected.ended,
    )


@struct.dataclass
class Continuations:
  """Continuations of a sentence's hypotheses by one subword, best first.

  Attributes:
    log_p_BC: log probability of all their subwords; at most NEG_INF / 2 where
      there is none.
    beam_BC: the hypothesis that each goes on from.
    token_BC: its new subword.
  """

  log_p_BC: Array
  beam_BC: Array
  token_BC: Array


@struct.dataclass
class SelectedBeams:
  """What is left of continuations: fields of `Search`, and where from.

  Attributes:
    from_BN: the continuation that each open hypothesis is.
    beam_BN: the hypothesis that it goes on from.
  """

  open_B: Array
  token_BNT: Array
  log_p_BN: Array
  from_BN: Array
  beam_BN: Array
  last_BN: Array
  ended: Hypotheses


def is_last(search: Search) -> Array:
  """Sentences at the last position of their limit."""
  return search.at_B == search.limit_B - 1


def select_beams(
  search: Search, best: Continuations, decode: Decode, open_B: Array
) -> SelectedBeams:
  """The first N continuations that go on, and the best hypotheses that ended.

  Args:
    search: with N ended hypotheses, of whatever value.
    best: 2N continuations, in the order in which they are wanted.
    decode: when it is finished.
    open_B: whether it was not before.
  """
  N, T = search.ended.score_BN.shape[1], search.token_BNT.shape[-1]
  log_p_BC, beam_BC, new_BC = best.log_p_BC, best.beam_BC, best.token_BC
  token_BCT = jnp.where(
    jnp.arange(T) == search.at_B[:, None, None],
    new_BC[:, :, None],
    gather_beams(search.token_BNT, beam_BC),
  )
  is_end_BC = new_BC == EOS

  # Only an end among the first N continuations ends a hypothesis.
  counts_BC = is_end_BC & (log_p_BC > NEG_INF / 2)
  counts_BC = counts_BC & (jnp.arange(new_BC.shape[1]) < N)
  counts_BC = counts_BC & open_B[:, None]
  score_BC = score(log_p_BC, search.at_B[:, None] + 1, decode)
  score_BC = jnp.where(counts_BC, score_BC, NEG_INF)
  ended = _best(search.ended, Hypotheses(token_BCT, score_BC, log_p_BC), N)

  # In their order, which need not be that of their log probabilities.
  _, keep_BN = jax.lax.top_k(
    -jnp.arange(new_BC.shape[1]) - jnp.where(is_end_BC, new_BC.shape[1], 0), N
  )
  log_p_BN = gather_beams(jnp.where(is_end_BC, NEG_INF, log_p_BC), keep_BN)
  goes_on_B = ~(ended.score_BN > NEG_INF / 2).all(1)
  if decode.stop == "bound":
    # With alpha >= 0 the longest output has the mildest penalty.
    bound_B = score(log_p_BN.max(1), search.limit_B, decode)
    goes_on_B = goes_on_B | (bound_B > ended.score_BN[:, -1])
  return SelectedBeams(
    open_B=open_B & goes_on_B & ~is_last(search),
    token_BNT=gather_beams(token_BCT, keep_BN),
    log_p_BN=log_p_BN,
    from_BN=keep_BN,
    beam_BN=gather_beams(beam_BC, keep_BN),
    last_BN=gather_beams(new_BC, keep_BN),
    ended=ended,
  )


def _best(old: Hypotheses, new: Hypotheses, count: int) -> Hypotheses:
  """The N best of two sets; the older wins a tie."""
  both = jax.tree.map(lambda a, b: jnp.concatenate([a, b], 1), old, new)
  score_BN, where_BN = jax.lax.top_k(both.score_BN, count)
  return Hypotheses(
    gather_beams(both.token_BNT, where_BN),
    score_BN,
    gather_beams(both.log_p_BN, where_BN),
  )
