"""Layers of the recurrent encoder-decoder.

Source: the conditional GRU of Sennrich et al. 2017, "Nematus: a Toolkit for
Neural Machine Translation" (arXiv:1703.04357), section 3.

Letters: E width of an annotation, 2·G; A unit of an alignment.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from flax import linen as nn
from jax import Array

from jaxsyn.arrays.product import product
from jaxsyn.models.layers import Dropout
from jaxsyn.syntax import SentenceFeatures

Initializer = Callable[..., Array]

GATES = 3  # reset, update, candidate


def _orthogonal_or_small(
  key: Array, shape: tuple[int, ...], dtype: Any = jnp.float32
) -> Array:
  """Initializes square matrices orthogonally, and others from N(0, 0.01²)."""
  if shape[0] == shape[1]:
    return nn.initializers.orthogonal()(key, shape, dtype)
  return nn.initializers.normal(0.01)(key, shape, dtype)


INITIALISATIONS: dict[str, Initializer] = {
  "orthogonal": _orthogonal_or_small,
  "xavier": nn.initializers.xavier_uniform(),
}


def _gatewise(initializer: Initializer) -> Initializer:
  """Wraps an initializer so that each gate's matrix is sampled separately."""

  def initialize(
    key: Array, shape: tuple[int, ...], dtype: Any = jnp.float32
  ) -> Array:
    gate_shape = (shape[0], shape[1] // GATES)
    keys = jax.random.split(key, GATES)
    gates = [initializer(k, gate_shape, dtype) for k in keys]
    return jnp.concatenate(gates, axis=1)

  return initialize


def linear(
  features: int, initialisation: str, dtype: str, *, bias: bool = True
) -> nn.Dense:
  """Creates a linear layer with the named initialization and zero bias."""
  return nn.Dense(
    features,
    use_bias=bias,
    dtype=dtype,
    kernel_init=INITIALISATIONS[initialisation],
    dot_general=product,
  )


class Cell(nn.Module):
  """GRU cell (Cho et al. 2014); reset is applied after the recurrent matrix.

  r, u = σ(x W + h U + b); c = tanh((h U') · r + x W' + b');
  h ← u · h + (1 - u) · c.

  Attributes:
    units: Number G of units.
    initialisation: Key of INITIALISATIONS.
    dtype: Type of activations.
  """

  units: int
  initialisation: str
  dtype: str

  def setup(self) -> None:
    initializer = _gatewise(INITIALISATIONS[self.initialisation])
    # Gates have a separate axis, because a mesh that shards the units would
    # split a common axis inside a gate.
    size = (GATES, self.units)
    settings: dict[str, Any] = {
      "dtype": self.dtype,
      "kernel_init": initializer,
      "dot_general": product,
    }
    self.input = nn.DenseGeneral(size, **settings)
    self.recurrent = nn.DenseGeneral(size, use_bias=False, **settings)

  def __call__(self, x: Array, state: Array, dropped: Array) -> Array:
    """Returns the next state of the cell, with axes (..., G).

    Args:
      x: Result of `input`, (..., 3, G).
      state: Previous state.
      dropped: Previous state after dropout, the input of the recurrent matrix.
    """
    h = self.recurrent(dropped)
    reset = jax.nn.sigmoid(x[..., 0, :] + h[..., 0, :])
    update = jax.nn.sigmoid(x[..., 1, :] + h[..., 1, :])
    candidate = jnp.tanh(h[..., 2, :] * reset + x[..., 2, :])
    return update * state + (1 - update) * candidate


class Bidirectional(nn.Module):
  """Bidirectional GRU encoder that skips padding in both directions.

  Attributes:
    units: Number G of units of each direction.
    dropout: Dropout rate of the states, with one mask for a complete sentence
      (Gal & Ghahramani 2016).
    initialisation, dtype: See `Cell`.
  """

  units: int
  dropout: float
  initialisation: str
  dtype: str

  def setup(self) -> None:
    cell = (self.units, self.initialisation, self.dtype)
    self.forward, self.backward = Cell(*cell), Cell(*cell)
    self.drop = Dropout(self.dropout)

  def __call__(self, x_BSD: Array, features: SentenceFeatures) -> Array:
    """Returns the joined states of both directions (BSE), 0 at padding."""
    real_BS = features.real_BS
    shape = (x_BSD.shape[0], self.units)
    zero_BG = jnp.zeros(shape, jnp.dtype(self.dtype))
    mask = self.drop(jnp.ones((2, *shape), zero_BG.dtype), train=features.train)
    runs = []
    for cell, mask_BG, reverse in (
      (self.forward, mask[0], False),
      (self.backward, mask[1], True),
    ):

      def step(
        cell: Cell,
        state_BG: Array,
        x: tuple[Array, Array],
        mask_BG: Array = mask_BG,
      ) -> tuple[Array, Array]:
        x_BG, real_B = x
        new_BG = cell(x_BG, state_BG, state_BG * mask_BG)
        new_BG = jnp.where(real_B[:, None], new_BG, state_BG)
        return new_BG, new_BG

      runs.append(
        nn.scan(
          step,
          variable_broadcast="params",
          split_rngs={"params": False},
          in_axes=1,
          out_axes=1,
          reverse=reverse,
        )(cell, zero_BG, (cell.input(x_BSD), real_BS))[1]
      )
    annotation_BSE = jnp.concatenate(runs, axis=-1)
    return jnp.where(real_BS[:, :, None], annotation_BSE, 0)


class Alignment(nn.Module):
  """Additive attention scores of source positions (Bahdanau et al. 2015).

  e = vᵀ tanh(W s + U h + b) + c. A softmax does not depend on c, but scores that
  a window multiplies do.
  """

  units: int
  initialisation: str
  dtype: str

  def setup(self) -> None:
    settings = (self.initialisation, self.dtype)
    self.query = linear(self.units, *settings, bias=False)
    self.key = linear(self.units, *settings)
    # Scores are float32 in bfloat16 models too, as in attention.
    self.score = linear(1, self.initialisation, "float32")

  def project_memory(self, annotation_BSE: Array) -> Array:
    """Returns the projected encoder states, which all decoding steps share."""
    return self.key(annotation_BSE)

  def __call__(self, query_BNG: Array, key_BSA: Array) -> Array:
    """Returns the score of each source position (BNS) in float32."""
    query_BNA = self.query(query_BNG)
    hidden_BNSA = jnp.tanh(query_BNA[:, :, None] + key_BSA[:, None])
    return self.score(hidden_BNSA)[..., 0]
