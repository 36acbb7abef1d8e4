"""What every search is given, what it asks of a model, and what it finds."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct
from jax import Array

from jaxsyn.data.schema import BOS, PAD
from jaxsyn.decode.ensemble import Ensemble
from jaxsyn.decode.phrases import Phrases
from jaxsyn.decode.prefix import Prefix
from jaxsyn.decode.rank import NEG_INF
from jaxsyn.models.contract import EncoderDecoder, sentence_features
from jaxsyn.syntax import SentenceFeatures


@struct.dataclass
class DecodeRequest:
  """What is asked of the translations of some sentences.

  Attributes:
    limit_B: longest output of each in subwords, EOS included, from 1 to
      the length of the search: hypotheses that reach it are ended there.
    place_B: place of each in the input, from 0: what is drawn depends on it.
    prefix: what each begins with; None where nothing is asked.
    phrases: what must be in each, or must not; None where nothing is asked.
  """

  limit_B: Array
  place_B: Array
  prefix: Prefix | None = None
  phrases: Phrases | None = None


@struct.dataclass
class Sources:
  """Sentences that are translated together; of an ensemble, as each reads them.

  Attributes:
    id_BS: their subwords; rows of padding alone give empty hypotheses.
    view: facts of the source side.
    asked: of their translations.
  """

  id_BS: Array | tuple[Array, ...]
  view: SentenceFeatures | tuple[SentenceFeatures, ...]
  request: DecodeRequest

  @property
  def real_B(self) -> Array:
    """Rows that are no padding."""
    first: SentenceFeatures = (
      self.view[0] if isinstance(self.view, tuple) else self.view
    )
    return first.real_BS.any(1)


def sources_of(batch: Any, request: DecodeRequest) -> Sources:
  """The sentences of a batch.

  Args:
    batch: of the loader; of an ensemble, one of each member.
    request: of their translations.
  """
  if not isinstance(batch, tuple):
    return Sources(
      batch["source_id_BS"], sentence_features(batch, "source"), request
    )
  return Sources(
    tuple(member_batch["source_id_BS"] for member_batch in batch),
    tuple(sentence_features(member_batch, "source") for member_batch in batch),
    request,
  )


@struct.dataclass
class Hypotheses:
  """Ended hypotheses, best first.

  Attributes:
    token_BNT: subwords, EOS included, then PAD.
    score_BN: log probability divided by the length penalty; at most NEG_INF
      where fewer than N hypotheses have ended.
    log_p_BN: log probability of the subwords, EOS included.
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
    limit_B: longest output of each in subwords, EOS included.
    at_B: subwords that were written so far.
    open_B: still searching.
    token_BNT: open hypotheses; before the first subword one, not N.
    log_p_BN: their log probabilities.
    last_BN: their last subwords.
    cache: what the model remembers of them.
    ended: the best hypotheses that have ended.
    prefix, phrases: of `DecodeRequest`, and how far open hypotheses are in
      them.
    strategy_state: state of the strategy, of `DecodingStrategy.begin`.
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
  prefix: Prefix | None = None
  phrases: Phrases | None = None
  strategy_state: Any = None


@struct.dataclass
class Next:
  """What may follow the open hypotheses.

  Attributes:
    logits_BNV: of the next subword, in single precision; NEG_INF where it is not
      what was asked.
    lse_BN: log of the sum of their exponentials: log probabilities are the
      logits less it, over the whole vocabulary as in training.
    cache: what the model remembers now.
  """

  logits_BNV: Array
  lse_BN: Array
  cache: Any


class Decoding:
  """A model and its parameters: see `jaxsyn.models.contract`."""

  def __init__(
    self,
    model: EncoderDecoder | Ensemble,
    params: Any,
    ranks: Callable[[], np.ndarray] | None = None,
  ):
    """Sets it up.

    Args:
      model: that translates.
      params: of it.
      ranks: rank_V of `Prefixes`, where there are prefixes.
    """
    self._model, self._params, self._ranks = model, params, ranks

  def begin(
    self,
    sources: Sources,
    *,
    hypotheses: int,
    length: int,
    room: int,
    strategy_state: Any = None,
  ) -> Search:
    """Reads sources; their searches before the first subword.

    Each with one hypothesis, which is all there is before it: the first step
    makes it N, and costs an N-th of another.

    Args:
      sources: sentences.
      hypotheses: N, hypotheses kept of a sentence.
      length: T, at least the largest limit of a sentence.
      room: outputs that the cache has room for at first.
      strategy_state: state of the strategy, of `DecodingStrategy.begin`.
    """
    encoded = self._call("encode", sources.id_BS, sources.view)
    encoded = self._call("project_memory", encoded)
    request, B = sources.request, sources.request.limit_B.size
    N = hypotheses
    never_BN = jnp.full((B, N), NEG_INF)
    nothing_BNT = jnp.full((B, N, length), PAD, jnp.int32)
    return Search(
      encoded=encoded,
      limit_B=request.limit_B,
      at_B=jnp.zeros(B, jnp.int32),
      open_B=sources.real_B,
      token_BNT=nothing_BNT[:, :1],
      log_p_BN=jnp.zeros((B, 1)),
      last_BN=jnp.full((B, 1), BOS, jnp.int32),
      cache=self._call("start", encoded, 1, room),
      ended=Hypotheses(nothing_BNT, never_BN, never_BN),
      prefix=request.prefix,
      phrases=request.phrases,
      strategy_state=strategy_state,
    )

  def advance(self, search: Search) -> Next:
    """Reads the last subword of each hypothesis."""

    def one(encoded: Any, cache: Any, last_N: Array, at: Array) -> Any:
      batched = jax.tree.map(lambda x: x[None], (encoded, cache, last_N))
      advanced = self._call("advance", *batched, at)
      return jax.tree.map(lambda x: x[0], advanced)

    logits_BNV, cache = jax.vmap(one)(
      search.encoded, search.cache, search.last_BN, search.at_B
    )
    # Of bfloat16 each log probability was 0.016 off, of 32,000 subwords.
    logits_BNV = logits_BNV.astype(jnp.float32)
    lse_BN = jax.nn.logsumexp(logits_BNV, axis=-1)
    if search.prefix is not None:
      if self._ranks is None:
        raise ValueError("a prefix without the ranks of its vocabulary")
      logits_BNV = search.prefix.restricted(logits_BNV, self._ranks())
    if search.phrases is not None:
      logits_BNV = search.phrases.restricted(logits_BNV)
    return Next(logits_BNV, lse_BN, cache)

  def follow(
    self,
    search: Search,
    cache: Any,
    beam_BN: Array | None,
    last_BN: Array,
    **changes: Any,
  ) -> Search:
    """The search with other open hypotheses.

    Args:
      search: before.
      cache: of `advance`.
      beam_BN: which hypothesis each goes on from; None: the same.
      last_BN: its new subword.
      **changes: other fields that change.
    """
    if beam_BN is not None:
      cache = self._call("reorder", cache, beam_BN)
    else:
      beam_BN = jnp.broadcast_to(jnp.arange(last_BN.shape[1]), last_BN.shape)
    if search.prefix is not None:
      changes["prefix"] = search.prefix.followed(beam_BN, last_BN)
    if search.phrases is not None:
      changes["phrases"] = search.phrases.followed(beam_BN, last_BN)
    return dataclasses.replace(
      search,
      at_B=search.at_B + search.open_B,
      last_BN=last_BN,
      cache=cache,
      **changes,
    )

  def _call(self, method: str, *arguments: Any) -> Any:
    return self._model.apply(
      {"params": self._params}, *arguments, method=method
    )
