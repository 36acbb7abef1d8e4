"""What a model is made from: sizes, vocabularies and parts by place.

Frozen and hashable, so that a module made from it is a static argument of jit.
`jaxsyn.plan` makes it from a config and checks it.
"""

from __future__ import annotations

import dataclasses

from jaxsyn.config import Model
from jaxsyn.syntax import Spec

Named = tuple[tuple[str, Spec], ...]


@dataclasses.dataclass(frozen=True)
class Parts:
  """(name, spec) of the parts at each place, in table order."""

  encoder: Named = ()
  decoder: Named = ()
  cross: Named = ()

  def at(self, place: str) -> Named:
    return getattr(self, place)

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
