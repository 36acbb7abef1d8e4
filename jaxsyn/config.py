"""Complete config of a system, with the sections of all packages.

Each section is a dataclass in the package that uses it. `configs/base.py` makes
the ConfigDict of a command line from `Config`; `read_config` reads it back and
rejects unknown or invalid options by name. `jaxsyn.plan` then checks
that the options are compatible with each other.

  jaxsyn train --helpconfig[=optimiser]    prints all options
"""

from __future__ import annotations

import dataclasses
import fnmatch
from collections.abc import Mapping
from typing import Annotated, Any

from jaxsyn.decode.strategies import Decode
from jaxsyn.errors import InputError
from jaxsyn.models import architectures
from jaxsyn.options import (
  CHECKPOINT_MODE,
  ROOT,
  USER_MODE,
  ConfigPath,
  RegistryKey,
  ValidationMode,
  as_dict,
  from_config,
  option,
  section,
  with_default,
)
from jaxsyn.options.bounds import Name
from jaxsyn.scoring import tokenizers
from jaxsyn.scoring.selection import SELECTIONS
from jaxsyn.training import options

# Imported for the architectures that this module registers.
assert architectures.ARCHITECTURES


@dataclasses.dataclass(frozen=True)
class Train(options.Train):
  """Options of the training run: length, validation, checkpoints and log."""

  selection: Annotated[str, RegistryKey(SELECTIONS)] = with_default(
    options.Train, "selection", "bleu"
  )


@dataclasses.dataclass(frozen=True)
class Config(options.TrainingConfig):
  """Complete config of a system: the options and sections of all packages."""

  system: Name = option(
    "transformer",
    "Name of the system: a function in configs/systems.py, given after ':' "
    "in --config.",
  )
  train: Train = section(Train)
  decode: Decode = section(Decode, resume=True)


_ANY = object()
# Removed options that recorded configs may have, by a pattern of their dotted
# names, and the value that is constant now.
REMOVED: dict[str, Any] = {
  "config.train.writers.mlflow": _ANY,  # it changed no result
  "config.train.prefetch": _ANY,  # nor did this
  "config.optimiser.muon.momentum": 0.95,
  "config.optimiser.muon.iterations": 5,
  "config.model.gru.alignment": 0,
  "config.model.gru.windows.source_dependency.length": 10,
  "config.model.gru.windows.source_dependency.kernel": 3,
  "config.parts.*.source_dependency.length": 10,
  "config.parts.*.source_dependency.kernel": 3,
  "config.parts.*.linear_bias.buckets": 32,
  "config.parts.*.linear_bias.farthest": 128,
  "config.parts.*.tree_bias.longest": 5,
  "config.parts.*.*_bias.share": True,
  "config.parts.*.tree_rotary.base": 10000.0,
  "config.parts.*.factors.sizes": [],
  "config.parts.*.factors.positions": 100,
  "config.parts.*.graph_block.nodes": "words",
  "config.parts.*.graph_block.gates": True,
  "config.parts.*.*_scaled.learn_sigma": False,
}


def read_config(
  config: Mapping[str, Any], mode: ValidationMode = USER_MODE
) -> Config:
  """Returns the validated `Config` of a ConfigDict or a nested dict.

  Args:
    config: ConfigDict of `get_config`, or a nested dict.
    mode: Origin of the config. A config in a checkpoint may have removed options.

  Raises:
    InputError: An option is unknown or invalid; the message gives its dotted
      name.
  """
  if hasattr(config, "to_dict"):
    config = config.to_dict()
  if mode is CHECKPOINT_MODE and isinstance(config, Mapping):
    config = without_removed(config)
  return from_config(Config, config, ROOT, mode)


def with_defaults(config: Config) -> Config:
  """Returns a config that names the scoring tokenizer of its target language.

  Runs record this config, so that a tokenizer installed later does not change
  their scores.

  Raises:
    InputError: There is no such tokenizer, or it is not installed.
  """
  tokenizer = tokenizers.resolved(
    config.train.tokenizer, config.data.target_language
  )
  train = dataclasses.replace(config.train, tokenizer=tokenizer)
  return dataclasses.replace(config, train=train)


def without_removed(
  config: Mapping[str, Any], path: ConfigPath = ROOT
) -> dict[str, Any]:
  """Returns a recorded config without removed options.

  Raises:
    InputError: A removed option has another value than the present constant.
  """
  kept = {}
  for name, value in config.items():
    option_path = path / name
    patterns = [p for p in REMOVED if fnmatch.fnmatch(str(option_path), p)]
    if isinstance(value, Mapping) and not patterns:
      kept[name] = without_removed(value, option_path)
    elif not patterns:
      kept[name] = value
    elif REMOVED[patterns[0]] not in (_ANY, value):
      raise option_path.error(
        f"={value!r} was recorded, but this option has been removed, and is "
        f"always {REMOVED[patterns[0]]!r} now. Use an older version of jaxsyn."
      )
  return kept


__all__ = ["Config", "InputError", "Train", "as_dict", "read_config"]
