"""One step of beam search, over the model contract.

A sentence's result depends on nothing but itself: it stops taking part when
it is finished or at its own limit, whatever its neighbours in the batch do.
By config.decode.stop it is finished when N hypotheses have ended ("first",
fairseq's rule; where the last step ends more than were missing, the best N of
all stay), or when no open one can still win ("bound").

Letters: C continuation, of the 2·N best of a sentence.
"""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp

from jaxsyn.config import Decode
from jaxsyn.data.schema import EOS
from jaxsyn.decode.rank import NEVER, continuations, score
from jaxsyn.decode.search import Decoding, Hypotheses, Search
from jaxsyn.models.contract import taken


def beam_step(decoding: Decoding, search: Search, decode: Decode) -> Search:
  """The search after one subword more of every open sentence.

  Args:
    decoding: what translates.
    search: so far.
    decode: how to search: its beam is N.
  """
  N, T = decode.beam, search.token_BNT.shape[-1]
  logits_BNV, cache = decoding.advance(search)
  last_B = search.at_B == search.limit_B - 1
  # All continuations of a sentence compete; 2N leave N open ones even if N
  # of them end.
  log_p_BC, beam_BC, new_BC = continuations(
    logits_BNV, search.log_p_BN, last_B, 2 * N
  )
  token_BCT = jnp.where(
    jnp.arange(T) == search.at_B[:, None, None],
    new_BC[:, :, None],
    taken(search.token_BNT, beam_BC),
  )
  is_end_BC = new_BC == EOS

  # Only an end among the N best continuations ends a hypothesis.
  counts_BC = is_end_BC & (log_p_BC > NEVER / 2)
  counts_BC = counts_BC & (jnp.arange(new_BC.shape[1]) < N)
  counts_BC = counts_BC & search.open_B[:, None]
  score_BC = score(log_p_BC, search.at_B[:, None] + 1, decode)
  score_BC = jnp.where(counts_BC, score_BC, NEVER)
  ended = _best(search.ended, Hypotheses(token_BCT, score_BC, log_p_BC), N)

  log_p_BN, keep_BN = jax.lax.top_k(jnp.where(is_end_BC, NEVER, log_p_BC), N)
  open_B = ~(ended.score_BN > NEVER / 2).all(1)
  if decode.stop == "bound":
    # With alpha >= 0 the longest output has the mildest penalty.
    bound_B = score(log_p_BN[:, 0], search.limit_B, decode)
    open_B = open_B | (bound_B > ended.score_BN[:, -1])
  if N > 1:  # greedy search has nothing to move
    cache = decoding.reorder(cache, taken(beam_BC, keep_BN))
  return dataclasses.replace(
    search,
    at_B=search.at_B + search.open_B,
    open_B=search.open_B & open_B & ~last_B,
    token_BNT=taken(token_BCT, keep_BN),
    log_p_BN=log_p_BN,
    last_BN=taken(new_BC, keep_BN),
    cache=cache,
    ended=ended,
  )


def _best(old: Hypotheses, new: Hypotheses, number: int) -> Hypotheses:
  """The N best of two sets; the older wins a tie."""
  both = jax.tree.map(lambda a, b: jnp.concatenate([a, b], 1), old, new)
  score_BN, where_BN = jax.lax.top_k(both.score_BN, number)
  return Hypotheses(
    taken(both.token_BNT, where_BN), score_BN, taken(both.log_p_BN, where_BN)
  )
