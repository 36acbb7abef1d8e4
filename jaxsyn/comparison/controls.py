"""Detection of controls: systems whose trees have no syntactic information.

A control differs from its system only in config.data.tree: its trees are linear
or random (`jaxsyn.data.sentence.controls`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from jaxsyn.data.sentence.controls import TREES, Parsed, TreeControl
from jaxsyn.options import flat

Configs = Mapping[str, Mapping[str, Any]]  # JSON configs by system

# Options and sections that may differ between a control and its system.
_FREE = ("system", "seed", "data.tree", *(f"data.{name}" for name in TREES))


def control_of(system: str, configs: Configs) -> str:
  """Returns the system of which a given system is a control, or "".

  Args:
    system: Name of the system.
    configs: Configs of all compared systems, by name.
  """
  if not _tree(configs[system]).control:
    return ""
  expected = _without_trees(configs[system])
  for name, config in configs.items():
    if not _tree(config).replaces and _without_trees(config) == expected:
      return name
  return ""


def controls(system: str, configs: Configs) -> tuple[str, ...]:
  """Returns the names of a system's controls, as defined by `control_of`."""
  return tuple(name for name in configs if control_of(name, configs) == system)


def pairs(configs: Configs, baseline: str) -> list[tuple[str, str]]:
  """Returns the pairs to compare: each system with baseline and controls."""
  compared = [(system, baseline) for system in configs if system != baseline]
  for system in configs:
    for control in controls(system, configs):
      if baseline not in (system, control):
        compared.append((system, control))
  return compared


def _tree(config: Mapping[str, Any]) -> type[TreeControl]:
  return TREES.get(config["data"]["tree"], Parsed)


def _without_trees(config: Mapping[str, Any]) -> dict[str, Any]:
  """Returns a system's options except those that select its trees."""
  return {
    name: list(value) if isinstance(value, tuple) else value
    for name, value in flat(config).items()
    if not any(f"{name}.".startswith(f"{free}.") for free in _FREE)
  }
