"""Complete config of a training run, composed of all packages' sections.

Each section is a dataclass in the package that uses it. `configs/base.py` makes
the ConfigDict of a command line from `Config`; `read_config` reads it back and
rejects unknown or invalid options by name. `jaxsyn.plan` then checks
that the options are compatible with each other.

  jaxsyn train --helpconfig[=optimiser]    prints all options
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Annotated, Any

from jaxsyn.decode.strategies import Decode
from jaxsyn.models import architectures
from jaxsyn.options import (
  ROOT,
  USER_MODE,
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


def read_config(
  config: Mapping[str, Any], mode: ValidationMode = USER_MODE
) -> Config:
  """Returns the validated `Config` of a ConfigDict or a nested dict.

  Args:
    config: ConfigDict of `get_config`, or a nested dict.
    mode: Origin of the config.

  Raises:
    InputError: An option is unknown or invalid; the message gives its dotted
      name.
  """
  if hasattr(config, "to_dict"):
    config = config.to_dict()
  return from_config(Config, config, ROOT, mode)


def with_defaults(config: Config) -> Config:
  """Returns the config with the default tokenizer for scoring filled in.

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


__all__ = ["Config", "Train", "as_dict", "read_config", "with_defaults"]
