# jaxsyn/syntax/tree_damped.py
import dataclasses
from typing import ClassVar

import jax.numpy as jnp

from jaxsyn.options import option
from jaxsyn.options.bounds import Positive
from jaxsyn.syntax.heads import OnHeads, on_heads
from jaxsyn.syntax.part import Part


class _TreeDamped(Part):
  def rescore(self, score_BHQM, q_BQHK, k_BMHK, view, *, train):
    distance_BSS = view.tree_distance_BSS.astype(jnp.float32)
    damped_BHQM = score_BHQM * jnp.exp(-distance_BSS / self.spec.scale)[:, None]
    damped_BHQM = view.if_parsed(damped_BHQM, score_BHQM)
    return on_heads(self.spec.heads, damped_BHQM, score_BHQM)


@dataclasses.dataclass(frozen=True)
class TreeDamped(OnHeads):
  """Scores of the chosen heads times exp(-distance / scale)."""

  scale: Positive = option(2.0, "Where a score is 1/e of itself.", unit="edges")

  part: ClassVar[type[Part]] = _TreeDamped
  needs: ClassVar[tuple[str, ...]] = ("tree_distance",)
