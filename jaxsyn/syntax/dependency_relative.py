"""Relative positions on a dependency tree.

Omote, Tamura & Ninomiya 2019, "Dependency-Based Relative Positional Encoding
for Transformer" (RANLP 2019), section 4.
"""

from __future__ import annotations

import dataclasses
from typing import ClassVar, Literal

import jax.numpy as jnp
from jax import Array

from jaxsyn.options import option
from jaxsyn.options.bounds import Count
from jaxsyn.syntax.modifier import Modifier, SentenceFeatures
from jaxsyn.syntax.relative import Labelled, LabelledModifier


def depth_BQM(view: SentenceFeatures) -> Array:
  """Edges that a subword's word is below the query's: depth(m) - depth(q).

  Args:
    view: with word_BS and head_BW.

  Returns: integers; meaningless where there is no word.
  Source: Eq. 16, Table 1.
  """
  depth_BS = view.depth_BS
  return depth_BS[:, None, :] - depth_BS[:, :, None]


def distance_BQM(view: SentenceFeatures) -> Array:
  """Edges between two words; negative where m stands before q.

  Args:
    view: with word_BS, tree_distance_BWW and positions.

  Returns: integers; of two trees, or too far to count: ±254 or ±255.
  """
  order_QM = jnp.sign(view.position_M[None, :] - view.position_Q[:, None])
  return order_QM[None] * view.tree_distance_BSS.astype(jnp.int32)


class _DependencyRelative(LabelledModifier):
  def label_BQM(self, view: SentenceFeatures) -> Array:
    spec: DependencyRelative = self.spec
    measure = depth_BQM if spec.label == "depth" else distance_BQM
    word_BS = view.is_word_BS
    label_BQM = jnp.where(
      word_BS[:, :, None] & word_BS[:, None, :],
      self.clipped(measure(view)),
      spec.labels - 1,
    )
    return view.where_parsed(label_BQM, -1)


@dataclasses.dataclass(frozen=True)
class DependencyRelative(Labelled):
  """Relative positions with a distance in the tree as label.

  Subwords of a word have its place in the tree. A pair with EOS has a
  label of its own, the last one; the paper, of whole words, is silent on both.
  """

  clip: Count = option(
    2,
    "Maximum distance l in the tree; larger ones are clipped to it.",
    unit="edges",
  )
  label: Literal["depth", "distance"] = option(
    "depth",
    'Label of a pair of words: "depth", the clipped difference of their '
    "depths, as published, which is independent of their distance; "
    '"distance", the number of edges between them, negative if the key '
    "comes first in the sentence, clipped. The latter is ours.",
  )

  modifier: ClassVar[type[Modifier]] = _DependencyRelative

  @property
  def labels(self) -> int:
    return super().labels + 1

  @property
  def required_features(self) -> tuple[str, ...]:
    return ("head",) if self.label == "depth" else ("tree_distance",)
