"""Matrix product of a layer's input and weight, with a fast CPU gradient."""

from __future__ import annotations

import functools
import math
from typing import Any

import jax
from jax import Array, lax

Axes = tuple[tuple[Any, Any], tuple[Any, Any]]  # of `lax.dot_general`


def product(
  x: Array, weight: Array, dimension_numbers: Axes, precision: Any = None
) -> Array:
  """Multiplies input and weight, with a weight gradient that is fast on CPUs.

  JAX computes the gradient of the weight transposed. XLA fuses the transposition
  into the product, and on a CPU transposes the gradient of the output instead,
  which is as long as the batch, and selects a slower kernel. Two layers of 256
  and 1,024 units on 3,816 subwords, forward and backward, take 148 ms of
  processor time by `lax.dot_general`, and 119 ms here. Programs for other
  devices are not affected.

  Args:
    x: Input; its last axes are contracted.
    weight: Weight; its first axes are contracted, in the same order.
    dimension_numbers: Dimension numbers of `lax.dot_general`.
    precision: Precision of `lax.dot_general`.
  """
  (_, into), _ = dimension_numbers
  return _product(x, weight, len(into), precision)


@functools.partial(jax.custom_vjp, nondiff_argnums=(2, 3))
def _product(x: Array, weight: Array, axes: int, precision: Any) -> Array:
  """Contracts the last axes of the input with the first axes of the weight."""
  over = tuple(range(x.ndim - axes, x.ndim)), tuple(range(axes))
  return lax.dot_general(x, weight, (over, ((), ())), precision)


def _forward(
  x: Array, weight: Array, axes: int, precision: Any
) -> tuple[Array, tuple[Array, Array]]:
  return _product(x, weight, axes, precision), (x, weight)


def _backward(
  axes: int, precision: Any, residuals: tuple[Array, Array], out: Array
) -> tuple[Array, Array]:
  x, weight = residuals
  dot = functools.partial(lax.dot_general, precision=precision)
  rows = tuple(range(x.ndim - axes))
  columns = tuple(range(len(rows), out.ndim))
  weight_axes = tuple(range(axes, weight.ndim))
  x_gradient = dot(out, weight, ((columns, weight_axes), ((), ())))
  over_rows = (rows, rows), ((), ())
  # The narrower operand comes first. If that is the output, the gradient of the
  # weight is transposed, behind a barrier, so that XLA does not fuse it.
  if math.prod(weight.shape[:axes]) <= math.prod(weight.shape[axes:]):
    return x_gradient, _unfused(dot(x, out, over_rows))
  transposed = _unfused(dot(out, x, over_rows))
  return x_gradient, transposed.transpose(
    *(n + len(weight_axes) for n in range(axes)),
    *(n - axes for n in weight_axes),
  )


def _unfused(product: Array) -> Array:
  """Prevents XLA from fusing a product with later operations on a CPU."""
  return lax.platform_dependent(
    product, cpu=lax.optimization_barrier, default=lambda product: product
  )


_product.defvjp(_forward, _backward)
