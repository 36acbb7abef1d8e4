"""What a model looks at while it is trained: pictures for the writers of its log.

Before this file: `inspector`, which reads sentences and pools maps. After it:
`jaxsyn.train`, which gives it to the validation.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from matplotlib.figure import Figure

from jaxsyn.data.loader.change import Change
from jaxsyn.data.sentence import conllu_text
from jaxsyn.data.sentence.stream import Source
from jaxsyn.data.store import integrity
from jaxsyn.inspection import pictures
from jaxsyn.inspection.inspector import TooLong, read_source, seen_by_encoder
from jaxsyn.inspection.maps import Map, MapReader
from jaxsyn.inspection.sentence import ReadSource
from jaxsyn.plan import Plan
from jaxsyn.storage import files
from jaxsyn.trained.sources import SourceReader
from jaxsyn.trained.workdir import Run

LONGEST = 512  # subwords


class Watch:
  """Draws the encoder's attention in a few sentences of a prepared split."""

  def __init__(
    self,
    plan: Plan,
    manifest: dict[str, Any],
    split: str,
    number: int,
    *,
    change: Change | None = None,
  ):
    """Reads the sentences.

    Args:
      plan: of the run.
      manifest: of its data.
      split: of which the first `number` sentences are drawn.
      number: so many.
      change: a caller's own function on every host batch.
    """
    config = plan.config
    directory = files.path_of(config.data.directory)
    reader = SourceReader(
      Run(directory, config, manifest), plan, longest=LONGEST
    )
    self._read: list[ReadSource] = []
    for given in _parsed(directory, manifest, split):
      if len(self._read) == number:
        break
      try:
        read = read_source(reader, plan.tag, given)
      except TooLong:
        continue
      if read is not None:
        self._read.append(read)
    self._maps = MapReader(plan.recipe.model, reader.features, change=change)

  def __call__(self, params: Any) -> list[tuple[str, Figure]]:
    """Name and picture of each sentence; parameters are whole on one device."""
    found = []
    for i, maps in seen_by_encoder(self._maps, params, self._read):
      if chosen := telling(maps):
        panels = pictures.panels(chosen)
        figure = pictures.matrices(panels, pictures.title(chosen))
        found.append((f"attention/{i + 1}", figure))
    return sorted(found, key=lambda one: one[0])


def telling(maps: Iterable[Map]) -> Map | None:
  """The layer of the encoder where a part first acts, or its first."""
  encoder = [m for m in maps if m.place == "encoder"]
  return next((m for m in encoder if any(m.parts)), next(iter(encoder), None))


def _parsed(
  directory: Any, manifest: dict[str, Any], split: str
) -> list[Source]:
  """The source of a prepared split, with its trees if it has any."""
  if trees := integrity.read_trees(directory, manifest, split, "source"):
    return [*trees]
  lines = integrity.read_text(directory, manifest, split, "source")
  return [conllu_text.unparsed(line) for line in lines]
