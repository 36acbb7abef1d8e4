"""Default values of all options, as a ConfigDict for the command line.

`jaxsyn/config.py` and the registered choices define the options; --helpconfig
prints them. The config of a dataset calls `get_config`, changes some options
and calls `systems.apply` to select a system. Every option can be set on the
command line: --config.optimiser.learning_rate=1e-3.
"""

from __future__ import annotations

import ml_collections

from jaxsyn.config import Config
from jaxsyn.options import config_dict


def get_config() -> ml_collections.ConfigDict:
  """Returns the default config: Transformer-Tiny for a small corpus."""
  return config_dict(Config)


def data_set(name: str, source: str, target: str) -> ml_collections.ConfigDict:
  """Returns the default config for a dataset directory and a language pair."""
  config = get_config()
  config.data.update(name=name, directory=f"data/{name}")
  config.data.update(source_language=source, target_language=target)
  return config


def small_corpus(config: ml_collections.ConfigDict) -> None:
  """Sets options for a corpus of tens of thousands of pairs, in place.

  They were selected on the validation split of Multi30k; see docs/results.md.
  """
  config.batch.tokens = 2048
  config.optimiser.update(name="muon", learning_rate=1e-2)
  config.optimiser.inverse_sqrt.warmup = 100
  config.model.transformer.dropout = 0.2
  config.train.ema = 0.998  # translate with the mean of some 500 updates
