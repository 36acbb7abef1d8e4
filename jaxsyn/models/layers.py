"""The small pieces the encoder-decoders are made of.

Before this file: nothing. After it: `attention`, then the families.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn
from jax import Array

from jaxsyn.product import product

ACTIVATIONS = {"relu": jax.nn.relu, "gelu": jax.nn.gelu}


def keep_mask(key: Array, rate: float, shape: tuple[int, ...]) -> Array:
  """Independent Bernoulli(1 - rate) draws, one an element.

  The draw of element i is an integer hash of (key, i), with the multipliers and
  shifts of splitmix32. XLA fuses it into the arithmetic around it, so no random
  bits are written to memory: on a CPU, where counter ciphers such as Threefry
  dominate a small model's step, this makes dropout nearly free. The hash is
  made for dropout, not for secrets.
  Like `jax.random` it depends on global element numbers alone, so masks are
  the same on any number of devices.

  Args:
    key: a typed PRNG key, used here and nowhere else.
    rate: probability of False.
    shape: any; fewer than 2**32 elements.
  """
  word = jax.random.key_data(key)  # two words or more, by kind of key
  size = int(np.prod(shape))
  x = jax.lax.iota(jnp.uint32, size).reshape(shape)
  x = (x * jnp.uint32(0x9E3779B9) + word[0]) ^ word[-1]
  x = (x ^ (x >> 16)) * jnp.uint32(0x21F0AAAD)
  x = (x ^ (x >> 15)) * jnp.uint32(0x735A2D97)
  x = x ^ (x >> 15)
  return x >= jnp.uint32(min(round(rate * 2**32), 2**32 - 1))


class Dropout(nn.Module):
  """Inverted dropout (Srivastava et al. 2014) on the "dropout" stream.

  Attributes:
    rate: probability of 0.
    shared: axes along which one draw holds: (1,) of BSD is variational dropout
      (Gal & Ghahramani 2016), (2,) drops whole words.
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
  """A linear layer with Xavier-uniform weights and zero bias."""
  return nn.Dense(
    features,
    dtype=dtype,
    kernel_init=nn.initializers.xavier_uniform(),
    dot_general=product,
    name=name,
  )


class Embedding(nn.Embed):
  """Flax's, but for its gradient and the product of an output layer."""

  def __call__(self, inputs: Array) -> Array:
    """Vectors of subwords (..., D)."""
    # Looked up, then rounded: the other way round the gradients of a frequent
    # subword are added up in bfloat16, which drops what is 256 times smaller.
    return jnp.take(self.embedding, inputs, axis=0).astype(self.dtype)

  def attend(self, query: Array) -> Array:
    """Logits, or another score, of each entry (..., V)."""
    promoted: Any = self.promote_dtype(query, self.embedding, dtype=self.dtype)
    query, embedding = promoted
    over = ((query.ndim - 1,), (0,)), ((), ())
    return product(query, embedding.T, over)


def norm(dtype: str) -> nn.LayerNorm:
  """Layer normalisation over D, statistics in float32."""
  # fairseq's ε, the papers' toolkit; Flax's own is 1e-6.
  return nn.LayerNorm(epsilon=1e-5, dtype=dtype)


class FeedForward(nn.Module):
  """Two linear layers around an activation: Vaswani et al. 2017, Eq. 2."""

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
