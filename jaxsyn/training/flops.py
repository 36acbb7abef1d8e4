"""FLOPs of compiled programs, and peak FLOP/s of accelerators.

Only matrix products are counted. XLA's own count (`cost_analysis`) counts a
loop's body once, and ignores products that a library computes, as on a GPU.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator
from typing import Any

import jax
from jax.interpreters import partial_eval


@dataclasses.dataclass(frozen=True)
class Chip:
  """Peak compute and memory rates of one type of accelerator.

  Attributes:
    flops: FLOP/s of dense bfloat16 products; of float16 on a T4.
    bandwidth: Bytes/s of its memory.
  """

  flops: float
  bandwidth: float


# Device kind -> rates from the data sheets of NVIDIA and Google.
CHIPS = {
  "NVIDIA H200": Chip(989e12, 4.8e12),
  "NVIDIA H100": Chip(989e12, 3.35e12),
  "NVIDIA H100 PCIe": Chip(756e12, 2.0e12),
  "NVIDIA H100 NVL": Chip(835e12, 3.9e12),
  "NVIDIA A100": Chip(312e12, 1.555e12),
  "NVIDIA A100-SXM4-80GB": Chip(312e12, 2.039e12),
  "NVIDIA A100 80GB PCIe": Chip(312e12, 1.935e12),
  "NVIDIA L4": Chip(121e12, 0.3e12),
  "Tesla T4": Chip(65e12, 0.32e12),
  "TPU v4": Chip(275e12, 1.2e12),
  "TPU v5 lite": Chip(197e12, 0.819e12),
  "TPU v5e": Chip(197e12, 0.819e12),
  "TPU v5": Chip(459e12, 2.765e12),
  "TPU v5p": Chip(459e12, 2.765e12),
  "TPU v6 lite": Chip(918e12, 1.64e12),
  "TPU v6e": Chip(918e12, 1.64e12),
}


def chip(kind: str) -> Chip | None:
  """Returns the peak rates of an accelerator by its JAX `device_kind`.

  The kind is found by its prefix.

  The result is None for an unknown kind, such as a CPU.
  """
  names = [name for name in CHIPS if f"{kind} ".startswith(name)]
  return CHIPS[max(names, key=len)] if names else None


def peak_flops() -> float | None:
  """Returns the total peak FLOP/s of all devices; None for unknown kinds."""
  known = chip(jax.devices()[0].device_kind)
  return known.flops * jax.device_count() if known else None


def product_flops(function: Callable[..., Any], *arguments: Any) -> float:
  """Returns the FLOPs of all matrix products in one call of a function.

  Loops of known length count as often as they run, other loops once; of the
  branches of a condition, the most expensive one counts.

  Args:
    function: Traceable function.
    *arguments: Arrays, or their shapes.
  """
  return traced_flops(jax.make_jaxpr(function)(*arguments).jaxpr)


def traced_flops(jaxpr: Any) -> float:
  """Returns the FLOPs of the matrix products of a traced function."""
  # Without unused results: a second pass only provides attention maps.
  used, _ = partial_eval.dce_jaxpr(jaxpr, [True] * len(jaxpr.outvars))
  return _count(used)


def _count(jaxpr: Any) -> float:
  total = 0.0
  for equation in jaxpr.eqns:
    name = equation.primitive.name
    inner = [_count(each) for each in _inner_jaxprs(equation.params)]
    if name == "dot_general":
      (contracted, _), _ = equation.params["dimension_numbers"]
      left = equation.invars[0].aval.shape
      multiplications = math.prod(left[axis] for axis in contracted)
      total += 2.0 * multiplications * math.prod(equation.outvars[0].aval.shape)
    elif name == "cond":
      total += max(inner, default=0.0)
    elif name == "scan":
      total += equation.params["length"] * sum(inner)
    elif "pmap" in name:
      total += equation.params["axis_size"] * sum(inner)
    else:
      total += sum(inner)
  return total


def _inner_jaxprs(parameters: dict[str, Any]) -> Iterator[Any]:
  for value in parameters.values():
    for each in value if isinstance(value, tuple | list) else [value]:
      inner = getattr(each, "jaxpr", each)
      if hasattr(inner, "eqns"):
        yield inner
