"""The matrix product of a layer, with a gradient that suits a CPU."""

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
  """`lax.dot_general` of what a layer is given and its weight.

  JAX asks for the gradient of a weight with its axes the other way round; XLA
  folds that turn into the product, and on a CPU it then turns the gradient of
  the output instead, which is as long as the batch, and takes a slower kernel.
  Two layers of 256 and 1,024 units, 3,816 subwords, forward and back: 148 ms of
  processor time so, 119 ms as here. Programs for other devices are left to XLA.

  Args:
    x: its last axes are contracted.
    weight: its first axes are, in the same order.
    dimension_numbers: which they are.
    precision: of the products.
  """
  (_, into), _ = dimension_numbers
  return _product(x, weight, len(into), precision)


@functools.partial(jax.custom_vjp, nondiff_argnums=(2, 3))
def _product(x: Array, weight: Array, axes: int, precision: Any) -> Array:
  """The last so many axes of x by the first of the weight."""
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
  of_x = dot(out, weight, ((columns, weight_axes), ((), ())))
  over = (rows, rows), ((), ())
  # The narrower of the two is turned. What is turned back is the weight's
  # gradient; without the barrier XLA folds that into the product again.
  if math.prod(weight.shape[:axes]) <= math.prod(weight.shape[axes:]):
    return of_x, _apart(dot(x, out, over))
  turned = _apart(dot(out, x, over))
  return of_x, turned.transpose(
    *(n + len(weight_axes) for n in range(axes)),
    *(n - axes for n in weight_axes),
  )


def _apart(product: Array) -> Array:
  """Not folded with what is done to it, where it is compiled for a CPU.

  By the device of the program, which need not be of this machine.
  """
  return lax.platform_dependent(
    product, cpu=lax.optimization_barrier, default=lambda product: product
  )


_product.defvjp(_forward, _backward)
