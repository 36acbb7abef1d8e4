"""Beam search in one loop of static shape, over the model contract.

A sentence's result depends on nothing but itself: it stops taking part when
it is finished or at its own limit, whatever its neighbours in the batch do.
By config.decode.stop it is finished when N hypotheses have ended ("first",
fairseq's rule; where the last step ends more than were missing, the best N of
all stay), or when no open one can still win ("bound").

Letters: C continuation, the 2·N best of a hypothesis or of a sentence.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from flax import struct
from jax import Array

from jaxsyn.config import Decode
from jaxsyn.data.schema import BOS, EOS, PAD
from jaxsyn.decode.rank import score, top_k
from jaxsyn.decode.search import NEVER, Decoding, Hypotheses, Sources, banned
from jaxsyn.models.contract import EncoderDecoder, taken


@struct.dataclass
class _Search:
  at: Array
  open_B: Array  # sentences still searching
  token_BNT: Array  # open hypotheses
  log_p_BN: Array
  last_BN: Array
  cache: Any
  ended: Hypotheses


def beam_search(
  model: EncoderDecoder,
  params: Any,
  sources: Sources,
  *,
  decode: Decode,
  length: int,
) -> Hypotheses:
  """Translates a batch.

  Args:
    model, params: what translates.
    sources: the batch.
    decode: how to search: its beam is N.
    length: T, room for outputs: the largest limit of a sentence, or more.
  """
  encoded = Decoding(model, params, sources)
  B, N, T = sources.id_BS.shape[0], decode.beam, length
  nothing_BNT = jnp.full((B, N, T), PAD, jnp.int32)
  never_BN = jnp.full((B, N), NEVER)

  def step(loop: _Search) -> _Search:
    logits_BNV, cache = encoded.advance(loop.cache, loop.last_BN, loop.at)
    last_B = loop.at == sources.limit_B - 1
    log_p_BNC, token_BNC = _continuations(logits_BNV, 2 * N, last_B)
    # All continuations of a sentence compete; 2N leave N open ones even if N
    # of them end.
    width = log_p_BNC.shape[-1]
    total = (loop.log_p_BN[:, :, None] + log_p_BNC).reshape(B, N * width)
    log_p_BC, where_BC = jax.lax.top_k(total, min(2 * N, N * width))
    beam_BC = where_BC // width
    new_BC = taken(token_BNC.reshape(B, -1), where_BC)
    token_BCT = jnp.where(
      jnp.arange(T) == loop.at,
      new_BC[:, :, None],
      taken(loop.token_BNT, beam_BC),
    )
    is_end_BC = new_BC == EOS

    # Only an end among the N best continuations ends a hypothesis.
    counts_BC = is_end_BC & (log_p_BC > NEVER / 2)
    counts_BC = counts_BC & (jnp.arange(new_BC.shape[1]) < N)
    counts_BC = counts_BC & loop.open_B[:, None]
    score_BC = score(log_p_BC, loop.at + 1, decode)
    score_BC = jnp.where(counts_BC, score_BC, NEVER)
    ended = _best(loop.ended, Hypotheses(token_BCT, score_BC, log_p_BC), N)

    log_p_BN, keep_BN = jax.lax.top_k(jnp.where(is_end_BC, NEVER, log_p_BC), N)
    open_B = ~(ended.score_BN > NEVER / 2).all(1)
    if decode.stop == "bound":
      # With alpha >= 0 the longest output has the mildest penalty.
      bound_B = score(log_p_BN[:, 0], sources.limit_B, decode)
      open_B = open_B | (bound_B > ended.score_BN[:, -1])
    return _Search(
      at=loop.at + 1,
      open_B=loop.open_B & open_B & ~last_B,
      token_BNT=taken(token_BCT, keep_BN),
      log_p_BN=log_p_BN,
      last_BN=taken(new_BC, keep_BN),
      cache=encoded.reorder(cache, taken(beam_BC, keep_BN)),
      ended=ended,
    )

  loop = _Search(
    at=jnp.zeros((), jnp.int32),
    open_B=sources.view.real_BS.any(1),
    token_BNT=nothing_BNT,
    # One beam to begin with: N equal ones would find N times the same.
    log_p_BN=never_BN.at[:, 0].set(0.0),
    last_BN=jnp.full((B, N), BOS, jnp.int32),
    cache=encoded.start(N, T),
    ended=Hypotheses(nothing_BNT, never_BN, never_BN),
  )
  return jax.lax.while_loop(
    lambda loop: (loop.at < T) & loop.open_B.any(), step, loop
  ).ended


def _continuations(
  logits_BNV: Array, count: int, last_B: Array
) -> tuple[Array, Array]:
  """The best next subwords of each hypothesis, with their log probability."""
  # Over the whole vocabulary, as in training, and so before the ban.
  lse_BN = jax.nn.logsumexp(logits_BNV, axis=-1)
  banned_BV = banned(logits_BNV.shape[-1], last_B)
  logits_BNV = jnp.where(banned_BV[:, None], NEVER, logits_BNV)
  best_BNC, token_BNC = top_k(logits_BNV, min(count, logits_BNV.shape[-1]))
  likely_BNC = best_BNC > NEVER / 2
  return jnp.where(likely_BNC, best_BNC - lse_BN[:, :, None], NEVER), token_BNC


def _best(old: Hypotheses, new: Hypotheses, number: int) -> Hypotheses:
  """The N best of two sets; the older wins a tie."""
  both = jax.tree.map(lambda a, b: jnp.concatenate([a, b], 1), old, new)
  score_BN, where_BN = jax.lax.top_k(both.score_BN, number)
  return Hypotheses(
    taken(both.token_BNT, where_BN), score_BN, taken(both.log_p_BN, where_BN)
  )
