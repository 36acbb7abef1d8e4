"""The systems of the recurrent family: one small function each.

Part of the table in configs/systems.py. Chen et al. 2018, "Syntax-Directed
Attention for Neural Machine Translation" (AAAI), and what it compares with;
among that Chen et al. 2017, "Neural Machine Translation with Source Dependency
Representation" (EMNLP), recalled.
"""

from __future__ import annotations

from typing import TypeAlias

import ml_collections

from jaxsyn.syntax import PARTS, WINDOWS

Config: TypeAlias = ml_collections.ConfigDict


def _gru(config: Config, window: str, **options) -> None:
  config.model.family = "gru"
  config.optimiser.clip = 1.0  # recurrent gradients explode; as Nematus does
  config.model.gru.windows[window] = WINDOWS.section(window, **options)


def gru_global(config: Config) -> None:
  """The recurrent baseline: Bahdanau et al. 2015, as in Nematus."""
  _gru(config, "global")


def gru_local(config: Config) -> None:
  """A fixed window around a predicted position: Luong et al. 2015, local-p."""
  _gru(config, "local")


def gru_flexible(config: Config) -> None:
  """A window whose width each step chooses: Shu & Nakayama 2017."""
  _gru(config, "flexible")


def gru_syntax(config: Config) -> None:
  """Near in the tree of a predicted word: Chen et al. 2018, SDAtt."""
  _gru(config, "syntax")


def gru_double_local(config: Config) -> None:
  """A global context and a local one: Chen et al. 2018, "+LocalAtt"."""
  gru_global(config)
  gru_local(config)


def gru_double_flexible(config: Config) -> None:
  """A global context and a flexible one: Chen et al. 2018, "+FlexibleAtt"."""
  gru_global(config)
  gru_flexible(config)


def gru_double_syntax(config: Config) -> None:
  """A global context and a syntax-directed one: Chen et al. 2018, "+SDAtt"."""
  gru_global(config)
  gru_syntax(config)


def _size(config: Config) -> ml_collections.FieldReference:
  """Of V; follows a width that is set later, unless it is set itself.

  The paper has 260 beside embeddings of 620.
  """
  return config.model.get_ref("width") * 3 // 8


def gru_sdr(config: Config) -> None:
  """Relatives of a word within its embedding: Chen et al. 2017, model 1."""
  gru_global(config)
  # Here `size` dimensions of the embedding become V, the last ones.
  config.parts.encoder.source_dependency = PARTS.section(
    "source_dependency", size=_size(config)
  )


def gru_double_sdr(config: Config) -> None:
  """A second context, of the relatives alone: Chen et al. 2017, model 2."""
  gru_global(config)
  _gru(config, "source_dependency", size=_size(config))
