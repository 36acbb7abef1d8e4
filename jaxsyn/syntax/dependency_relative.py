"""Relative position representations based on the dependency tree.

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
from jaxsyn.syntax.features import SentenceFeatures
from jaxsyn.syntax.modifier import Modifier
from jaxsyn.syntax.relative import Labelled, LabelledModifier


def depth_BQM(features: SentenceFeatures) -> Array:
  """Returns the tree depth of each key minus the tree depth of each query.

  This is Eq. 16. The difference is undefined where a subword has no word.

  Args:
    features: Features with `word_BS` and `head_BW`.
  """
  depth_BS = features.depth_BS
  return depth_BS[:, None, :] - depth_BS[:, :, None]


def distance_BQM(features: SentenceFeatures) -> Array:
  """Returns signed tree distances, negative if the key precedes the query.

  The distance is ±255 in different trees, and at most ±254 otherwise.

  Args:
    features: Features with `word_BS`, `tree_distance_BWW` and positions.
  """
  order_QM = jnp.sign(
    features.position_M[None, :] - features.position_Q[:, None]
  )
  return order_QM[None] * features.tree_distance_BSS.astype(jnp.int32)


class _DependencyRelative(LabelledModifier):
  def label_BQM(self, features: SentenceFeatures) -> Array:
    spec: DependencyRelative = self.spec
    measure = depth_BQM if spec.label == "depth" else distance_BQM
    is_word_BS = features.is_word_BS
    label_BQM = jnp.where(
      is_word_BS[:, :, None] & is_word_BS[:, None, :],
      self.clipped(measure(features)),
      spec.labels - 1,
    )
    return features.where_parsed(label_BQM, -1)


@dataclasses.dataclass(frozen=True)
class DependencyRelative(Labelled):
  """Relative position vectors for depth differences or tree distances.

  Subwords of a word share its position in the tree. Pairs with EOS share the
  last label. The paper uses words and leaves both open.
  """

  clip: Count = option(
    2,
    "Maximum distance l in the tree; larger distances are clipped.",
    unit="edges",
  )
  label: Literal["depth", "distance"] = option(
    "depth",
    'Label of a pair of words, clipped: "depth", the difference between their '
    "depths, as published, regardless of the distance between the words; "
    '"distance" (our variant), the number of edges between them, negative if '
    "the key comes before the query in the sentence.",
  )

  modifier: ClassVar[type[Modifier]] = _DependencyRelative

  @property
  def labels(self) -> int:
    return super().labels + 1

  @property
  def required_features(self) -> tuple[str, ...]:
    return ("head",) if self.label == "depth" else ("tree_distance",)
