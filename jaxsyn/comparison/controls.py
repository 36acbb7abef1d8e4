"""Which systems are controls of which: what a claim about trees is held to.

A control is the same system on trees that say nothing of the text, with "parent =
previous word" or with random parents (`jaxsyn.data.sentence.controls`): its config
differs in config.data.tree alone.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from jaxsyn.config import Config
from jaxsyn.data.sentence.controls import Parsed


def control_of(system: str, configs: Mapping[str, Config]) -> str:
  """The first system whose control this is; "" for others.

  Args:
    system: its name.
    configs: of all systems that are compared, by name.
  """
  if not configs[system].data.tree.control:
    return ""
  own = _on_parses(configs[system])
  others = (
    name
    for name, config in configs.items()
    if not config.data.tree.replaces and _on_parses(config) == own
  )
  return next(others, "")


def controls(system: str, configs: Mapping[str, Config]) -> tuple[str, ...]:
  """The controls of a system; arguments as of `control_of`."""
  return tuple(name for name in configs if control_of(name, configs) == system)


def pairs(
  configs: Mapping[str, Config], baseline: str
) -> list[tuple[str, str]]:
  """Every system with the baseline, and with its own controls."""
  others = [(system, baseline) for system in configs if system != baseline]
  return others + [
    (system, control)
    for system in configs
    for control in controls(system, configs)
    if baseline not in (system, control)
  ]


def _on_parses(config: Config) -> Config:
  """What a control has in common with what it controls."""
  data = dataclasses.replace(config.data, tree=Parsed())
  return dataclasses.replace(config, system="", seed=0, data=data)
