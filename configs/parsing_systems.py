"""Systems that learn from trees but translate without them.

Part of the table in `configs/systems.py`.
"""

from __future__ import annotations

from ml_collections import ConfigDict

from jaxsyn.syntax import MODIFIERS
from jaxsyn.training.losses import LOSSES


def multitask(config: ConfigDict) -> None:
  """To translate and to parse: Currey & Heafield 2019, as re-done in B&O 2020.

  Every source is used twice, between tags that ask for its translation or for
  its tree without the words. Translating needs no parser. The papers have
  constituency trees; brackets of dependency trees are a variation of ours.
  """
  config.data.second.task = "parse"


def distilled(config: ConfigDict) -> None:
  """Two heads learn where those of a run that reads trees look. Ours.

  --config.losses.distillation.teacher=runs/pascal names that run. Translating
  needs no parser.
  """
  config.losses.distillation = LOSSES.section("distillation")


def distilled_words(config: ConfigDict) -> None:
  """It learns what a run that reads trees would write: Kim & Rush 2016.

  Subword by subword, beside the reference, where the teacher reads trees and
  this system none. --config.losses.word_distillation.teacher=runs/pascal names
  the teacher. Translating needs no parser.
  """
  config.losses.word_distillation = LOSSES.section("word_distillation")


def mixed_encoder(config: ConfigDict) -> None:
  """Plain and parsed sources to one target: Currey & Heafield 2019.

  In training every source also comes as a tree with its words; what is
  translated is the plain one, so translating needs no parser.
  """
  config.data.second.task = "source"


def sisa(config: ConfigDict) -> None:
  """One encoder head learns to parse: Bugliarello & Okazaki 2020's SISA.

  No parser is needed to translate. config.data.tree = "linear" or "random"
  makes the controls.
  """
  config.parts.encoder.sisa = MODIFIERS.section("sisa")
  config.losses.source_heads = LOSSES.section(
    "source_heads",
    weight=1.0,  # their parse_penalty
  )


def dbsa(config: ConfigDict) -> None:
  """A head of the encoder and one of the decoder learn to parse.

  Deguchi et al. 2019, λ_dep = 0.5 a side. Trees on both sides to train; no
  parser is needed to translate.
  """
  config.prepare.parse.sides = ("source", "target")
  config.parts.encoder.dbsa = MODIFIERS.section("dbsa")
  config.parts.decoder.dbsa = MODIFIERS.section("dbsa")
  config.losses.source_heads = LOSSES.section("source_heads")
  config.losses.target_heads = LOSSES.section("target_heads")


def sync_attention(config: ConfigDict) -> None:
  """DBSA whose two parses agree across the cross-attention: Deguchi et al. 2021.

  λ_sync as chosen for WMT14 En-De; 0.1 for En-Ro, 10 for Ja-En.
  """
  dbsa(config)
  config.losses.synchronisation = LOSSES.section("synchronisation")
