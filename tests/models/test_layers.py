"""Sinusoidal position encodings, compared with their formula."""

import jax.numpy as jnp
import numpy as np
from numpy.testing import assert_allclose

from jaxsyn.arrays.sinusoids import sinusoids


def test_sinusoids_follow_tensor2tensor():
  """Sines, then cosines; the last rate is exactly 1 / 10000."""
  rates = [10_000 ** (-i / 63) for i in range(64)]
  angles = np.arange(60)[:, None] * np.array(rates)
  expected = np.concatenate([np.sin(angles), np.cos(angles)], axis=1)
  assert_allclose(sinusoids(jnp.arange(60), 128), expected, atol=2e-5)
