"""Losses for parsing heads, and for agreement of source and target parses.

They read what supervised modifiers publish (`jaxsyn.syntax.supervised`): for
each subword, a distribution over the subwords of its side, and the target: the
subword that it should attend to.
"""

from __future__ import annotations

import dataclasses
from typing import ClassVar, Literal

import jax
import jax.numpy as jnp
from jax import Array

from jaxsyn.models.contract import sentence_features
from jaxsyn.models.spec import ModelSpec
from jaxsyn.options import ConfigPath, option
from jaxsyn.options.bounds import Amount, Layer, Positive
from jaxsyn.syntax.features import gather_words
from jaxsyn.syntax.maps import Address, Maps, Published
from jaxsyn.syntax.supervised import Supervised
from jaxsyn.training.attention_options import LayerLoss
from jaxsyn.training.objective import (
  AuxiliaryMetrics,
  Batch,
  Loss,
  Ratio,
  real_targets,
)

SIDES = {"encoder": "source", "decoder": "target"}


def parses(maps: Maps, stack: str) -> tuple[Published, ...]:
  """Returns log distributions over parents that attention heads predict.

  The lowest layer comes first.
  """
  return maps.find(stack=stack, kind="log_parse_BQM")


def _check_parser(at: ConfigPath, spec: ModelSpec, stack: str) -> None:
  """Raises InputError unless an attention head of the stack learns to parse."""
  if not any(
    isinstance(m, Supervised) for _, m in spec.modifiers.modifiers_in(stack)
  ):
    raise at.error(
      f": no head of the {stack} learns to parse; add a part that does to "
      f"config.parts.{stack}: dbsa"
      f"{', or sisa' if stack == 'encoder' else ''}."
    )


@dataclasses.dataclass(frozen=True)
class _Heads(Loss):
  """Mean cross-entropy of attention heads that learn to find parents.

  The mean is over the subwords whose target is not masked. The cross-entropy is
  -log of the attention weight at the target, the subword that the head should
  attend to. Several parsing layers or modifiers have the same weight.
  """

  weight: Amount = option(
    0.5, "Weight λ_dep of the mean parsing loss in the training objective."
  )

  stack: ClassVar[str]

  def check(self, at: ConfigPath, spec: ModelSpec) -> None:
    _check_parser(at, spec, self.stack)

  def of_rows(self, logits_BTV: Array, maps: Maps, batch: Batch) -> Ratio:
    sum_B = count_B = jnp.zeros(())
    for parse in parses(maps, self.stack):
      log_p_BQM = parse.value
      address = dataclasses.replace(parse.address, kind="parent_BQ")
      parent_BQ = maps.at(address)
      is_parent_BQM = jnp.arange(log_p_BQM.shape[2]) == parent_BQ[:, :, None]
      log_p_BQ = jnp.sum(jnp.where(is_parent_BQM, log_p_BQM, 0.0), axis=2)
      # A target that the head cannot see does not count.
      scored_BQ = (parent_BQ >= 0) & jnp.isfinite(log_p_BQ)
      sum_B -= jnp.sum(jnp.where(scored_BQ, log_p_BQ, 0.0), axis=1)
      count_B += jnp.sum(scored_BQ.astype(jnp.float32), axis=1)
    return sum_B, count_B

  def measure(self, maps: Maps, batch: Batch) -> AuxiliaryMetrics:
    """Returns the UAS, the fraction of words with a correctly predicted parent.

    The trees are those of training, including controls (config.data.tree). The
    parse is that of the highest parsing layer. For the last subword of each
    word, the subword with the largest weight must belong to the parent.
    """
    side = SIDES[self.stack]
    features = sentence_features(batch, side)
    log_p_BQM = parses(maps, self.stack)[-1].value
    head_BS = features.parent_word_BS
    has_parent_BS = features.is_last_of_word_BS & (head_BS >= 0)
    predicted_BS = gather_words(features.word_BS, jnp.argmax(log_p_BQM, 2))
    right_BS = has_parent_BS & (predicted_BS == head_BS)

    def accuracy(among_BS: Array) -> Ratio:
      right = jnp.sum((right_BS & among_BS).astype(jnp.float32))
      return right, jnp.sum((has_parent_BS & among_BS).astype(jnp.float32))

    metrics = {f"uas/{side}": accuracy(has_parent_BS)}
    if self.stack == "decoder":
      is_parent_BSS = features.word_BS[:, None, :] == head_BS[:, :, None]
      visible_BS = jnp.any(is_parent_BSS & jnp.isfinite(log_p_BQM), axis=2)
      metrics[f"uas/{side}_reachable"] = accuracy(visible_BS)
    return metrics


@dataclasses.dataclass(frozen=True)
class SourceHeads(_Heads):
  """Loss that trains encoder attention heads to follow the source trees."""

  required_features: ClassVar[tuple[str, ...]] = ("source_head",)
  stack: ClassVar[str] = "encoder"


@dataclasses.dataclass(frozen=True)
class TargetHeads(_Heads):
  """Loss that trains decoder attention heads to follow the target trees."""

  full_context: bool = option(
    False,
    "Whether the loss is computed in a second decoder pass in which every "
    "position sees all others, so that parents to the right are visible (an "
    "option of Deguchi et al.). In translation, the decoder sees only previous "
    "positions in any case.",
  )

  required_features: ClassVar[tuple[str, ...]] = ("target_head",)
  stack: ClassVar[str] = "decoder"


@dataclasses.dataclass(frozen=True)
class Synchronisation(LayerLoss):
  """Squared error between the decoder's parse and the projected source parse.

  The cross-attention C (mean of its heads) maps the parse E of the encoder to
  the target, D_map = C E Cᵀ. With its rows normalized over the visible entries
  to D′, and the parse D of the decoder, the loss is

    Σ over t, q of (D′ - D)²,

  as a mean over target subwords with EOS. In long sentences, the paper's softmax
  of entries between 0 and 1 makes nearly uniform rows; see `normalise`.

  Source: Deguchi, Tamura & Ninomiya 2021, "Synchronous Syntactic Attention for
  Transformer Neural Machine Translation" (ACL-IJCNLP SRW), section 4.
  """

  weight: Amount = option(
    0.5,
    "Weight λ_sync of the mean loss in the training objective: 0.5 for WMT14 "
    "En-De, 0.1 for En-Ro and 10 for Ja-En in the paper.",
  )
  layer: Layer = option(
    -2,
    "Decoder layer whose cross-attention maps the source parse, from 0, or "
    "from the end if negative. The paper uses the last but one (-2). If the "
    "decoder has only one layer, -2 selects this layer.",
  )
  normalise: Literal["softmax", "renorm", "log"] = option(
    "softmax",
    'Normalization of the rows of the mapped parse D_map: "softmax" of '
    'D_map / temperature, as published; "renorm", division by the row\'s '
    'sum; "log", softmax of log D_map / temperature. The last two are '
    "sharper.",
  )
  temperature: Positive = option(
    1.0,
    "Softmax temperature of the mapped parse; values below 1 make it sharper. "
    'Not used with normalise="renorm".',
  )
  alignment: Literal["output", "input"] = option(
    "output",
    "Decoder state whose cross-attention is the alignment of a subword: "
    '"output", the state that predicts it; "input", the next state, which has '
    'read it, for rows="input" of `dbsa`.',
  )

  stack: ClassVar[str] = "cross"

  def check(self, at: ConfigPath, spec: ModelSpec) -> None:
    for stack in SIDES:
      _check_parser(at, spec, stack)
    super().check(at, spec)
    if self.normalise == "renorm" and self.temperature != 1:
      raise (at / "temperature").error(
        f"={self.temperature} does nothing with normalise='renorm'; take 'log'."
      )

  def of_rows(self, logits_BTV: Array, maps: Maps, batch: Batch) -> Ratio:
    source_BSS, target_BTT = (parses(maps, s)[-1].value for s in SIDES)
    cross_BHTS = maps.at(Address("cross", self.layer, "", "weight_BHQM"))
    cross_BTS = jnp.mean(cross_BHTS, axis=1)
    real_BT = real_targets(batch)
    if self.alignment == "input":
      shift = ((0, 0), (0, 1), (0, 0))
      cross_BTS = jnp.pad(cross_BTS[:, 1:], shift)
    visible_BTT = jnp.isfinite(target_BTT) & (real_BT > 0)[:, :, None]
    mapped_BTT = self.normalize(
      jnp.einsum("BTS,BSR,BUR->BTU", cross_BTS, jnp.exp(source_BSS), cross_BTS),
      visible_BTT,
    )
    decoder_BTT = jnp.where(visible_BTT, jnp.exp(target_BTT), 0.0)
    sum_B = jnp.sum((mapped_BTT - decoder_BTT) ** 2, axis=(1, 2))
    return sum_B, jnp.sum(real_BT, axis=1)

  def normalize(self, mapped_BTT: Array, visible_BTT: Array) -> Array:
    """Normalizes the rows of the projected source parse over unmasked entries.

    These sum to 1; all others become 0.
    """
    tiny = 1e-9
    if self.normalise == "renorm":
      mapped_BTT = jnp.where(visible_BTT, mapped_BTT, 0.0)
      total_BT1 = jnp.sum(mapped_BTT, axis=2, keepdims=True)
      return mapped_BTT / jnp.maximum(total_BT1, tiny)
    if self.normalise == "log":
      mapped_BTT = jnp.log(jnp.maximum(mapped_BTT, tiny))
    lowest = jnp.finfo(jnp.float32).min
    score_BTT = jnp.where(visible_BTT, mapped_BTT / self.temperature, lowest)
    return jnp.where(visible_BTT, jax.nn.softmax(score_BTT, axis=2), 0.0)
