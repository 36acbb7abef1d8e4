"""What a model is made from: sizes, vocabularies and parts by place.

Frozen and hashable, so that a module made from it is a static argument of jit.
`jaxsyn.plan` makes it from a config and checks it. What is of one kind of
model only is its `Family`: options, checks and module, in one file; the table
is `jaxsyn.models.families`.
"""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar

from flax import linen as nn

from jaxsyn.config import Model, Places
from jaxsyn.options import At, Choice
from jaxsyn.syntax import Site, Spec, Where


@dataclasses.dataclass(frozen=True)
class Family(Choice):
  """Base of the families: what a config may say of one beyond `Model`."""

  module: ClassVar[type[nn.Module]]  # an `EncoderDecoder`
  remats: ClassVar[tuple[str, ...]] = ("none",)  # of config.train.remat
  attentions: ClassVar[tuple[str, ...]] = ("einsum",)  # config.model.attention

  def layers(self, place: str) -> int:
    """How many layers a place has: "encoder", "decoder" or "cross"."""
    return 1

  def attention_heads(self) -> int:
    """H of each layer."""
    return 1

  @property
  def reads(self) -> tuple[str, ...]:
    """Facts of the source that it reads itself, beside those of parts."""
    return ()

  def check(self, at: At, spec: ModelSpec) -> None:
    """Raises InputError where options do not fit each other or the model's.

    Args:
      at: where in the config they stand.
      spec: the whole model.
    """

  def check_part(self, at: At, place: str, part: Spec) -> None:
    """Raises InputError for a part that this family has no use for.

    Args:
      at: where in the config it stands.
      place: where it is to sit.
      part: its options.
    """


@dataclasses.dataclass(frozen=True)
class ModelSpec:
  """What a module of a family is made from; see the head of this file.

  Attributes:
    model: config.model.
    parts: config.parts.
    source_vocabulary, target_vocabulary: V of each side.
    source_relations, target_relations: dependency relations of the data,
      numbered from 1.
    source_labels, target_labels: how many labels each annotation has there.
    remat: config.train.remat.
    shown: (place, layer) of attention that publishes its weights though
      config.model.attention is "fused": it is computed as by "einsum".
  """

  model: Model
  parts: Places
  source_vocabulary: int
  target_vocabulary: int
  source_relations: int = 0
  target_relations: int = 0
  source_labels: tuple[tuple[str, int], ...] = ()
  target_labels: tuple[tuple[str, int], ...] = ()
  remat: str = "none"
  shown: tuple[tuple[str, int], ...] = ()

  @property
  def family(self) -> Any:
    """A `Family`: which, its module knows."""
    return self.model.family

  def site(self, place: str) -> Site:
    """A place with its sizes, for what is to sit there."""
    return Site(
      place,
      layers=self.family.layers(place),
      heads=self.family.attention_heads(),
      width=self.model.width,
    )

  def where(self, place: str, layer: int) -> Where:
    """What a part at a place is told; layer -1 is the embeddings."""
    relations, labels = self.source_relations, self.source_labels
    if place == "decoder":
      relations, labels = self.target_relations, self.target_labels
    return Where(
      place,
      layer,
      heads=self.family.attention_heads(),
      width=self.model.width,
      dtype=self.model.dtype,
      relations=relations,
      labels=labels,
    )
