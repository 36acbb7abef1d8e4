"""Sinusoidal position encodings, compared with both formulas."""

import jax.numpy as jnp
import numpy as np
import pytest

from jaxsyn.arrays.sinusoids import sinusoids


def encodings(positions, width, last):
  """Sines, then cosines, of channels at rates of 10000^(-i / last)."""
  return np.array(
    [
      [
        f(p * 10_000 ** (-i / last))
        for f in (np.sin, np.cos)
        for i in range(width // 2)
      ]
      for p in range(positions)
    ]
  )


@pytest.mark.parametrize(
  "positions, width, off", [(100, 512, 0.14), (60, 128, 0.32)]
)
def test_sinusoids_follow_tensor2tensor(positions, width, off):
  result = sinusoids(jnp.arange(positions), width)
  half = width // 2
  np.testing.assert_allclose(
    result, encodings(positions, width, half - 1), atol=2e-5
  )
  paper = encodings(positions, width, half)
  np.testing.assert_allclose(abs(result - paper).max(), off, atol=0.005)
