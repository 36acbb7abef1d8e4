"""Sampling from the model's distribution.

A subword is drawn from softmax(log p / temperature), restricted in this order to

  top_k     the k most probable subwords (Fan et al. 2018, section 5.2);
  top_p     the smallest set of most probable subwords with a total probability of
            at least p (nucleus sampling: Holtzman et al. 2020, section 3.1, Eq. 2
            and 3);
  epsilon   the subwords with at least this probability (Hewitt et al. 2022, section
            4), or the most probable one if all have less;

with renormalization after each. Ties at the border of a set are included. PAD and
BOS are never drawn. At the limit of a sentence the subword is EOS.

Sample n of a sentence depends only on the seed, the index of the sentence in
the input and n: each draw has a random key made from these values and the
position. The samples are the same in any batch and on any number of devices,
and the first of many samples are those of a smaller number. They are returned
in this order, not sorted by score, so that the first one is an unbiased draw.
"""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
from jax import Array

from jaxsyn.data.schema import BOS, EOS, PAD
from jaxsyn.decode.rank import NEG_INF, score
from jaxsyn.decode.search import DecodeRequest, Decoding, Hypotheses, Search
from jaxsyn.decode.strategy import Decode, DecodingStrategy
from jaxsyn.options import ConfigPath, option
from jaxsyn.options.bounds import CountOrOff, Positive, Probability, Seed

MAX_SAMPLES = 640  # samples drawn together, of one or several sentences


@dataclasses.dataclass(frozen=True)
class Sample(DecodingStrategy):
  """Sampling of config.decode.nbest translations of each sentence."""

  temperature: Positive = option(
    1.0, "Sampling temperature, by which log probabilities are divided."
  )
  top_k: CountOrOff = option(
    0,
    "Number of most probable subwords to sample from; 0: all.",
    unit="subwords",
  )
  top_p: Probability = option(
    1.0,
    "Nucleus sampling: sample from the smallest set of subwords whose total "
    "probability is at least this value; 1: all subwords.",
  )
  epsilon: Probability = option(
    0.0, "Minimum probability of a sampled subword; 0: no minimum."
  )
  seed: Seed = option(0, "Random seed of the samples.")

  def hypotheses(self, decode: Decode) -> int:
    return decode.nbest

  def batch_size(self, decode: Decode) -> int:
    return max(1, min(decode.sentences, MAX_SAMPLES // decode.nbest))

  def begin(self, request: DecodeRequest, decode: Decode) -> Array:
    return request.index_B

  def step(self, decoding: Decoding, search: Search, decode: Decode) -> Search:
    new = decoding.advance(search)
    (B, N), T = search.ended.score_BN.shape, search.token_BNT.shape[-1]
    log_p_BNV = new.logits_BNV - new.lse_BN[:, :, None]
    logits_BNV = self.restrict(log_p_BNV)
    token_BN = jnp.argmax(
      logits_BNV + self._gumbel_noise(search, logits_BNV), axis=-1
    )
    token_BN = jnp.where(search.at_limit_B[:, None], EOS, token_BN)
    log_p_BNV = jnp.broadcast_to(log_p_BNV, (B, N, log_p_BNV.shape[-1]))
    new_BN1 = jnp.take_along_axis(log_p_BNV, token_BN[:, :, None], axis=-1)

    # Finished samples wait for the other samples of their sentence.
    done_BN = search.ended.score_BN > NEG_INF / 2
    done_BN = done_BN | ~search.open_B[:, None]
    log_p_BN = search.log_p_BN + jnp.where(done_BN, 0, new_BN1[..., 0])
    token_BNT = jnp.where(
      (jnp.arange(T) == search.position_B[:, None, None])
      & ~done_BN[:, :, None],
      token_BN[:, :, None],
      search.token_BNT,
    )
    ends_BN = (token_BN == EOS) & ~done_BN
    score_BN = score(log_p_BN, search.position_B[:, None] + 1, decode)
    old = search.ended
    ended = Hypotheses(
      jnp.where(ends_BN[:, :, None], token_BNT, old.token_BNT),
      jnp.where(ends_BN, score_BN, old.score_BN),
      jnp.where(ends_BN, log_p_BN, old.log_p_BN),
    )
    is_first = search.last_BN.shape[1] != N
    return decoding.append(
      search,
      new.cache,
      jnp.zeros((B, N), jnp.int32) if is_first else None,
      token_BN.astype(jnp.int32),
      open_B=search.open_B & ~(ends_BN | done_BN).all(1),
      token_BNT=token_BNT,
      log_p_BN=log_p_BN,
      ended=ended,
    )

  def restrict(self, log_p_BNV: Array) -> Array:
    """Returns the logits to sample from, with NEG_INF at excluded subwords."""
    token_V = jnp.arange(log_p_BNV.shape[-1])
    allowed_V = (token_V != PAD) & (token_V != BOS)
    logits_BNV = jnp.where(allowed_V, log_p_BNV, NEG_INF) / self.temperature
    if 0 < self.top_k < token_V.size:
      threshold_BN1 = jax.lax.top_k(logits_BNV, self.top_k)[0][..., -1:]
      logits_BNV = jnp.where(logits_BNV >= threshold_BN1, logits_BNV, NEG_INF)
    if self.top_p < 1:
      sorted_BNV = jnp.sort(logits_BNV, axis=-1, descending=True)
      p_BNV = jax.nn.softmax(sorted_BNV, axis=-1)
      before_BNV = jnp.cumsum(p_BNV, axis=-1) - p_BNV
      threshold_BNV = jnp.where(before_BNV < self.top_p, sorted_BNV, -NEG_INF)
      threshold_BN1 = threshold_BNV.min(-1, keepdims=True)
      logits_BNV = jnp.where(logits_BNV >= threshold_BN1, logits_BNV, NEG_INF)
    if self.epsilon:
      p_BNV = jax.nn.softmax(logits_BNV, axis=-1)
      threshold_BN1 = jnp.minimum(self.epsilon, p_BNV.max(-1, keepdims=True))
      logits_BNV = jnp.where(p_BNV >= threshold_BN1, logits_BNV, NEG_INF)
    return logits_BNV

  def _gumbel_noise(self, search: Search, logits_BNV: Array) -> Array:
    """Returns Gumbel noise; argmax(logits + noise) is a softmax sample."""
    V, dtype = logits_BNV.shape[-1], logits_BNV.dtype
    sample_N = jnp.arange(search.ended.score_BN.shape[1])
    # A fixed generator: JAX's default may differ between devices.
    seed_key = jax.random.key(self.seed, impl="threefry2x32")

    def noise(index: Array, position: Array, sample: Array) -> Array:
      key = jax.random.fold_in(seed_key, index)
      key = jax.random.fold_in(key, sample)
      key = jax.random.fold_in(key, position)
      return jax.random.gumbel(key, (V,), dtype)

    of_samples = jax.vmap(noise, (None, None, 0))
    return jax.vmap(of_samples, (0, 0, None))(
      search.strategy_state, search.position_B, sample_N
    )

  def check(self, at: ConfigPath, decode: Decode) -> None:
    if not self.top_p:
      raise (at / "sample" / "top_p").error(
        "=0 leaves no subword to sample from; for the most probable one use "
        "top_k=1."
      )
