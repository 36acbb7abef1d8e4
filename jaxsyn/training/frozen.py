"""Parameters that training does not change (config.train.freeze).

A pattern matches complete names, such as "encoder_0/attention/query/kernel". In it,
* stands for any text with slashes, and ? for one character (`fnmatch`).
"""

from __future__ import annotations

import collections
import fnmatch
import math
from collections.abc import Sequence
from typing import Any

import jax
import optax

from jaxsyn.errors import InputError
from jaxsyn.models.contract import arrays_by_name

Tree = Any
OPTION = "config.train.freeze"


def retained(patterns: Sequence[str], frozen: Tree, updated: Tree) -> Tree:
  """Merges two trees: frozen parameters from the first, rest from the second.

  Args:
    patterns: Patterns of frozen parameters.
    frozen: Tree with the frozen parameters.
    updated: Tree with the others.
  """
  if not patterns:
    return updated
  return jax.tree_util.tree_map_with_path(
    lambda path, a, b: a if _is_frozen(path, patterns) else b, frozen, updated
  )


def constant(patterns: Sequence[str], params: Tree) -> Tree:
  """Returns the parameters, with gradients stopped at the frozen ones."""
  return retained(patterns, jax.lax.stop_gradient(params), params)


def without_frozen(
  patterns: Sequence[str], optimizer: optax.GradientTransformation
) -> optax.GradientTransformation:
  """Wraps an optimizer; frozen parameters get no update and have no state."""
  if not patterns:
    return optimizer

  def kinds(params: optax.Params) -> Any:
    return jax.tree_util.tree_map_with_path(
      lambda path, _: "frozen" if _is_frozen(path, patterns) else "free", params
    )

  return optax.partition(
    {"free": optimizer, "frozen": optax.set_to_zero()}, kinds
  )


def check(patterns: Sequence[str], params: Tree) -> str:
  """Checks the name patterns of frozen parameters, and describes the matches.

  Args:
    patterns: Patterns of config.train.freeze.
    params: Parameters, or their shapes.

  Returns:
    Line for the log; "" without patterns.

  Raises:
    InputError: A pattern matches no parameter, or all parameters are frozen.
  """
  if not patterns:
    return ""
  arrays = arrays_by_name(params)
  modules = sorted({name.partition("/")[0] for name in arrays})
  for pattern in patterns:
    if not any(_matches(name, [pattern]) for name in arrays):
      raise InputError(
        f"{OPTION}: {pattern!r} matches no parameter. Names start with "
        f"{', '.join(modules)}; * is any text."
      )
  frozen = [name for name in arrays if _matches(name, patterns)]
  if len(frozen) == len(arrays):
    raise InputError(
      f"{OPTION}={tuple(patterns)!r} matches all {len(arrays)} parameters: nothing "
      "is left to train."
    )
  frozen_size = sum(math.prod(arrays[name].shape) for name in frozen)
  size = sum(math.prod(x.shape) for x in arrays.values())
  by_module = collections.Counter(name.partition("/")[0] for name in frozen)
  counts = ", ".join(f"{name} ({n})" for name, n in by_module.items())
  return (
    f"frozen: {len(frozen)} of {len(arrays)} parameters ({frozen_size:,} of "
    f"{size:,} numbers), {counts}"
  )


def _matches(name: str, patterns: Sequence[str]) -> bool:
  return any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)


def _is_frozen(path: Any, patterns: Sequence[str]) -> bool:
  name = jax.tree_util.keystr(path, simple=True, separator="/")
  return _matches(name, patterns)
