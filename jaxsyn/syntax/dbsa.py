"""Dependency-based self-attention, in encoder and decoder.

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
from jaxsyn.syntax.modifier import Modifier, SentenceFeatures, StackShape
from jaxsyn.syntax.supervised import (
  NO_PARENT,
  Supervised,
  SupervisedModifier,
  chain_BS,
)


class _Dbsa(SupervisedModifier):
  def initial(self) -> nn.initializers.Initializer:
    # Xavier with gain 1/√2, as in the authors' code.
    return nn.initializers.variance_scaling(
      0.5, "fan_avg", "uniform", in_axis=1, out_axis=2, batch_axis=0
    )

  @property
  def biased(self) -> bool:
    return self.spec.bias

  def inputs(self, q_BQHK: Array, k_BMHK: Array) -> tuple[Array, Array]:
    return q_BQHK * self.site.head_width**-0.5, k_BMHK

  def parents(self, view: SentenceFeatures) -> Array:
    return chain_BS(view)

  @property
  def _late(self) -> bool:
    """Whether a subword's row is the one after that which predicts it."""
    return self.site.stack == "decoder" and self.spec.rows == "input"

  def rows_of(self, parent_BQ: Array) -> Array:
    if not self._late:
      return parent_BQ
    row_BQ = jnp.where(parent_BQ >= 0, parent_BQ + 1, NO_PARENT)
    shift = ((0, 0), (1, 0))
    return jnp.pad(row_BQ, shift, constant_values=NO_PARENT)[:, :-1]

  def subwords_of(self, log_p_BQM: Array, view: SentenceFeatures) -> Array:
    if not self._late:
      return log_p_BQM
    shift = ((0, 0), (0, 1), (0, 1))
    log_p_BQM = jnp.pad(log_p_BQM[:, 1:, 1:], shift, constant_values=-jnp.inf)
    if view.word_BS is None:
      return log_p_BQM
    # Of EOS's own row there is one only where pads follow it.
    return jnp.where(view.is_word_BS[:, :, None], log_p_BQM, -jnp.inf)


@dataclasses.dataclass(frozen=True)
class Dbsa(Supervised):
  """Parsing head with score = (q U)·k / √K + u·k; u is from the authors' code.

  A subword is to find the next one of its word, the last one the first of the
  parent word; a root's last one itself. In a decoder a parent on the right
  cannot be seen.
  """

  bias: bool = option(
    True,
    "Whether scores have a term u·k that depends on the key alone, as in "
    "the authors' code.",
  )
  rows: Literal["output", "input"] = option(
    "output",
    'Decoder state that parses a subword: "output", the state that '
    "predicts it, as in the authors' code, which has not read the "
    'subword; "input", the next state, which has.',
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
        "='always': nobody knows the tree of a translation that is still to be "
        "made; use 'training'."
      )
