"""Which systems are controls of which: what a claim about trees is held to."""

from __future__ import annotations

from collections.abc import Collection

# System -> its controls: the same with "parent = previous word", and with a
# random tree of the same size.
CONTROLS = {
  "pascal": ("pascal_linear_tree", "pascal_random_tree"),
  "deps_san": ("deps_san_linear_tree", "deps_san_random_tree"),
  "tree_bias": ("tree_bias_random_tree",),
  "neighbour_heads": ("neighbour_heads_random_tree",),
  "graph_block": ("graph_block_random_tree",),
}


def controls(system: str, there: Collection[str]) -> tuple[str, ...]:
  """The controls of a system that are there."""
  return tuple(name for name in CONTROLS.get(system, ()) if name in there)


def control_of(system: str) -> str:
  """The system whose control this is; "" for others."""
  systems = (name for name, others in CONTROLS.items() if system in others)
  return next(systems, "")
