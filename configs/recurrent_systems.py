"""Systems with a recurrent encoder and decoder.

Part of the table in `configs/systems.py`. The methods are those of Chen et al.
2018, "Syntax-Directed Attention for Neural Machine Translation" (AAAI), and its
baselines, such as Chen et al. 2017, "Neural Machine Translation with Source
Dependency Representation" (EMNLP), recalled.
"""

from __future__ import annotations

from ml_collections import ConfigDict, FieldReference

from jaxsyn.syntax import MODIFIERS, WINDOWS


def _gru(config: ConfigDict, window: str, **options) -> None:
  config.model.family = "gru"
  config.optimiser.clip = 1.0  # recurrent gradients explode; as Nematus does
  config.model.gru.windows[window] = WINDOWS.section(window, **options)


def gru_global(config: ConfigDict) -> None:
  """The recurrent baseline: Bahdanau et al. 2015, as in Nematus."""
  _gru(config, "global")


def gru_local(config: ConfigDict) -> None:
  """A fixed window around a predicted position: Luong et al. 2015, local-p."""
  _gru(config, "local")


def gru_flexible(config: ConfigDict) -> None:
  """A window whose width is predicted at each step: Shu & Nakayama 2017."""
  _gru(config, "flexible")


def gru_syntax(config: ConfigDict) -> None:
  """A window in the tree around a predicted word: Chen et al. 2018, SDAtt."""
  _gru(config, "syntax")


def gru_double_local(config: ConfigDict) -> None:
  """A global context and a local one: Chen et al. 2018, "+LocalAtt"."""
  gru_global(config)
  gru_local(config)


def gru_double_flexible(config: ConfigDict) -> None:
  """A global context and a flexible one: Chen et al. 2018, "+FlexibleAtt"."""
  gru_global(config)
  gru_flexible(config)


def gru_double_syntax(config: ConfigDict) -> None:
  """A global context and a syntax-directed one: Chen et al. 2018, "+SDAtt"."""
  gru_global(config)
  gru_syntax(config)


def gru_graph(config: ConfigDict) -> None:
  """Graph convolutions over the annotations: Bastings et al. 2017, BiRNN + GCN.

  Two layers with gates (recalled).
  """
  gru_global(config)
  config.parts.encoder.graph_block = MODIFIERS.section(
    "graph_block", depth=2, at="after"
  )


def _size(config: ConfigDict) -> FieldReference:
  """Returns a reference to the model width as the width of the vector V.

  The paper has 260, with embeddings of 620.
  """
  return config.model.get_ref("width") * 3 // 8


def gru_sdr(config: ConfigDict) -> None:
  """Relatives of a word within its embedding: Chen et al. 2017, model 1."""
  gru_global(config)
  # The last `size` dimensions of the embedding are V.
  config.parts.encoder.source_dependency = MODIFIERS.section(
    "source_dependency", size=_size(config)
  )


def gru_double_sdr(config: ConfigDict) -> None:
  """A second context of the relatives only: Chen et al. 2017, model 2."""
  gru_global(config)
  _gru(config, "source_dependency", size=_size(config))
