"""The section of a config that selects attention modifiers by stack."""

from __future__ import annotations

import dataclasses

from jaxsyn.options import NamedSpecs, choices
from jaxsyn.syntax import MODIFIERS, ModifierSpec


@dataclasses.dataclass(frozen=True)
class Placement:
  """Attention modifiers of each stack."""

  encoder: NamedSpecs[ModifierSpec] = choices(
    MODIFIERS, "Modifiers of the encoder's self-attention."
  )
  decoder: NamedSpecs[ModifierSpec] = choices(
    MODIFIERS, "Modifiers of the decoder's self-attention."
  )
  cross: NamedSpecs[ModifierSpec] = choices(
    MODIFIERS, "Modifiers of the cross-attention."
  )

  def modifiers_in(self, place: str) -> NamedSpecs[ModifierSpec]:
    """Returns (name, spec) of the modifiers of a stack, in table order."""
    return getattr(self, place)

  def modifiers_at_embeddings(self, place: str) -> NamedSpecs[ModifierSpec]:
    """Returns the modifiers that change the embeddings of a stack."""
    return tuple(
      (n, spec) for n, spec in self.modifiers_in(place) if spec.embeds
    )

  def shared_modifiers(self, place: str) -> NamedSpecs[ModifierSpec]:
    """Returns the modifiers whose parameters all layers of a stack share."""
    return tuple(
      (n, spec) for n, spec in self.modifiers_in(place) if spec.is_shared
    )

  def modifiers_in_layer(
    self, place: str, layer: int
  ) -> NamedSpecs[ModifierSpec]:
    """Returns the modifiers of one layer of a stack."""
    return tuple(
      (n, spec)
      for n, spec in self.modifiers_in(place)
      if not spec.embeds and spec.in_layer(layer)
    )
