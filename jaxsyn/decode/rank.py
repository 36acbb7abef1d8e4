"""Length penalties, and the best continuations of hypotheses.

Letters: C continuation; J chunk of the vocabulary; X subword of a chunk.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Annotated, Any, Literal

import jax
import jax.numpy as jnp
from jax import Array

from jaxsyn.data.schema import BOS, EOS, PAD
from jaxsyn.models.contract import gather_beams
from jaxsyn.options import Range, option

# Score of a missing hypothesis: finite, because 0 * inf is NaN. Compare with
# NEG_INF / 2, since log probabilities, or NEG_INF again, may have been added.
NEG_INF = -1e30

CHUNK = 64  # subwords in a chunk, of which the maximum is found first

# Name -> penalty(length, alpha). A score is the log probability divided by the
# penalty. The length is in subwords, EOS included.
PENALTIES: dict[str, Callable[[Array, float], Array]] = {
  # fairseq, used by papers 000 and 004: length ** alpha.
  "fairseq": lambda length, alpha: length**alpha,
  # Wu et al. 2016 (GNMT), section 7, Eq. 14: ((5 + length) / 6) ** alpha.
  "gnmt": lambda length, alpha: ((5.0 + length) / 6.0) ** alpha,
}


@dataclasses.dataclass(frozen=True)
class LengthPenalty:
  """Normalization of hypothesis scores by the length of the hypothesis."""

  length_penalty: Literal["fairseq", "gnmt"] = option(
    "fairseq",
    'Formula of the length penalty: "fairseq", length**alpha; "gnmt", ((5 + '
    "length) / 6)**alpha.",
  )
  # A length to the power of 9 overflows.
  alpha: Annotated[float, Range(0, 8)] = option(
    1.0, "Exponent of the length penalty; 0: no penalty."
  )


def score(log_p: Array, length: Array, decode: LengthPenalty) -> Array:
  """Returns the log probabilities of hypotheses divided by length penalties.

  Lengths are in subwords, EOS included.
  """
  penalty = PENALTIES[decode.length_penalty]
  return log_p / penalty(length.astype(jnp.float32), decode.alpha)


def score_on_host(log_p: float, length: int, decode: LengthPenalty) -> float:
  """Returns one hypothesis's length-penalized score as a Python float."""
  penalty: Callable[..., Any] = PENALTIES[decode.length_penalty]
  return float(log_p / penalty(float(length), decode.alpha))


def continuations(
  logits_BNV: Array,
  lse_BN: Array,
  log_p_BN: Array,
  at_limit_B: Array,
  count: int,
) -> tuple[Array, Array, Array]:
  """Returns the best one-subword continuations of each sentence's hypotheses.

  PAD and BOS are never produced; at the limit of a sentence only EOS is. Log
  probabilities are over the whole vocabulary, as in training. Ties go to the
  earlier hypothesis, then to the lower subword.

  Args:
    logits_BNV: Logits of the next subword.
    lse_BN: Normalization of the logits; see `jaxsyn.decode.search.Next`.
    log_p_BN: Log probabilities of the hypotheses.
    at_limit_B: Sentences whose next subword is the last that is allowed.
    count: Number C of continuations.

  Returns: log_p_BC, best first, at most NEG_INF / 2 for missing ones; the
    extended hypothesis beam_BC; and the new subword token_BC.
  """
  B, N, V = logits_BNV.shape
  C = min(count, N * V)
  end_BN = log_p_BN + (logits_BNV[:, :, EOS] - lse_BN)
  # The C best are in the C chunks with the largest maxima: one pass over the
  # logits finds those chunks, and only they are sorted. That takes 2.0 ms of
  # processor time instead of 5.2, for 64 · 5 hypotheses and 8,000 subwords.
  chunk = CHUNK if N * V > 4 * C * CHUNK else 1
  J = -(-V // chunk)
  padding = [(0, 0), (0, 0), (0, J * chunk - V)]
  logits_BNJX = jnp.pad(logits_BNV, padding, constant_values=NEG_INF)
  logits_BNJX = logits_BNJX.reshape(B, N, J, chunk)
  token_JX = jnp.arange(J * chunk).reshape(J, chunk)
  allowed_JX = (token_JX != PAD) & (token_JX != BOS)
  # Only the first chunks contain PAD and BOS. All maxima are taken before those of
  # the first chunks are replaced, because XLA copies a slice of the logits.
  first = max(PAD, BOS) // chunk + 1
  first_BNJX = jnp.where(allowed_JX[:first], logits_BNJX[:, :, :first], NEG_INF)
  best_BNJ = logits_BNJX.max(-1).at[:, :, :first].set(first_BNJX.max(-1))
  best_BNJ = log_p_BN[:, :, None] + (best_BNJ - lse_BN[:, :, None])
  _, chunk_BC = jax.lax.top_k(best_BNJ.reshape(B, N * J), C)
  chunk_BC = jnp.sort(chunk_BC, axis=-1)  # keeps the order of ties
  beam_BC = chunk_BC // J
  log_p_BCX = gather_beams(logits_BNJX.reshape(B, N * J, chunk), chunk_BC)
  log_p_BCX = jnp.where(allowed_JX[chunk_BC % J], log_p_BCX, NEG_INF)
  log_p_BCX = log_p_BCX - gather_beams(lse_BN, beam_BC)[:, :, None]
  log_p_BCX = gather_beams(log_p_BN, beam_BC)[:, :, None] + log_p_BCX
  log_p_BC, index_BC = jax.lax.top_k(log_p_BCX.reshape(B, C * chunk), C)
  from_BC = gather_beams(chunk_BC, index_BC // chunk)
  beam_BC, token_BC = from_BC // J, from_BC % J * chunk + index_BC % chunk

  # At the limit, EOS is the only continuation of every hypothesis.
  end_BN, end_beam_BN = jax.lax.top_k(end_BN, min(C, N))
  at_limit_B1 = at_limit_B[:, None]

  def select(end: Array, other: Array, fill: float) -> Array:
    end, other = (
      jnp.pad(x, [(0, 0), (0, count - x.shape[1])], constant_values=fill)
      for x in (end, other)
    )
    return jnp.where(at_limit_B1, end, other)

  return (
    select(end_BN, log_p_BC, NEG_INF),
    select(end_beam_BN, beam_BC, 0),
    jnp.where(at_limit_B1, EOS, select(end_beam_BN, token_BC, PAD)),
  )
