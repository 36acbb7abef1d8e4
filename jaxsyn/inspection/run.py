"""Many sentences: pictures and JSON of the first ones, the probe of all."""

from __future__ import annotations

import dataclasses
import itertools
import os
import pathlib
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from jaxsyn import progress
from jaxsyn.data.sentence.stream import Source
from jaxsyn.errors import InputError
from jaxsyn.inspection.files import write
from jaxsyn.inspection.inspector import Inspector, SentenceTooLongError
from jaxsyn.inspection.maps import Map
from jaxsyn.inspection.probe import Probe
from jaxsyn.inspection.sentence import ReadSource
from jaxsyn.session import Session
from jaxsyn.storage import files, remote

CHUNK = 128  # sentences in memory at a time
SKIPPED = ("empty", "too_long", "no_tree")


@dataclasses.dataclass(frozen=True)
class Inspection:
  """What was inspected.

  Attributes:
    output: folder of the files.
    drawn: sentences with pictures and JSON.
    probe: of `Probe.result`, and what it is of. "skipped" are the lines that
      were passed over: without a word; too long; and (drawn, but not in the
      probe) those the parser could not read.
  """

  output: pathlib.Path
  pictures: int
  probe: dict[str, Any]


def run(
  session: Session,
  sources: Iterable[Source],
  output: str | os.PathLike[str] | None = None,
  *,
  limit: int = 20,
  layers: Sequence[int] | None = None,
) -> Inspection:
  """Writes pictures and JSON of the first sentences, and probes all of them.

  Args:
    session: an opened run.
    sources: raw lines or parses, read as they are needed.
    output: folder, made if needed; None: "inspect" in the run's folder.
    limit: so many sentences are drawn.
    layers: only these are drawn, of encoder and decoder, from 0; None: all.
      The probe is of all layers of the encoder.

  Raises:
    InputError: no parser, no such layer, or no sentence at all.
  """
  family = session.plan.spec.architecture
  depth = max(family.layers("encoder"), family.layers("decoder"))
  for layer in layers or ():
    if not 0 <= layer < depth:
      raise InputError(
        f"there is no layer {layer}; they count from 0 to {depth - 1}."
      )
  place = output or session.run.workdir / "inspect"
  if remote.is_remote(place):
    raise InputError(
      f"pictures are written to local folders, not to {place}; name one "
      "(--output)."
    )
  folder = pathlib.Path(place)
  try:
    folder.mkdir(parents=True, exist_ok=True)
  except (FileExistsError, NotADirectoryError):
    raise InputError(f"{folder} is a file; name a folder (--output).") from None
  inspector, probe, pictures = Inspector(session), Probe(), 0
  skipped = Counter(dict.fromkeys(SKIPPED, 0))
  numbered = enumerate(sources, start=1)
  with progress.bar(
    "inspecting",
    unit="sentence",
    note=lambda: session.note(inspector.maps.programs),
  ) as bar:
    while chunk := list(itertools.islice(numbered, CHUNK)):
      ready = list(_read(inspector, chunk, skipped))
      count = min(len(ready), limit - pictures)
      pictures += count
      draw, rest = ready[:count], [source for _, source in ready[count:]]
      for i, seen in inspector.see([source for _, source in draw]):
        write(seen, folder, draw[i][0], layers=layers)
        encoder = [m for m in seen.attention if m.place == "encoder"]
        _add(probe, seen.source, encoder)
        bar.advance()
      for i, encoder in inspector.see_encoder(rest):
        _add(probe, rest[i], encoder)
        bar.advance()
      bar.advance(len(chunk) - len(ready))
  if not pictures and not probe.sentences:
    raise InputError(
      f"the input holds no sentence to inspect ({skipped['empty']} empty lines, "
      f"{skipped['too_long']} too long)."
    )
  result = {
    **probe.result(),
    "system": session.run.config.system,
    "checkpoint": session.chosen,
    "tree_read_by_the_system": session.sources.tree,
    "skipped": dict(skipped),
  }
  files.write_json(folder / "probe.json", result)
  return Inspection(folder, pictures, result)


def _read(
  inspector: Inspector,
  numbered: Iterable[tuple[int, Source]],
  skipped: Counter[str],
) -> Iterator[tuple[int, ReadSource]]:
  """The sentences that can be seen; what cannot is counted."""
  for line_number, line in numbered:
    try:
      source = inspector.read(line)
    except SentenceTooLongError:
      skipped["too_long"] += 1
      continue
    if source is None:
      skipped["empty"] += 1
      continue
    skipped["no_tree"] += not source.parsed
    yield line_number, source


def _add(probe: Probe, source: ReadSource, encoder: Sequence[Map]) -> None:
  if source.parsed:
    size_W = np.bincount(source.units.unit_S)[:-1]  # without EOS
    probe.add(encoder, source.head_of_units(), size_W)
