"""Sampling: translations drawn from the model's own distribution.

A subword is drawn from softmax(log p / temperature) over those that are kept:
of these, in this order,

  top_k     the k most probable (Fan et al. 2018, section 5.2);
  top_p     the smallest set of the most probable whose probability is at least
            p (the nucleus: Holtzman et al. 2020, section 3.1, Eq. 2 and 3);
  epsilon   those of at least this probability (Hewitt et al. 2022, section 4),
            or the most probable where none has it;

each of what the one before has left, renormalised. PAD and BOS are never drawn;
at a sentence's limit EOS is. Of equally probable subwords at the edge of
a set all are in it.

Sample n of a sentence depends on the seed, the sentence's place in the input and n
alone: each draw has a key of its own, of these and of the position. So it is with
any batch, number of devices or processes, and the first samples of many are those
of few. They are given in this order, not by score: any is one draw, so the first
is.
"""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
from jax import Array

from jaxsyn.data.schema import BOS, EOS, PAD
from jaxsyn.decode.beam import is_last
from jaxsyn.decode.rank import NEG_INF, score
from jaxsyn.decode.search import DecodeRequest, Decoding, Hypotheses, Search
from jaxsyn.decode.strategy import Decode, DecodingStrategy
from jaxsyn.options import ConfigPath, option
from jaxsyn.options.bounds import CountOrOff, Positive, Probability, Seed

MAX_SAMPLES = (
  640  # samples that are drawn together, of one sentence or of several
)


@dataclasses.dataclass(frozen=True)
class Sampling(DecodingStrategy):
  """Random sampling of config.decode.nbest translations."""

  temperature: Positive = option(
    1.0, "Softmax temperature of sampling: log probabilities are divided by it."
  )
  top_k: CountOrOff = option(
    0,
    "Number k of most probable subwords to sample from; 0: all.",
    unit="subwords",
  )
  top_p: Probability = option(
    1.0,
    "Total probability of the smallest set of subwords to sample from "
    "(nucleus sampling); 1: all.",
  )
  epsilon: Probability = option(
    0.0,
    "Minimum probability of a subword to sample (epsilon sampling); 0: all.",
  )
  seed: Seed = option(
    0,
    "Seed of sampling. Random numbers depend on it and on the position of "
    "the sentence in the input.",
  )

  def hypotheses(self, decode: Decode) -> int:
    return decode.nbest

  def together(self, decode: Decode) -> int:
    return max(1, min(decode.sentences, MAX_SAMPLES // decode.nbest))

  def begin(self, request: DecodeRequest, decode: Decode) -> Array:
    return request.place_B

  def step(self, decoding: Decoding, search: Search, decode: Decode) -> Search:
    new = decoding.advance(search)
    (B, N), T = search.ended.score_BN.shape, search.token_BNT.shape[-1]
    log_p_BNV = new.logits_BNV - new.lse_BN[:, :, None]
    allowed_BNV = self.allowed(log_p_BNV)
    sampled_BN = jnp.argmax(
      allowed_BNV + self._noise(search, allowed_BNV), axis=-1
    )
    sampled_BN = jnp.where(is_last(search)[:, None], EOS, sampled_BN)
    log_p_BNV = jnp.broadcast_to(log_p_BNV, (B, N, log_p_BNV.shape[-1]))
    new_BN1 = jnp.take_along_axis(log_p_BNV, sampled_BN[:, :, None], axis=-1)

    # Those that have ended wait for the others of their sentence.
    over_BN = search.ended.score_BN > NEG_INF / 2
    over_BN = over_BN | ~search.open_B[:, None]
    log_p_BN = search.log_p_BN + jnp.where(over_BN, 0, new_BN1[..., 0])
    token_BNT = jnp.where(
      (jnp.arange(T) == search.at_B[:, None, None]) & ~over_BN[:, :, None],
      sampled_BN[:, :, None],
      search.token_BNT,
    )
    ends_BN = (sampled_BN == EOS) & ~over_BN
    score_BN = score(log_p_BN, search.at_B[:, None] + 1, decode)
    old = search.ended
    ended = Hypotheses(
      jnp.where(ends_BN[:, :, None], token_BNT, old.token_BNT),
      jnp.where(ends_BN, score_BN, old.score_BN),
      jnp.where(ends_BN, log_p_BN, old.log_p_BN),
    )
    is_first = search.last_BN.shape[1] != N
    return decoding.follow(
      search,
      new.cache,
      jnp.zeros((B, N), jnp.int32) if is_first else None,
      sampled_BN.astype(jnp.int32),
      open_B=search.open_B & ~(ends_BN | over_BN).all(1),
      token_BNT=token_BNT,
      log_p_BN=log_p_BN,
      ended=ended,
    )

  def allowed(self, log_p_BNV: Array) -> Array:
    """What subwords are drawn by: logits, NEG_INF where they are not.

    Args:
      log_p_BNV: of the model.
    """
    token_V = jnp.arange(log_p_BNV.shape[-1])
    allowed_V = (token_V != PAD) & (token_V != BOS)
    logits_BNV = jnp.where(allowed_V, log_p_BNV, NEG_INF) / self.temperature
    if 0 < self.top_k < token_V.size:
      threshold_BN1 = jax.lax.top_k(logits_BNV, self.top_k)[0][..., -1:]
      logits_BNV = jnp.where(logits_BNV >= threshold_BN1, logits_BNV, NEG_INF)
    if self.top_p < 1:
      down_BNV = jnp.sort(logits_BNV, axis=-1, descending=True)
      p_BNV = jax.nn.softmax(down_BNV, axis=-1)
      before_BNV = jnp.cumsum(p_BNV, axis=-1) - p_BNV
      threshold_BNV = jnp.where(before_BNV < self.top_p, down_BNV, -NEG_INF)
      threshold_BN1 = threshold_BNV.min(-1, keepdims=True)
      logits_BNV = jnp.where(logits_BNV >= threshold_BN1, logits_BNV, NEG_INF)
    if self.epsilon:
      p_BNV = jax.nn.softmax(logits_BNV, axis=-1)
      threshold_BN1 = jnp.minimum(self.epsilon, p_BNV.max(-1, keepdims=True))
      logits_BNV = jnp.where(p_BNV >= threshold_BN1, logits_BNV, NEG_INF)
    return logits_BNV

  def _noise(self, search: Search, like_BNV: Array) -> Array:
    """Gumbel noise (BNV): the largest of logits with it is a draw from them."""
    V, dtype = like_BNV.shape[-1], like_BNV.dtype
    index_N = jnp.arange(search.ended.score_BN.shape[1])
    # The same on all devices, whatever JAX's default is.
    seeded = jax.random.key(self.seed, impl="threefry2x32")

    def of_sample(place: Array, at: Array, index: Array) -> Array:
      key = seeded
      for one in (place, index, at):
        key = jax.random.fold_in(key, one)
      return jax.random.gumbel(key, (V,), dtype)

    of_samples = jax.vmap(of_sample, (None, None, 0))
    return jax.vmap(of_samples, (0, 0, None))(
      search.strategy_state, search.at_B, index_N
    )

  def check(self, at: ConfigPath, decode: Decode) -> None:
    if not self.top_p:
      raise (at / "sample" / "top_p").error(
        "=0 leaves nothing to draw from; the most probable alone is top_k=1."
      )
