"""Greedy search: the likeliest subword at each position, until the end sign.

The same result as a beam of 1 (a test holds it), without its bookkeeping: for
quick validation during training.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from jaxsyn.config import Decode
from jaxsyn.data.schema import BOS, EOS, PAD
from jaxsyn.decode.rank import score
from jaxsyn.decode.search import NEVER, Decoding, Hypotheses, Sources, banned
from jaxsyn.models.contract import EncoderDecoder


def greedy_search(
  model: EncoderDecoder,
  params: Any,
  sources: Sources,
  *,
  decode: Decode,
  length: int,
) -> Hypotheses:
  """Translates a batch; arguments and result as of `beam_search` with N = 1."""
  encoded = Decoding(model, params, sources)
  B, T = sources.id_BS.shape[0], length

  def step(loop: tuple[Any, ...]) -> tuple[Any, ...]:
    at, open_B, token_BT, log_p_B, last_B1, cache = loop
    logits_B1V, cache = encoded.advance(cache, last_B1, at)
    logits_BV = logits_B1V[:, 0]
    banned_BV = banned(logits_BV.shape[-1], at == sources.limit_B - 1)
    best_B = jnp.argmax(jnp.where(banned_BV, NEVER, logits_BV), axis=-1)
    gained_B = jnp.take_along_axis(logits_BV, best_B[:, None], axis=1)[:, 0]
    gained_B = gained_B - jax.nn.logsumexp(logits_BV, axis=-1)
    best_B = jnp.where(open_B, best_B, PAD).astype(jnp.int32)
    token_BT = jnp.where(jnp.arange(T) == at, best_B[:, None], token_BT)
    log_p_B = log_p_B + jnp.where(open_B, gained_B, 0.0)
    open_B = open_B & (best_B != EOS)
    return at + 1, open_B, token_BT, log_p_B, best_B[:, None], cache

  loop = (
    jnp.zeros((), jnp.int32),
    sources.view.real_BS.any(1),
    jnp.full((B, T), PAD, jnp.int32),
    jnp.zeros(B),
    jnp.full((B, 1), BOS, jnp.int32),
    encoded.start(1, T),
  )
  _, _, token_BT, log_p_B, _, _ = jax.lax.while_loop(
    lambda loop: (loop[0] < T) & loop[1].any(), step, loop
  )
  length_B = jnp.sum(token_BT != PAD, axis=1)
  score_B = score(log_p_B, jnp.maximum(length_B, 1), decode)
  score_B = jnp.where(length_B > 0, score_B, NEVER)
  return Hypotheses(token_BT[:, None], score_B[:, None], log_p_B[:, None])
