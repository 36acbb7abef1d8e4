"""Beam search that stops at N finished hypotheses or at a score bound.

With config.decode.stop = "first" the search of a sentence ends when N hypotheses
are finished, as in fairseq (if the last step finishes more, the best N of all are
returned); with "bound" it ends when no open hypothesis can still win.

Letters: C continuation, one of the 2·N best of a sentence.
"""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
from flax import struct
from jax import Array

from jaxsyn.data.schema import EOS
from jaxsyn.decode.rank import NEG_INF, continuations, score
from jaxsyn.decode.search import Decoding, Hypotheses, Next, Search
from jaxsyn.decode.strategy import Decode, DecodingStrategy
from jaxsyn.models.contract import gather_beams


@dataclasses.dataclass(frozen=True)
class Beam(DecodingStrategy):
  """Beam search, which keeps the N best hypotheses at each step."""

  def advance(self, decoding: Decoding, search: Search) -> Next:
    """Runs one decoder step; subclasses may modify the logits."""
    return decoding.advance(search)

  def step(self, decoding: Decoding, search: Search, decode: Decode) -> Search:
    new = self.advance(decoding, search)
    # 2N continuations leave N open hypotheses even if the other N end.
    best = continuations(
      new.logits_BNV,
      new.lse_BN,
      search.log_p_BN,
      search.at_limit_B,
      2 * decode.beam,
    )
    selected = select_beams(search, Continuations(*best), decode, search.open_B)
    return decoding.append(
      search,
      new.cache,
      selected.beam_BN if decode.beam > 1 else None,  # greedy: no reordering
      selected.last_BN,
      open_B=selected.open_B,
      token_BNT=selected.token_BNT,
      log_p_BN=selected.log_p_BN,
      ended=selected.ended,
    )


@struct.dataclass
class Continuations:
  """Hypotheses extended by one subword, best first.

  Attributes:
    log_p_BC: Log probability of all subwords; at most NEG_INF / 2 where there
      is no continuation.
    beam_BC: Index of the hypothesis that is extended.
    token_BC: Subword that extends it.
  """

  log_p_BC: Array
  beam_BC: Array
  token_BC: Array


@struct.dataclass
class SelectedBeams:
  """Hypotheses selected by a step of beam search, with their predecessors.

  Attributes:
    from_BN: Index of each open hypothesis among the continuations.
    beam_BN: Index of the hypothesis that it extends.
  """

  open_B: Array
  token_BNT: Array
  log_p_BN: Array
  from_BN: Array
  beam_BN: Array
  last_BN: Array
  ended: Hypotheses


def select_beams(
  search: Search, best: Continuations, decode: Decode, open_B: Array
) -> SelectedBeams:
  """Selects the N hypotheses to extend next, and the N best finished ones.

  Args:
    search: Search before the step, with N finished hypotheses of any value.
    best: 2N continuations in the order of preference.
    decode: Options of decoding.
    open_B: Sentences whose search had not ended before the step.
  """
  N, T = search.ended.score_BN.shape[1], search.token_BNT.shape[-1]
  log_p_BC, beam_BC, new_BC = best.log_p_BC, best.beam_BC, best.token_BC
  token_BCT = jnp.where(
    jnp.arange(T) == search.position_B[:, None, None],
    new_BC[:, :, None],
    gather_beams(search.token_BNT, beam_BC),
  )
  is_end_BC = new_BC == EOS

  # EOS finishes a hypothesis only among the first N continuations.
  counts_BC = is_end_BC & (log_p_BC > NEG_INF / 2)
  counts_BC = counts_BC & (jnp.arange(new_BC.shape[1]) < N)
  counts_BC = counts_BC & open_B[:, None]
  score_BC = score(log_p_BC, search.position_B[:, None] + 1, decode)
  score_BC = jnp.where(counts_BC, score_BC, NEG_INF)
  ended = _best(search.ended, Hypotheses(token_BCT, score_BC, log_p_BC), N)

  # By the order of preference, which can differ from that of log_p.
  _, keep_BN = jax.lax.top_k(
    -jnp.arange(new_BC.shape[1]) - jnp.where(is_end_BC, new_BC.shape[1], 0), N
  )
  log_p_BN = gather_beams(jnp.where(is_end_BC, NEG_INF, log_p_BC), keep_BN)
  continues_B = ~(ended.score_BN > NEG_INF / 2).all(1)
  if decode.stop == "bound":
    # With alpha >= 0 the length penalty favors the longest output most.
    bound_B = score(log_p_BN.max(1), search.limit_B, decode)
    continues_B = continues_B | (bound_B > ended.score_BN[:, -1])
  return SelectedBeams(
    open_B=open_B & continues_B & ~search.at_limit_B,
    token_BNT=gather_beams(token_BCT, keep_BN),
    log_p_BN=log_p_BN,
    from_BN=keep_BN,
    beam_BN=gather_beams(beam_BC, keep_BN),
    last_BN=gather_beams(new_BC, keep_BN),
    ended=ended,
  )


def _best(old: Hypotheses, new: Hypotheses, count: int) -> Hypotheses:
  """Merges two sets of finished hypotheses, and returns the N best."""
  both = jax.tree.map(lambda a, b: jnp.concatenate([a, b], 1), old, new)
  score_BN, index_BN = jax.lax.top_k(both.score_BN, count)
  return Hypotheses(
    gather_beams(both.token_BNT, index_BN),
    score_BN,
    gather_beams(both.log_p_BN, index_BN),
  )
