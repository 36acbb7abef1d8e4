"""The systems of the recurrent family: one small function each.

Part of the table in configs/systems.py. Chen et al. 2018, "Syntax-Directed
Attention for Neural Machine Translation" (AAAI), and what it compares with;
among that Chen et al. 2017, "Neural Machine Translation with Source Dependency
Representation" (EMNLP), recalled.
"""

from __future__ import annotations

from typing import Any

import ml_collections

Config = ml_collections.ConfigDict


def _gru(config: Config) -> None:
  config.model.update(family="gru", encoder_layers=1, decoder_layers=1, heads=1)
  config.optimiser.clip = 1.0  # recurrent gradients explode; as Nematus does


def gru_global(config: Config) -> None:
  """The recurrent baseline: Bahdanau et al. 2015, as in Nematus."""
  _gru(config)
  config.contexts["global"] = {}


def gru_local(config: Config) -> None:
  """A fixed window around a predicted position: Luong et al. 2015, local-p."""
  _gru(config)
  config.contexts.local = dict(
    reach=10,  # D: subwords seen on each side of the position
    sigma=5.0,  # of the Gaussian around it, in subwords; D / 2
  )


def gru_flexible(config: Config) -> None:
  """A window whose width each step chooses: Shu & Nakayama 2017."""
  _gru(config)
  config.contexts.flexible = dict(
    sigma=1.5,  # in subwords
    span=0.0,  # vision span τ: cut off penalties above it when translating; 0:
    # no cut
  )


def gru_syntax(config: Config) -> None:
  """Near in the tree of a predicted word: Chen et al. 2018, SDAtt."""
  _gru(config)
  config.contexts.syntax = dict(
    edges=4,  # n: words at most so far in the tree are seen
    sigma=2.0,  # of the Gaussian of their distance, in edges; n / 2
    position="interp",  # how the predicted position reads the tree: "interp"
    # learns; "hard" is the paper to the letter; "expected" predicts none
    apply="multiply",  # "multiply" scores, as published; "add_log"
  )


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


def _source_dependency(config: Config) -> dict[str, Any]:
  return dict(
    # Of V, the vector of a word's relatives; 260 beside embeddings of 620 in
    # the paper. Follows a width that is set later, unless it is set itself.
    size=config.model.get_ref("width") * 3 // 8,
    length=10,  # parent, siblings and children taken, at most
    kernel=3,  # of them that the convolution sees at once, odd
  )


def gru_sdr(config: Config) -> None:
  """Relatives of a word within its embedding: Chen et al. 2017, model 1."""
  gru_global(config)
  # Here `size` dimensions of the embedding become V, the last ones.
  config.parts.encoder.source_dependency = _source_dependency(config)


def gru_double_sdr(config: Config) -> None:
  """A second context, of the relatives alone: Chen et al. 2017, model 2."""
  gru_global(config)
  config.contexts.source_dependency = _source_dependency(config)
