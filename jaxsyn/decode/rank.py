"""Which hypotheses are best: the penalties of length, and their continuations.

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

# A score no hypothesis has: finite, so that 0 * NEG_INF is no NaN. Tests are for
# NEG_INF / 2: log probabilities, or NEG_INF again, may have been added to it.
NEG_INF = -1e30

CHUNK = 64  # subwords of which the best is found first

# name -> penalty(length, alpha): scores are log probabilities divided by it.
# Lengths are in subwords and count EOS.
PENALTIES: dict[str, Callable[[Array, float], Array]] = {
  # fairseq, used by papers 000 and 004: length ** alpha.
  "fairseq": lambda length, alpha: length**alpha,
  # Wu et al. 2016 (GNMT), section 7, Eq. 14: ((5 + length) / 6) ** alpha.
  "gnmt": lambda length, alpha: ((5.0 + length) / 6.0) ** alpha,
}


@dataclasses.dataclass(frozen=True)
class LengthPenalty:
  """Normalization of scores by the length of a hypothesis."""

  length_penalty: Literal["fairseq", "gnmt"] = option(
    "fairseq",
    'Formula of the length penalty: "fairseq", length**alpha; "gnmt", ((5 + '
    "length) / 6)**alpha.",
  )
  # A length to the 9th overflows.
  alpha: Annotated[float, Range(0, 8)] = option(
    1.0, "Exponent of the length penalty; 0: no penalty."
  )


def score(log_p: Array, length: Array, decode: LengthPenalty) -> Array:
  """What hypotheses are compared by: log probability over the length penalty.

  Args:
    log_p: of their subwords, EOS included.
    length: how many these are.
    decode: names the penalty and its alpha; 0 compares log probabilities.
  """
  penalty = PENALTIES[decode.length_penalty]
  return log_p / penalty(length.astype(jnp.float32), decode.alpha)


def penalised(log_p: float, length: int, decode: LengthPenalty) -> float:
  """The same of one hypothesis, on the host."""
  penalty: Callable[..., Any] = PENALTIES[decode.length_penalty]
  return float(log_p / penalty(float(length), decode.alpha))


def continuations(
  logits_BNV: Array,
  lse_BN: Array,
  log_p_BN: Array,
  last_B: Array,
  count: int,
) -> tuple[Array, Array, Array]:
  """The best continuations by one subword of a sentence's hypotheses together.

  PAD and BOS are never produced, and in a last position only EOS is;
  log probabilities are over the whole vocabulary, as in training. Ties go to
  the earlier hypothesis, then to the lower subword.

  Args:
    logits_BNV: of the next subword.
    lse_BN: what they are normalised by: see `jaxsyn.decode.search.Next`.
    log_p_BN: of the hypotheses so far.
    last_B: sentences at their last position.
    count: C; fewer where there are not so many.

  Returns: log_p_BC, best first, at most NEG_INF / 2 where there is none; the
    hypothesis beam_BC that each goes on from; its new subword token_BC.
  """
  B, N, V = logits_BNV.shape
  C = min(count, N * V)
  end_BN = log_p_BN + (logits_BNV[:, :, EOS] - lse_BN)
  # The C best stand in the C chunks with the best maxima, so one pass over the
  # logits finds those chunks and only they are sorted: 2.0 instead of 5.2 ms of
  # processor time for 64 · 5 hypotheses and 8,000 subwords.
  chunk = CHUNK if N * V > 4 * C * CHUNK else 1
  J = -(-V // chunk)
  padding = [(0, 0), (0, 0), (0, J * chunk - V)]
  cut = jnp.pad(logits_BNV, padding, constant_values=NEG_INF)
  cut = cut.reshape(B, N, J, chunk)
  token_JX = jnp.arange(J * chunk).reshape(J, chunk)
  allowed_JX = (token_JX != PAD) & (token_JX != BOS)
  # Only the first chunks hold any that are not: with all of them masked, the
  # maxima took 0.5 ms instead of 0.1.
  some = max(PAD, BOS) // chunk + 1
  first_BNJX = jnp.where(allowed_JX[:some], cut[:, :, :some], NEG_INF)
  best_BNJ = jnp.concatenate(
    [first_BNJX.max(-1), cut[:, :, some:].max(-1)], axis=-1
  )
  best_BNJ = log_p_BN[:, :, None] + (best_BNJ - lse_BN[:, :, None])
  _, chunk_BC = jax.lax.top_k(best_BNJ.reshape(B, N * J), C)
  chunk_BC = jnp.sort(chunk_BC, axis=-1)  # so that ties keep their order
  beam_BC = chunk_BC // J
  chunk_BCX = gather_beams(cut.reshape(B, N * J, chunk), chunk_BC)
  chunk_BCX = jnp.where(allowed_JX[chunk_BC % J], chunk_BCX, NEG_INF)
  chunk_BCX = chunk_BCX - gather_beams(lse_BN, beam_BC)[:, :, None]
  chunk_BCX = gather_beams(log_p_BN, beam_BC)[:, :, None] + chunk_BCX
  log_p_BC, where_BC = jax.lax.top_k(chunk_BCX.reshape(B, C * chunk), C)
  from_BC = gather_beams(chunk_BC, where_BC // chunk)
  beam_BC, token_BC = from_BC // J, from_BC % J * chunk + where_BC % chunk

  # At the last position EOS of all hypotheses, and no more.
  end_BN, end_beam_BN = jax.lax.top_k(end_BN, min(C, N))
  last_B1 = last_B[:, None]

  def either(end: Array, other: Array, fill: float) -> Array:
    end, other = (
      jnp.pad(x, [(0, 0), (0, count - x.shape[1])], constant_values=fill)
      for x in (end, other)
    )
    return jnp.where(last_B1, end, other)

  return (
    either(end_BN, log_p_BC, NEG_INF),
    either(end_beam_BN, beam_BC, 0),
    jnp.where(last_B1, EOS, either(end_beam_BN, token_BC, PAD)),
  )
