"""Tests that the product of a layer and its gradient equal `lax.dot_general`."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxsyn.arrays.product import product

# Shapes of the input and the weight, and the number of contracted axes.
SHAPES = {
  "wider": ((3, 5, 4), (4, 9), 1),
  "narrower": ((3, 5, 9), (9, 4), 1),
  "to heads": ((3, 5, 8), (8, 2, 6), 1),
  "from heads": ((3, 5, 2, 6), (2, 6, 8), 2),
  "one vector": ((9,), (9, 4), 1),
}


CASES = [(case, "float32") for case in SHAPES]
CASES += [(case, "bfloat16") for case in ("wider", "from heads")]


@pytest.mark.parametrize(("case", "dtype"), CASES)
def test_value_and_gradients_are_those_of_dot_general(case, dtype):
  x_shape, weight_shape, axes = SHAPES[case]
  rng = np.random.default_rng(0)
  x, weight = (
    jnp.asarray(rng.normal(size=shape), dtype)
    for shape in (x_shape, weight_shape)
  )
  last = tuple(range(x.ndim - axes, x.ndim))
  numbers = ((last, tuple(range(axes))), ((), ()))
  wanted, wanted_back = jax.vjp(
    lambda *both: jax.lax.dot_general(*both, numbers), x, weight
  )
  got, back = jax.vjp(lambda *both: product(*both, numbers), x, weight)
  out = jnp.asarray(rng.normal(size=wanted.shape), dtype)
  close = 1e-6 if dtype == "float32" else 2e-2
  for one, other in zip((got, *back(out)), (wanted, *wanted_back(out))):
    assert one.dtype == other.dtype and one.shape == other.shape
    np.testing.assert_allclose(
      one.astype(np.float32), other.astype(np.float32), rtol=close, atol=close
    )


@pytest.mark.parametrize(("platform", "own"), [("cpu", True), ("tpu", False)])
def test_gradients_are_reordered_in_programs_for_a_cpu_only(platform, own):
  """Also in programs that are compiled on another machine."""

  def gradients(x, weight):
    return jax.grad(
      lambda *both: product(*both, (((1,), (0,)), ((), ()))).sum(), (0, 1)
    )(x, weight)

  traced = jax.jit(gradients).trace(jnp.ones((3, 4)), jnp.ones((4, 2)))
  text = traced.lower(lowering_platforms=(platform,)).as_text()
  assert ("optimization_barrier" in text) == own
