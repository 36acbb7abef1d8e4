"""State of a batch in beam search or sampling, and steps that update it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct
from jax import Array

from jaxsyn.data.schema import BOS, PAD
from jaxsyn.decode.ensemble import Ensemble
from jaxsyn.decode.prefix import Prefix
from jaxsyn.decode.rank import NEG_INF
from jaxsyn.models.contract import sentence_features


@struct.dataclass
class DecodeRequest:
  """Output limits and prefixes of the sentences in a batch.

  Attributes:
    limit_B: Maximum output length in subwords, EOS included, from 1 to the
      length of the search. A hypothesis that reaches it ends there.
    index_B: Index of each sentence in the input, on which random draws depend.
    prefix: Prefixes of the outputs; None if no output has one.
  """

  limit_B: Array
  index_B: Array
  prefix: Prefix | None = None


@struct.dataclass
class Hypotheses:
  """Finished hypotheses, best first.

  Attributes:
    token_BNT: Subwords, EOS included, then PAD.
    score_BN: Log probability divided by the length penalty; at most NEG_INF
      where fewer than N hypotheses are finished.
    log_p_BN: Log probability of the subwords, EOS included.
  """

  token_BNT: Array
  score_BN: Array
  log_p_BN: Array


@struct.dataclass
class Search:
  """Decoding state of a batch: hypotheses, decoder cache and limits.

  The first axis of every array is the sentence, and no sentence depends on
  another, so that a finished one can be replaced at any step (continuous
  batching). Each sentence has its own position.

  Attributes:
    encoded: Encoder output and projected memory of each model.
    limit_B: Maximum output length in subwords, EOS included.
    position_B: Number of subwords generated so far.
    open_B: Sentences that are still searched.
    token_BNT: Open hypotheses. There is one before the first subword, then N.
    log_p_BN: Log probabilities of the open hypotheses.
    last_BN: Last subwords of the open hypotheses.
    cache: Decoder cache of each model.
    ended: Best finished hypotheses.
    prefix: Prefixes, and the state of each open hypothesis in them.
    strategy_state: State of the decoding strategy.
  """

  encoded: Any
  limit_B: Array
  position_B: Array
  open_B: Array
  token_BNT: Array
  log_p_BN: Array
  last_BN: Array
  cache: Any
  ended: Hypotheses
  prefix: Prefix | None = None
  strategy_state: Any = None

  @property
  def at_limit_B(self) -> Array:
    """Whether each sentence's next subword is the last within its limit."""
    return self.position_B == self.limit_B - 1


@struct.dataclass
class Next:
  """Distributions over the next subword of the open hypotheses.

  Attributes:
    logits_BNV: Logits in float32; NEG_INF where a prefix forbids the subword.
    lse_BN: Log-sum-exp over the whole vocabulary, before a prefix is applied:
      log probabilities are logits - lse, as in training.
    cache: Decoder caches after the last subword.
  """

  logits_BNV: Array
  lse_BN: Array
  cache: Any


class Decoding:
  """Models with their parameters, as used by the decoding strategies."""

  def __init__(
    self,
    ensemble: Ensemble,
    params: Sequence[Any],
    piece_rank: Callable[[], np.ndarray] | None = None,
  ):
    """Binds the models to their parameters.

    Args:
      ensemble: Models.
      params: Parameters of each model.
      piece_rank: Returns `PrefixCompiler.rank_V`; needed for prefixes only.
    """
    self._ensemble, self._params = ensemble, params
    self._piece_rank = piece_rank

  def begin(
    self,
    batches: Sequence[Any],
    request: DecodeRequest,
    *,
    hypotheses: int,
    length: int,
    cache_length: int,
    strategy_state: Any = None,
  ) -> Search:
    """Encodes sentences; returns their search state before the first subword.

    Each search begins with one hypothesis, so that the first step costs 1/N of
    a later one.

    Args:
      batches: Source batch of the loader for each model. A row of padding gives
        an empty hypothesis.
      request: Limits and prefixes of the outputs.
      hypotheses: Number N of hypotheses of a sentence.
      length: Output length T, at least the largest limit.
      cache_length: Initial length of the decoder caches in subwords.
      strategy_state: State of the decoding strategy.
    """
    ids = [batch["source_id_BS"] for batch in batches]
    features = [sentence_features(batch, "source") for batch in batches]
    encoded = self._apply("encode", ids, features)
    encoded = self._apply("project_memory", encoded)
    B, N = request.limit_B.size, hypotheses
    neg_inf_BN = jnp.full((B, N), NEG_INF)
    pad_BNT = jnp.full((B, N, length), PAD, jnp.int32)
    return Search(
      encoded=encoded,
      limit_B=request.limit_B,
      position_B=jnp.zeros(B, jnp.int32),
      open_B=features[0].real_BS.any(1),
      token_BNT=pad_BNT[:, :1],
      log_p_BN=jnp.zeros((B, 1)),
      last_BN=jnp.full((B, 1), BOS, jnp.int32),
      cache=self._apply("start", encoded, beams=1, length=cache_length),
      ended=Hypotheses(pad_BNT, neg_inf_BN, neg_inf_BN),
      prefix=request.prefix,
      strategy_state=strategy_state,
    )

  def advance(self, search: Search) -> Next:
    """Runs the decoder on the last subword of each hypothesis."""

    def advance_one(encoded: Any, cache: Any, last_N: Array, at: Array) -> Any:
      encoded, cache, token_BN = jax.tree.map(
        lambda x: x[None], (encoded, cache, last_N)
      )
      advanced = self._apply(
        "advance", encoded, cache, token_BN=token_BN, at=at
      )
      logits, caches = zip(*advanced)
      result = self._ensemble.average(logits), caches
      return jax.tree.map(lambda x: x[0], result)

    logits_BNV, cache = jax.vmap(advance_one)(
      search.encoded, search.cache, search.last_BN, search.position_B
    )
    # In bfloat16 each log probability was off by 0.016, with 32,000 subwords.
    logits_BNV = logits_BNV.astype(jnp.float32)
    lse_BN = jax.nn.logsumexp(logits_BNV, axis=-1)
    if search.prefix is not None:
      if self._piece_rank is None:
        raise ValueError("prefixes need the ranks of the vocabulary's pieces")
      logits_BNV = search.prefix.mask(logits_BNV, self._piece_rank())
    return Next(logits_BNV, lse_BN, cache)

  def append(
    self,
    search: Search,
    cache: Any,
    beam_BN: Array | None,
    token_BN: Array,
    **changes: Any,
  ) -> Search:
    """Returns the search state after each hypothesis is extended by a subword.

    Args:
      search: Search before the step.
      cache: Decoder caches returned by `advance`.
      beam_BN: Hypothesis that each new hypothesis extends; None: the one at
        the same index.
      token_BN: Subword that extends it.
      **changes: Other fields of the search to replace.
    """
    if beam_BN is not None:
      cache = self._apply("reorder", cache, beam_BN=beam_BN)
    else:
      beam_BN = jnp.broadcast_to(jnp.arange(token_BN.shape[1]), token_BN.shape)
    if search.prefix is not None:
      changes["prefix"] = search.prefix.append(beam_BN, token_BN)
    return dataclasses.replace(
      search,
      position_B=search.position_B + search.open_B,
      last_BN=token_BN,
      cache=cache,
      **changes,
    )

  def _apply(self, method: str, *arguments: Any, **shared: Any) -> Any:
    return self._ensemble.apply(method, self._params, *arguments, **shared)
