"""Which systems are controls of which: what a claim about trees is held to.

A control is the same system on trees that say nothing of the text, with "parent =
previous word" or with random parents (`jaxsyn.data.sentence.controls`): its config
differs in config.data.tree alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from jaxsyn.data.sentence.controls import TREES, Parsed, TreeControl
from jaxsyn.options import flat

Configs = Mapping[str, Mapping[str, Any]]  # of JSON, by system

# What may differ between a control and its system: names, also of sections.
_FREE = ("system", "seed", *(f"data.{name}" for name in ("tree", *TREES)))


def control_of(system: str, configs: Configs) -> str:
  """The first system whose control this is; "" for others.

  Args:
    system: its name.
    configs: of all systems that are compared, by name.
  """
  if not _tree(configs[system]).control:
    return ""
  untreed = _but_trees(configs[system])
  candidates = (
    name
    for name, config in configs.items()
    if not _tree(config).replaces and _but_trees(config) == untreed
  )
  return next(candidates, "")


def controls(system: str, configs: Configs) -> tuple[str, ...]:
  """The controls of a system; arguments as of `control_of`."""
  return tuple(name for name in configs if control_of(name, configs) == system)


def pairs(configs: Configs, baseline: str) -> list[tuple[str, str]]:
  """Every system with the baseline, and with its own controls."""
  system_pairs = [
    (system, baseline) for system in configs if system != baseline
  ]
  return system_pairs + [
    (system, control)
    for system in configs
    for control in controls(system, configs)
    if baseline not in (system, control)
  ]


def _tree(config: Mapping[str, Any]) -> type[TreeControl]:
  return TREES.get(config["data"]["tree"], Parsed)


def _but_trees(config: Mapping[str, Any]) -> dict[str, Any]:
  """What a control has in common with what it controls."""
  return {
    name: list(value) if isinstance(value, tuple) else value
    for name, value in flat(config).items()
    if not any(f"{name}.".startswith(f"{free}.") for free in _FREE)
  }
