"""What every search is given, what it asks of a model, and what it finds."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
from flax import struct
from jax import Array

from jaxsyn.data.schema import BOS, EOS, PAD
from jaxsyn.models.contract import EncoderDecoder
from jaxsyn.syntax import View

# A score no hypothesis has: finite, so that 0 * NEVER is no NaN. Tests are for
# NEVER / 2: log probabilities, or NEVER again, may have been added to it.
NEVER = -1e30


@struct.dataclass
class Sources:
  """Sentences that are translated together.

  Attributes:
    id_BS: their subwords; rows of padding alone give empty hypotheses.
    view: facts of the source side.
    limit_B: longest output of each in subwords, the end sign included, from 1 to
      the length of the search: hypotheses that reach it are ended there.
  """

  id_BS: Array
  view: View
  limit_B: Array


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


class Decoding:
  """A model that has read its sources: see `jaxsyn.models.contract`."""

  def __init__(self, model: EncoderDecoder, params: Any, sources: Sources):
    self._model, self._params = model, params
    encoded = self._call("encode", sources.id_BS, sources.view)
    # Once: what a source is remembered by does not change while it is searched.
    self._encoded = self._call("remember", encoded)

  def start(self, beams: int, length: int) -> Any:
    """A cache of N beams a sentence, for outputs of T subwords."""
    return self._call("start", self._encoded, beams, length)

  def advance(self, cache: Any, last_BN: Array, at: Array) -> tuple[Array, Any]:
    """logits_BNV after one subword more, in single precision, and the cache."""
    logits_BNV, cache = self._call("advance", self._encoded, cache, last_BN, at)
    # Of bfloat16 each log probability was 0.016 off, of 32,000 subwords.
    return logits_BNV.astype(jnp.float32), cache

  def reorder(self, cache: Any, beam_BN: Array) -> Any:
    """The cache after hypotheses changed their beam."""
    return self._call("reorder", cache, beam_BN)

  def _call(self, method: str, *arguments: Any) -> Any:
    return self._model.apply(
      {"params": self._params}, *arguments, method=method
    )


def banned(size: int, last_B: Array) -> Array:
  """Subwords that may not come next (boolean BV).

  PAD and BOS are never produced, and at a sentence's last position only the end
  sign is.

  Args:
    size: V.
    last_B: where nothing but the end sign may.
  """
  token_V = jnp.arange(size)
  never_V = (token_V == PAD) | (token_V == BOS)
  return never_V | (last_B[:, None] & (token_V != EOS))
