"""Dependency-based self-attention (DBSA) in encoder and decoder.

Deguchi, Tamura & Ninomiya 2019, "Dependency-Based Self-Attention for
Transformer NMT" (RANLP 2019); as the base of synchronous syntactic attention,
Deguchi, Tamura & Ninomiya 2021, section 3.
"""

from __future__ import annotations

import dataclasses
from typing import ClassVar, Literal

import jax.numpy as jnp
from flax import linen as nn
from jax import Array

from jaxsyn.options import ConfigPath, option
from jaxsyn.syntax.features import SentenceFeatures
from jaxsyn.syntax.modifier import Modifier, StackShape
from jaxsyn.syntax.supervised import (
  NO_PARENT,
  Supervised,
  SupervisedModifier,
  chain_BS,
)


class _Dbsa(SupervisedModifier):
  def initializer(self) -> nn.initializers.Initializer:
    # Xavier with gain 1/√2, as in the authors' code.
    return nn.initializers.variance_scaling(
      0.5, "fan_avg", "uniform", in_axis=1, out_axis=2, batch_axis=0
    )

  @property
  def has_bias(self) -> bool:
    return self.spec.bias

  def inputs(self, q_BQHK: Array, k_BMHK: Array) -> tuple[Array, Array]:
    return q_BQHK * self.site.head_width**-0.5, k_BMHK

  def targets(self, features: SentenceFeatures) -> Array:
    return chain_BS(features)

  @property
  def _uses_next_row(self) -> bool:
    """Whether the position that reads a subword predicts the subword's parent.

    Otherwise the position before, which predicts the subword, also predicts
    its parent.
    """
    return self.site.stack == "decoder" and self.spec.rows == "input"

  def target_rows(self, target_BQ: Array) -> Array:
    if not self._uses_next_row:
      return target_BQ
    row_BQ = jnp.where(target_BQ >= 0, target_BQ + 1, NO_PARENT)
    shift = ((0, 0), (1, 0))
    return jnp.pad(row_BQ, shift, constant_values=NO_PARENT)[:, :-1]

  def by_subword(self, log_p_BQM: Array, features: SentenceFeatures) -> Array:
    if not self._uses_next_row:
      return log_p_BQM
    shift = ((0, 0), (0, 1), (0, 1))
    log_p_BQM = jnp.pad(log_p_BQM[:, 1:, 1:], shift, constant_values=-jnp.inf)
    if features.word_BS is None:
      return log_p_BQM
    # EOS has a row only if padding follows it.
    return jnp.where(features.is_word_BS[:, :, None], log_p_BQM, -jnp.inf)


@dataclasses.dataclass(frozen=True)
class Dbsa(Supervised):
  """Attention heads that learn to find parents by bilinear scores (DBSA).

  The score of query q and key k is (q U)·k / √K + u·k, with learned U and u.
  The term u·k is from the authors' code. A subword should attend to the next
  one of its word, the last one to the first of the parent word, and a root's
  last one to itself. In a decoder, a parent on the right is not visible.
  """

  bias: bool = option(
    True,
    "Whether scores have a term u·k that depends on the key alone, as in "
    "the authors' code.",
  )
  rows: Literal["output", "input"] = option(
    "output",
    'Decoder state that predicts the parent of a subword: "output", the state '
    "that predicts the subword, without having read it, as in the authors' "
    'code; "input", the next state, which has read it.',
  )

  modifier: ClassVar[type[Modifier]] = _Dbsa
  stacks: ClassVar[tuple[str, ...]] = ("encoder", "decoder")

  def check(self, at: ConfigPath, stack_shape: StackShape) -> None:
    super().check(at, stack_shape)
    if stack_shape.stack == "encoder" and self.rows != "output":
      raise (at / "rows").error(
        f"={self.rows!r}: an encoder reads what it parses; leave it at "
        "'output'."
      )
    if stack_shape.stack == "decoder" and self.gold == "always":
      raise (at / "gold").error(
        "='always': a translation has no tree before it is complete; use "
        "'training'."
      )
