"""Parts that write over the last dimensions of the embeddings."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, ClassVar

from jaxsyn.errors import InputError
from jaxsyn.syntax.part import Spec


@dataclasses.dataclass(frozen=True)
class LastDimensions(Spec):
  """A part of which two clash: each would take the other's dimensions.

  Attributes:
    size: dimensions taken, the last ones; 0: none.
  """

  size: int = 0

  what: ClassVar[str]  # takes them, for messages
  embeds: ClassVar[bool] = True
  replaces: ClassVar[bool] = True
  off: ClassVar[Mapping[str, Any]] = {"size": 0}

  def cells(self, layers: int, heads: int) -> set[tuple[int, int]]:
    return {(-1, -1 - i) for i in range(self.size)}  # from the last on

  def check(self, where: str, model) -> None:
    if not 0 <= self.size <= model.width:
      raise InputError(
        f"{where}.size={self.size} must be from 0 to "
        f"config.model.width={model.width}: {self.what} takes so many "
        "dimensions of the token embedding."
      )
