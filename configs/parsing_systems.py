"""Systems that use parse trees in training but not in translation.

The table in `configs/systems.py` includes them.
"""

from __future__ import annotations

from ml_collections import ConfigDict

from jaxsyn.syntax import MODIFIERS
from jaxsyn.training.losses import LOSSES


def multitask(config: ConfigDict) -> None:
  """Translation and parsing as two tasks: Currey & Heafield 2019.

  As in Bugliarello & Okazaki 2020, every source is used twice, between tags
  that select its translation or its tree without words. Translation needs no
  parser. The papers have constituency trees; brackets of dependency trees are
  our variation.
  """
  config.data.second.task = "parse"


def distilled(config: ConfigDict) -> None:
  """Two attention heads that imitate a syntax-aware teacher; our own variant.

  --config.losses.distillation.teacher=runs/pascal names that run. Translation
  needs no parser.
  """
  config.losses.distillation = LOSSES.section("distillation")


def distilled_words(config: ConfigDict) -> None:
  """Word-level distillation from a syntax-aware teacher: Kim & Rush 2016.

  The loss is computed for each subword, in addition to that of the reference.
  --config.losses.word_distillation.teacher=runs/pascal names the teacher, which
  reads trees. Translation needs no parser.
  """
  config.losses.word_distillation = LOSSES.section("word_distillation")


def mixed_encoder(config: ConfigDict) -> None:
  """Training on source text and on linearized trees: Currey & Heafield 2019.

  In training, every source also occurs as a linearized tree with its words.
  Translation uses the plain source and needs no parser.
  """
  config.data.second.task = "source"


def sisa(config: ConfigDict) -> None:
  """SISA: an attention head learns to parse, Bugliarello & Okazaki 2020.

  Translation needs no parser. config.data.tree="linear" or "random" gives the
  controls.
  """
  config.parts.encoder.sisa = MODIFIERS.section("sisa")
  config.losses.source_heads = LOSSES.section(
    "source_heads",
    weight=1.0,  # their parse_penalty
  )


def dbsa(config: ConfigDict) -> None:
  """DBSA: attention heads on both sides learn to parse, Deguchi et al. 2019.

  The loss has λ_dep = 0.5 for each side. Training needs trees on both sides;
  translation needs no parser.
  """
  config.prepare.parse.sides = ("source", "target")
  config.parts.encoder.dbsa = MODIFIERS.section("dbsa")
  config.parts.decoder.dbsa = MODIFIERS.section("dbsa")
  config.losses.source_heads = LOSSES.section("source_heads")
  config.losses.target_heads = LOSSES.section("target_heads")


def sync_attention(config: ConfigDict) -> None:
  """DBSA plus a loss that makes the two parses agree: Deguchi et al. 2021.

  λ_sync of WMT14 En-De; the paper has 0.1 for En-Ro and 10 for Ja-En.
  """
  dbsa(config)
  config.losses.synchronisation = LOSSES.section("synchronisation")
