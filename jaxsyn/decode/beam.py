"""Beam search in one loop of static shape, over the model contract.

A sentence's result depends on nothing but itself: it stops taking part when
it is finished or at its own limit, whatever its neighbours in the batch do.

Letters: C continuation, the 2·N best of a hypothesis or of a sentence.
"""

from __future__ import annotations

import dataclasses
from typing import Any, Literal

import jax
import jax.numpy as jnp
from flax import linen as nn
from flax import struct

from jaxsyn.data.schema import BOS, EOS, PAD
from jaxsyn.decode.rank import PENALTIES, top_k
from jaxsyn.syntax import View

Array = jax.Array
# A score no hypothesis has: finite, so that 0 * NEVER is no NaN. Tests are for
# NEVER / 2: log probabilities, or NEVER again, may have been added to it.
NEVER = -1e30


@dataclasses.dataclass(frozen=True)
class Search:
  """How to search; hashable, so a static argument of jit.

  Attributes:
    beams: N hypotheses kept a sentence; 1 is greedy search.
    length: T, room for outputs in subwords, the end sign included: no sentence
      of the batch may have a larger limit.
    penalty: name of a length penalty, see `jaxsyn.decode.rank`.
    alpha: its exponent; 0 compares plain log probabilities.
    stop: "first": a sentence is finished when N hypotheses have ended
      (fairseq's rule; where the last step ends more than were missing, the
      best N of all stay); "bound": when no open one can still win.
  """

  beams: int
  length: int
  penalty: str = "fairseq"
  alpha: float = 1.0
  stop: Literal["first", "bound"] = "first"


@struct.dataclass
class Hypotheses:
  """Ended hypotheses, best first.

  Attributes:
    token_BNT: subwords, the end sign included, then PAD.
    score_BN: log probability divided by the length penalty; at most NEVER
      where fewer than N hypotheses have ended.
    log_p_BN: log probability of the subwords, the end sign included.
  """

  token_BNT: Array
  score_BN: Array
  log_p_BN: Array


@struct.dataclass
class _Loop:
  at: Array
  open_B: Array  # sentences still searching
  token_BNT: Array  # open hypotheses
  log_p_BN: Array
  last_BN: Array
  cache: Any
  ended: Hypotheses


def beam_search(
  model: nn.Module,
  params: Any,
  id_BS: Array,
  source: View,
  limit_B: Array,
  search: Search,
) -> Hypotheses:
  """Translates a batch.

  Args:
    model: of `jaxsyn.models.contract.make`.
    params: its parameters.
    id_BS: source subwords; rows of padding alone give empty hypotheses.
    source: facts of the source side.
    limit_B: longest output of each sentence in subwords, the end sign
      included, from 1 to T: hypotheses that reach it are ended there.
    search: how.
  """

  def call(method, *arguments, **options):
    return model.apply({"params": params}, *arguments, method=method, **options)

  encoded = call("remember", call("encode", id_BS, source, train=False))
  B, N, T = id_BS.shape[0], search.beams, search.length
  penalty = PENALTIES[search.penalty]
  nothing_BNT = jnp.full((B, N, T), PAD, jnp.int32)
  never_BN = jnp.full((B, N), NEVER)

  def step(loop: _Loop) -> _Loop:
    logits_BNV, cache = call(
      "advance", encoded, loop.cache, loop.last_BN, loop.at
    )
    last_B = loop.at == limit_B - 1
    log_p_BNC, token_BNC = _continuations(logits_BNV, 2 * N, last_B)
    # All continuations of a sentence compete; 2N leave N open ones even if N
    # of them end.
    width = log_p_BNC.shape[-1]
    total = (loop.log_p_BN[:, :, None] + log_p_BNC).reshape(B, N * width)
    log_p_BC, where = jax.lax.top_k(total, min(2 * N, N * width))
    beam_BC = where // width
    new_BC = jnp.take_along_axis(token_BNC.reshape(B, -1), where, axis=1)
    token_BCT = jnp.take_along_axis(loop.token_BNT, beam_BC[:, :, None], axis=1)
    token_BCT = jnp.where(
      jnp.arange(T) == loop.at, new_BC[:, :, None], token_BCT
    )
    is_end_BC = new_BC == EOS
    likely_BC = log_p_BC > NEVER / 2

    # Only an end among the N best continuations ends a hypothesis.
    counts_BC = is_end_BC & likely_BC & (jnp.arange(new_BC.shape[1]) < N)
    counts_BC = counts_BC & loop.open_B[:, None]
    score_BC = log_p_BC / penalty(
      (loop.at + 1).astype(jnp.float32), search.alpha
    )
    ended = _best(
      loop.ended,
      Hypotheses(token_BCT, jnp.where(counts_BC, score_BC, NEVER), log_p_BC),
      N,
    )

    log_p_BN, keep_BN = jax.lax.top_k(jnp.where(is_end_BC, NEVER, log_p_BC), N)
    beam_BN = jnp.take_along_axis(beam_BC, keep_BN, axis=1)
    full_BN = ended.score_BN > NEVER / 2
    if search.stop == "first":
      open_B = ~full_BN.all(1)
    else:
      # With alpha >= 0 the longest output has the mildest penalty.
      longest_B = limit_B.astype(jnp.float32)
      bound_B = log_p_BN[:, 0] / penalty(longest_B, search.alpha)
      open_B = ~full_BN.all(1) | (bound_B > ended.score_BN[:, -1])
    return _Loop(
      at=loop.at + 1,
      open_B=loop.open_B & open_B & ~last_B,
      token_BNT=jnp.take_along_axis(token_BCT, keep_BN[:, :, None], axis=1),
      log_p_BN=log_p_BN,
      last_BN=jnp.take_along_axis(new_BC, keep_BN, axis=1),
      cache=call("reorder", cache, beam_BN),
      ended=ended,
    )

  loop = _Loop(
    at=jnp.zeros((), jnp.int32),
    open_B=source.real_BS.any(1),
    token_BNT=nothing_BNT,
    # One beam to begin with: N equal ones would find N times the same.
    log_p_BN=never_BN.at[:, 0].set(0.0),
    last_BN=jnp.full((B, N), BOS, jnp.int32),
    cache=call("start", encoded, N, T),
    ended=Hypotheses(nothing_BNT, never_BN, never_BN),
  )
  return jax.lax.while_loop(
    lambda loop: (loop.at < T) & loop.open_B.any(), step, loop
  ).ended


def _continuations(
  logits_BNV: Array, count: int, last_B: Array
) -> tuple[Array, Array]:
  """The best next subwords of each hypothesis, with their log probability.

  Probabilities are over the whole vocabulary, as in training; PAD and BOS are
  never produced, and at a sentence's last position only the end sign is.
  """
  logits_BNV = logits_BNV.astype(jnp.float32)
  lse_BN = jax.nn.logsumexp(logits_BNV, axis=-1)
  banned_BV = banned(logits_BNV.shape[-1], last_B)
  logits_BNV = jnp.where(banned_BV[:, None], NEVER, logits_BNV)
  count = min(count, logits_BNV.shape[-1])
  best_BNC, token_BNC = top_k(logits_BNV, count)
  log_p_BNC = jnp.where(
    best_BNC > NEVER / 2, best_BNC - lse_BN[:, :, None], NEVER
  )
  return log_p_BNC, token_BNC


def banned(size: int, last_B: Array) -> Array:
  """Subwords that may not come next (boolean BV).

  Args:
    size: V.
    last_B: where nothing but the end sign may.
  """
  token_V = jnp.arange(size)
  never_V = (token_V == PAD) | (token_V == BOS)
  return never_V | (last_B[:, None] & (token_V != EOS))


def _best(old: Hypotheses, new: Hypotheses, number: int) -> Hypotheses:
  """The N best of two sets; the older wins a tie."""
  both = jax.tree.map(lambda a, b: jnp.concatenate([a, b], 1), old, new)
  score_BN, where_BN = jax.lax.top_k(both.score_BN, number)
  return Hypotheses(
    jnp.take_along_axis(both.token_BNT, where_BN[:, :, None], axis=1),
    score_BN,
    jnp.take_along_axis(both.log_p_BN, where_BN, axis=1),
  )
