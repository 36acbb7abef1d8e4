"""Gradients of parameters held to central differences."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree

# Parts compute in float32 whatever comes in. At this step rounding (about
# 1e-7 of the loss over the step) and the cut-off of the series (the step's
# square times the third derivative) both stay near 1e-4 for losses around 1.
STEP = 1e-2


def agree_with_differences(loss, params, atol: float = 1e-3) -> None:
  """Asserts d loss / d p = (loss(p + step) - loss(p - step)) / 2 step.

  Args:
    loss: of the parameters, a number around 1, smooth.
    params: a tree; each of its numbers is moved in turn.
    atol: allowed error.
  """
  flat, unravel = ravel_pytree(params)

  def one(flat):
    return loss(unravel(flat))

  steps = STEP * jnp.eye(flat.size)
  up, down, gradient = jax.jit(
    lambda: (
      jax.vmap(one)(flat + steps),
      jax.vmap(one)(flat - steps),
      jax.grad(one)(flat),
    )
  )()
  np.testing.assert_allclose(gradient, (up - down) / (2 * STEP), atol=atol)
  for leaf in jax.tree.leaves(unravel(gradient)):
    assert np.abs(leaf).max() > 5 * atol  # every parameter counts
