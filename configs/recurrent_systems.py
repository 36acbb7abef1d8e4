"""Systems with a recurrent encoder and decoder.

The table in `configs/systems.py` includes them. The methods are those of Chen
et al. 2018, "Syntax-Directed Attention for Neural Machine Translation" (AAAI),
and its baselines, such as Chen et al. 2017, "Neural Machine Translation with
Source Dependency Representation" (EMNLP, cited from memory).
"""

from __future__ import annotations

from ml_collections import ConfigDict, FieldReference

from jaxsyn.syntax import MODIFIERS, WINDOWS


def _gru(config: ConfigDict, window: str, **options) -> None:
  config.model.family = "gru"
  config.optimiser.clip = 1.0  # recurrent gradients explode; as Nematus does
  config.model.gru.windows[window] = WINDOWS.section(window, **options)


def gru_global(config: ConfigDict) -> None:
  """GRU baseline, global attention: Bahdanau et al. 2015, as in Nematus."""
  _gru(config, "global")


def gru_local(config: ConfigDict) -> None:
  """Fixed-size attention window at a predicted position: Luong et al. 2015.

  The paper calls it "local-p".
  """
  _gru(config, "local")


def gru_flexible(config: ConfigDict) -> None:
  """Soft attention window around the previous position: Shu & Nakayama 2017."""
  _gru(config, "flexible")


def gru_syntax(config: ConfigDict) -> None:
  """Attention to the tree neighbors of a predicted word: Chen et al. 2018.

  The paper calls it SDAtt.
  """
  _gru(config, "syntax")


def gru_double_local(config: ConfigDict) -> None:
  """Global plus local attention: Chen et al. 2018, "+LocalAtt"."""
  gru_global(config)
  gru_local(config)


def gru_double_flexible(config: ConfigDict) -> None:
  """Global plus flexible-window attention: Chen et al. 2018, "+FlexibleAtt"."""
  gru_global(config)
  gru_flexible(config)


def gru_double_syntax(config: ConfigDict) -> None:
  """Global plus syntax-directed attention: Chen et al. 2018, "+SDAtt"."""
  gru_global(config)
  gru_syntax(config)


def gru_graph(config: ConfigDict) -> None:
  """Graph convolutions on the encoder's states: Bastings et al. 2017.

  BiRNN + GCN in the paper: two layers with gates (from memory).
  """
  gru_global(config)
  config.parts.encoder.graph_block = MODIFIERS.section(
    "graph_block", depth=2, at="after"
  )


def _size(config: ConfigDict) -> FieldReference:
  """Returns the size of a tree-neighbor encoding: 3/8 of the model width.

  It is a reference, which follows later changes of the width. The paper has
  260, with embeddings of 620.
  """
  return config.model.get_ref("width") * 3 // 8


def gru_sdr(config: ConfigDict) -> None:
  """Tree neighbors encoded in word embeddings: Chen et al. 2017, model 1."""
  gru_global(config)
  # The last `size` dimensions of the embedding hold the encoding.
  config.parts.encoder.source_dependency = MODIFIERS.section(
    "source_dependency", size=_size(config)
  )


def gru_double_sdr(config: ConfigDict) -> None:
  """Global plus tree-neighbor attention: Chen et al. 2017, model 2."""
  gru_global(config)
  _gru(config, "source_dependency", size=_size(config))
