"""Layers that all architectures share."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn
from jax import Array

from jaxsyn.arrays.product import product

ACTIVATIONS = {"relu": jax.nn.relu, "gelu": jax.nn.gelu}


def keep_mask(key: Array, rate: float, shape: tuple[int, ...]) -> Array:
  """Samples a dropout mask: independent Bernoulli(1 - rate) variables.

  Element i is an integer hash of (key, i), with the multipliers and shifts of
  splitmix32. XLA fuses the hash into other operations, so that no random bits are
  written to memory. On a CPU, where Threefry dominates a small model's step, this
  makes dropout nearly free. The hash is not cryptographic. As with `jax.random`,
  masks do not depend on the number of devices.

  Args:
    key: Typed PRNG key, not used for anything else.
    rate: Probability of False.
    shape: Shape with fewer than 2**32 elements.
  """
  word = jax.random.key_data(key)  # at least two words
  size = int(np.prod(shape))
  x = jax.lax.iota(jnp.uint32, size).reshape(shape)
  x = (x * jnp.uint32(0x9E3779B9) + word[0]) ^ word[-1]
  x = (x ^ (x >> 16)) * jnp.uint32(0x21F0AAAD)
  x = (x ^ (x >> 15)) * jnp.uint32(0x735A2D97)
  x = x ^ (x >> 15)
  return x >= jnp.uint32(min(round(rate * 2**32), 2**32 - 1))


class Dropout(nn.Module):
  """Inverted dropout (Srivastava et al. 2014) with the "dropout" RNG.

  Attributes:
    rate: Probability of 0.
    shared: Axes that share a mask: (1,) of BSD for variational dropout (Gal &
      Ghahramani 2016), (2,) to drop complete words.
  """

  rate: float
  shared: tuple[int, ...] = ()

  @nn.compact
  def __call__(self, x: Array, *, train: bool) -> Array:
    if not train or self.rate == 0.0:
      return x
    shape = [1 if i in self.shared else n for i, n in enumerate(x.shape)]
    keep = keep_mask(self.make_rng("dropout"), self.rate, tuple(shape))
    return jnp.where(keep, x * (1.0 / (1.0 - self.rate)), 0.0).astype(x.dtype)


def dense(features: int, dtype: str, name: str | None = None) -> nn.Dense:
  """Creates a linear layer with Xavier-uniform weights and zero bias."""
  return nn.Dense(
    features,
    dtype=dtype,
    kernel_init=nn.initializers.xavier_uniform(),
    dot_general=product,
    name=name,
  )


class Embedding(nn.Embed):
  """Embedding table with float32 gradients, also used as an output layer."""

  def __call__(self, inputs: Array) -> Array:
    """Returns the embedding vectors (..., D) of subwords."""
    # Cast after the lookup, because otherwise gradients of a frequent subword
    # are added up in bfloat16, which drops terms 256 times smaller than the sum.
    return jnp.take(self.embedding, inputs, axis=0).astype(self.dtype)

  def attend(self, query: Array) -> Array:
    """Returns the logits (..., V) of all subwords in the vocabulary."""
    promoted: Any = self.promote_dtype(query, self.embedding, dtype=self.dtype)
    query, embedding = promoted
    axes = ((query.ndim - 1,), (0,)), ((), ())
    return product(query, embedding.T, axes)


def norm(dtype: str) -> nn.LayerNorm:
  """Creates a layer normalization over D, with statistics in float32."""
  # ε of fairseq, the papers' toolkit; Flax's default is 1e-6.
  return nn.LayerNorm(epsilon=1e-5, dtype=dtype)


class FeedForward(nn.Module):
  """Feed-forward network of two linear layers (Vaswani et al. 2017, Eq. 2)."""

  inner: int
  activation: str
  dropout: float
  dtype: str

  @nn.compact
  def __call__(self, x_BSD: Array, *, train: bool) -> Array:
    hidden_BSF = dense(self.inner, self.dtype, "inner")(x_BSD)
    hidden_BSF = ACTIVATIONS[self.activation](hidden_BSF)
    hidden_BSF = Dropout(self.dropout)(hidden_BSF, train=train)
    return dense(x_BSD.shape[-1], self.dtype, "outer")(hidden_BSF)
