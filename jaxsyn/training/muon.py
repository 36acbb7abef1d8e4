"""Muon update of weight matrices, which are stacked by size."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import optax
from jax import Array
from optax import contrib

Stacks = dict[str, Array]  # size, such as "16x8" -> matrices of this size
# Modules whose kernel maps all axes but the last to the last: the output
# projection of attention (H, K, D) and a convolution (offset, D, P). Other
# kernels map the first axis to the rest: queries (D, H, K), GRUs (D, 3, G).
_LAST_AXIS_IS_OUTPUT = ("output", "surroundings")


def is_matrix(path: Any) -> bool:
  """Returns whether a parameter is a weight matrix of a hidden layer."""
  names = [key.key for key in path]
  return names[-1] == "kernel" and names[0] != "output"


def scale_by_muon() -> optax.GradientTransformation:
  """Returns Muon as an optax transformation, with an update RMS of 0.2.

  Matrices of one size are stacked: one by one, the 64 of Transformer-Tiny take 2.3
  times the processor time. Momentum and iterations are Jordan's.
  """
  transform = contrib.scale_by_muon(
    ns_steps=5,
    beta=0.95,
    weight_dimension_numbers=lambda stacks: jax.tree.map(
      lambda _: contrib.MuonDimensionNumbers(1, 2), stacks
    ),
  )

  def init(params: optax.Params) -> optax.OptState:
    return transform.init(_stacked(params))

  def update(
    grads: optax.Updates, state: optax.OptState, params: Any = None
  ) -> tuple[optax.Updates, optax.OptState]:
    del params
    stacks, state = transform.update(_stacked(grads), state)
    scaled = {
      name: 0.2 * max(stack.shape[1:]) ** 0.5 * stack
      for name, stack in stacks.items()
    }
    return _unstacked(scaled, grads), state

  return optax.GradientTransformation(init, update)


def _stacked(tree: Any) -> Stacks:
  matrices: dict[str, list[Array]] = {}
  for path, x in jax.tree.leaves_with_path(tree):
    matrix = x.reshape(_size(path, x))
    matrices.setdefault(_name(path, x), []).append(matrix)
  return {name: jnp.stack(same) for name, same in matrices.items()}


def _unstacked(stacks: Stacks, tree: Any) -> Any:
  """Converts stacked matrices back to a tree of parameter-shaped arrays."""
  matrices = {name: iter(stack) for name, stack in stacks.items()}
  return jax.tree_util.tree_map_with_path(
    lambda path, x: next(matrices[_name(path, x)]).reshape(x.shape), tree
  )


def _size(path: Any, x: Array) -> tuple[int, int]:
  """Returns the fan-in and fan-out of a weight, its shape as a matrix."""
  module = path[-2].key if len(path) > 1 else ""
  if module in _LAST_AXIS_IS_OUTPUT:
    return x.size // x.shape[-1], x.shape[-1]
  return x.shape[0], x.size // x.shape[0]


def _name(path: Any, x: Array) -> str:
  return "x".join(map(str, _size(path, x)))
