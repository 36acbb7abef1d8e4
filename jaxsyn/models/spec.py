"""What a model is made from: sizes, vocabularies and parts by place.

Frozen and hashable, so that a module made from it is a static argument of jit.
`jaxsyn.plan` makes it from a config and checks it.
"""

from __future__ import annotations

import dataclasses

from jaxsyn.config import Model
from jaxsyn.syntax import Spec, Where, WindowSpec

Named = tuple[tuple[str, Spec], ...]
Windows = tuple[tuple[str, WindowSpec], ...]


@dataclasses.dataclass(frozen=True)
class Parts:
  """(name, spec) of the parts at each place, in table order."""

  encoder: Named = ()
  decoder: Named = ()
  cross: Named = ()

  def at(self, place: str) -> Named:
    return getattr(self, place)

  def at_embeddings(self, place: str) -> Named:
    return tuple((n, spec) for n, spec in self.at(place) if spec.embeds)

  def at_layer(self, place: str, layer: int) -> Named:
    return tuple(
      (n, spec)
      for n, spec in self.at(place)
      if not spec.embeds and spec.in_layer(layer)
    )

  def all(self) -> Named:
    return self.encoder + self.decoder + self.cross

  @property
  def needs(self) -> frozenset[str]:
    """Facts that the parts read; see `jaxsyn.models.contract`."""
    return frozenset(need for _, spec in self.all() for need in spec.needs)


@dataclasses.dataclass(frozen=True)
class ModelSpec:
  model: Model
  parts: Parts
  source_vocabulary: int
  target_vocabulary: int
  source_relations: int = 0  # dependency relations of the data, numbered from 1
  target_relations: int = 0
  contexts: Windows = ()  # of a recurrent decoder, in table order

  def layers(self, place: str) -> int:
    """How many layers a place has."""
    if place == "encoder":
      return self.model.encoder_layers
    return self.model.decoder_layers

  def where(self, place: str, layer: int) -> Where:
    """What a part at a place is told; layer -1 is the embeddings."""
    model = self.model
    relations = (
      self.target_relations if place == "decoder" else self.source_relations
    )
    return Where(place, layer, model.heads, model.width, model.dtype, relations)
