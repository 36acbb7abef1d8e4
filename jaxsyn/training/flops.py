"""FLOPs of the matrix products of a program, counted from what was traced.

XLA's own count (`cost_analysis`) takes the body of a loop once, however often it
runs, and knows nothing of products that a library computes, as on a GPU.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import jax
from jax.interpreters import partial_eval


def product_flops(function: Callable[..., Any], *arguments: Any) -> float:
  """Of one call: 2 for each multiplication of a product of matrices.

  Loops of a known length count as often as they run, others once; of branches
  the dearest counts.

  Args:
    function: to be traced.
    arguments: arrays, or their shapes.
  """
  return traced_flops(jax.make_jaxpr(function)(*arguments).jaxpr)


def traced_flops(jaxpr: Any) -> float:
  """The same of what was traced already."""
  # Without what nobody reads: of a second pass a loss reads the maps alone.
  read, _ = partial_eval.dce_jaxpr(jaxpr, [True] * len(jaxpr.outvars))
  return _count(read)


def _count(jaxpr: Any) -> float:
  total = 0.0
  for equation in jaxpr.eqns:
    inner = [_count(one) for one in _inside(equation.params)]
    if equation.primitive.name == "dot_general":
      total += _product(equation)
    elif equation.primitive.name == "cond":
      total += max(inner, default=0.0)
    else:
      repeats = 1
      if equation.primitive.name == "scan":
        repeats = equation.params["length"]
      elif "pmap" in equation.primitive.name:
        repeats = equation.params["axis_size"]
      total += repeats * sum(inner)
  return total


def _inside(parameters: dict[str, Any]) -> Iterator[Any]:
  """The programs within one instruction."""
  for value in parameters.values():
    for one in value if isinstance(value, tuple | list) else [value]:
      one = getattr(one, "jaxpr", one)
      if hasattr(one, "eqns"):
        yield one


def _product(equation: Any) -> float:
  (contracted, _), _ = equation.params["dimension_numbers"]
  left = equation.invars[0].aval.shape
  of_one = math.prod(left[axis] for axis in contracted)
  return 2.0 * of_one * math.prod(equation.outvars[0].aval.shape)
