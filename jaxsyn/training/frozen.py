"""Parameters that stay as they began: config.train.freeze.

Patterns are of whole names, as in "encoder_0/attention/query/kernel"; * is
anything, slashes too, and ? one character (`fnmatch`). Before this file:
nothing. After it: `optimiser`, which keeps nothing for them, and `step`, which
makes no gradient of them.
"""

from __future__ import annotations

import difflib
import fnmatch
import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
import optax

from jaxsyn.errors import InputError
from jaxsyn.training.array_checksums import arrays_by_name

Tree = Any
OPTION = "config.train.freeze"


def retained(patterns: Sequence[str], frozen: Tree, moved: Tree) -> Tree:
  """A tree of parameters whose frozen ones are those of another.

  Args:
    patterns: of the frozen.
    frozen: the tree that has them.
    moved: the tree that has all others.
  """
  if not patterns:
    return moved
  return jax.tree_util.tree_map_with_path(
    lambda path, a, b: a if _is_frozen(path, patterns) else b, frozen, moved
  )


def constant(patterns: Sequence[str], params: Tree) -> Tree:
  """The parameters; a gradient of frozen ones is 0, and costs nothing."""
  return retained(patterns, jax.lax.stop_gradient(params), params)


def but(
  patterns: Sequence[str], rule: optax.GradientTransformation
) -> optax.GradientTransformation:
  """A rule for all parameters but the frozen; of those it keeps no state."""
  if not patterns:
    return rule

  def kinds(params: optax.Params) -> Any:
    return jax.tree_util.tree_map_with_path(
      lambda path, _: "frozen" if _is_frozen(path, patterns) else "free", params
    )

  return optax.partition({"free": rule, "frozen": optax.set_to_zero()}, kinds)


def check(patterns: Sequence[str], params: Tree) -> str:
  """What the patterns freeze, in words; "" without any.

  Args:
    patterns: config.train.freeze.
    params: of the model, or their shapes.

  Raises:
    InputError: a pattern is of no parameter, or nothing is left to train.
  """
  if not patterns:
    return ""
  names = arrays_by_name(params)
  for pattern in patterns:
    if not any(map(_matches(pattern), names)):
      raise InputError(
        f"{OPTION}: {pattern!r} is of no parameter. {_near(pattern, list(names))}"
      )
  matching = [
    name for name in names if any(_matches(p)(name) for p in patterns)
  ]
  if len(matching) == len(names):
    raise InputError(
      f"{OPTION}={tuple(patterns)!r} is of all {len(names)} parameters: nothing "
      "is left to train."
    )
  size, of = (
    sum(math.prod(names[name].shape) for name in some)
    for some in (matching, names)
  )
  return (
    f"frozen: {len(matching)} of {len(names)} parameters ({size:,} of {of:,} "
    f"numbers), {', '.join(_short(matching))}"
  )


def _matches(pattern: str) -> Callable[[str], bool]:
  return lambda name: fnmatch.fnmatchcase(name, pattern)


def _is_frozen(path: Any, patterns: Sequence[str]) -> bool:
  name = jax.tree_util.keystr(path, simple=True, separator="/")
  return any(_matches(pattern)(name) for pattern in patterns)


def _near(pattern: str, names: Sequence[str]) -> str:
  """Names, or their beginnings, that may have been meant."""
  begins = {name.partition("/")[0] for name in names}
  plain = pattern.replace("*", "")
  close = difflib.get_close_matches(plain, [*names, *begins], n=3, cutoff=0.4)
  near = f"Near it: {', '.join(close)}. " if close else ""
  return f"{near}Names begin with {', '.join(sorted(begins))}; * is anything."


def _short(names: Sequence[str]) -> list[str]:
  """Names by what they begin with, and how many do."""
  begins = [name.partition("/")[0] for name in names]
  return [f"{one} ({begins.count(one)})" for one in dict.fromkeys(begins)]
