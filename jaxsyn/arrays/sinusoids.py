"""Sinusoidal encodings of positions in a sentence or a tree."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
from jax import Array


def sinusoids(position: Array, width: int) -> Array:
  """Returns sinusoidal position encodings (Vaswani et al. 2017, section 3.5).

  They follow the authors' code (tensor2tensor, `get_timing_signal_1d`) and
  fairseq, not the formula of the paper: the first half of the channels are sines,
  the second half cosines, and channel i of a half has rate
  10000^(-i / (D/2 - 1)), so that the last wavelength is 10000·2π. In the paper,
  channels 2i and 2i+1 have rate 10000^(-i / (D/2)). The results differ by up to
  0.14 in the first 100 positions for D = 512, and by up to 0.32 in the first 60
  for D = 128.

  Args:
    position: Positions from 0, of any shape.
    width: Even width D.

  Returns:
    Encodings of shape position.shape + (D,), float32.
  """
  half = width // 2
  rate_D = np.exp(-np.log(10_000.0) * np.arange(half) / max(half - 1, 1))
  angle = position[..., None].astype(jnp.float32) * rate_D.astype(np.float32)
  return jnp.concatenate([jnp.sin(angle), jnp.cos(angle)], axis=-1)
