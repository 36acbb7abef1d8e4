"""What every search is given, what it asks of a model, and what it finds."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from flax import struct
from jax import Array

from jaxsyn.data.schema import BOS, PAD
from jaxsyn.decode.rank import NEVER
from jaxsyn.models.contract import EncoderDecoder
from jaxsyn.syntax import View


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


@struct.dataclass
class Search:
  """Sentences on their way, each at a position of its own.

  Every array begins with the axis of sentences, and nothing of a sentence
  depends on another: any may leave and make room for one that waits.

  Attributes:
    encoded: what the model remembers of the sources.
    limit_B: longest output of each in subwords, the end sign included.
    at_B: subwords that were written so far.
    open_B: still searching.
    token_BNT: open hypotheses; before the first subword one, not N.
    log_p_BN: their log probabilities.
    last_BN: their last subwords.
    cache: what the model remembers of them.
    ended: the best hypotheses that have ended.
  """

  encoded: Any
  limit_B: Array
  at_B: Array
  open_B: Array
  token_BNT: Array
  log_p_BN: Array
  last_BN: Array
  cache: Any
  ended: Hypotheses


class Decoding:
  """A model and its parameters: see `jaxsyn.models.contract`."""

  def __init__(self, model: EncoderDecoder, params: Any):
    self._model, self._params = model, params

  def begin(
    self, sources: Sources, *, beams: int, length: int, room: int
  ) -> Search:
    """Reads sources; their searches before the first subword.

    Each with one hypothesis, which is all there is before it: the first step
    makes it N, and costs an N-th of another.

    Args:
      sources: sentences.
      beams: N.
      length: T, at least the largest limit of a sentence.
      room: outputs that the cache has room for at first.
    """
    encoded = self._call("encode", sources.id_BS, sources.view)
    encoded = self._call("remember", encoded)
    B = sources.limit_B.size
    never_BN = jnp.full((B, beams), NEVER)
    nothing_BNT = jnp.full((B, beams, length), PAD, jnp.int32)
    return Search(
      encoded=encoded,
      limit_B=sources.limit_B,
      at_B=jnp.zeros(B, jnp.int32),
      open_B=sources.view.real_BS.any(1),
      token_BNT=nothing_BNT[:, :1],
      log_p_BN=jnp.zeros((B, 1)),
      last_BN=jnp.full((B, 1), BOS, jnp.int32),
      cache=self._call("start", encoded, 1, room),
      ended=Hypotheses(nothing_BNT, never_BN, never_BN),
    )

  def advance(self, search: Search) -> tuple[Array, Any]:
    """logits_BNV after one subword more, in single precision, and the cache."""

    def one(encoded: Any, cache: Any, last_N: Array, at: Array) -> Any:
      alone = jax.tree.map(lambda x: x[None], (encoded, cache, last_N))
      advanced = self._call("advance", *alone, at)
      return jax.tree.map(lambda x: x[0], advanced)

    logits_BNV, cache = jax.vmap(one)(
      search.encoded, search.cache, search.last_BN, search.at_B
    )
    # Of bfloat16 each log probability was 0.016 off, of 32,000 subwords.
    return logits_BNV.astype(jnp.float32), cache

  def reorder(self, cache: Any, beam_BN: Array) -> Any:
    """The cache after hypotheses changed their beam."""
    return self._call("reorder", cache, beam_BN)

  def _call(self, method: str, *arguments: Any) -> Any:
    return self._model.apply(
      {"params": self._params}, *arguments, method=method
    )
