"""Sinusoidal position encodings, compared with both formulas."""

import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose

from jaxsyn.arrays.sinusoids import sinusoids


def encodings(positions, width, last):
  """Sines, then cosines, of channels at rates of 10000^(-i / last)."""
  rates = [10_000 ** (-i / last) for i in range(width // 2)]
  angles = np.arange(positions)[:, None] * np.array(rates)
  return np.concatenate([np.sin(angles), np.cos(angles)], axis=1)


@pytest.mark.parametrize(
  "positions, width, difference", [(100, 512, 0.14), (60, 128, 0.32)]
)
def test_sinusoids_follow_tensor2tensor(positions, width, difference):
  result = sinusoids(jnp.arange(positions), width)
  half = width // 2
  assert_allclose(result, encodings(positions, width, half - 1), atol=2e-5)
  paper = abs(result - encodings(positions, width, half)).max()
  assert_allclose(paper, difference, atol=0.005)
