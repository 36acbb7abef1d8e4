"""Inspects sentences: draws the first few, and probes attention over all."""

from __future__ import annotations

import dataclasses
import itertools
import os
import pathlib
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import jinja2
import numpy as np

from jaxsyn.data.sentence.stream import Source
from jaxsyn.errors import InputError
from jaxsyn.inspection import arcs, pictures
from jaxsyn.inspection.inspector import (
  Inspector,
  SentenceTooLongError,
  encoder_attention,
)
from jaxsyn.inspection.maps import Map
from jaxsyn.inspection.probe import Probe
from jaxsyn.inspection.sentence import ReadSource, Sentence, to_json
from jaxsyn.session import Session
from jaxsyn.storage import files
from jaxsyn.utils import exits, progress

CHUNK = 128  # sentences in memory at a time
SKIPPED = ("empty", "too_long", "no_tree")
INDEX = "index.html"
_PAGE = """<!doctype html>
<meta charset="utf-8">
<title>{{ system }}: inspected sentences</title>
<style>body { font-family: sans-serif; margin: 2em } img { display: block }
summary { margin: 0.5em 0 }</style>
<h1>{{ system }}: inspected sentences</h1>
<p>{{ checkpoint }}. <a href="probe.json">probe.json</a></p>
{% for sentence in sentences %}
<details>
<summary>{{ sentence.index }}. {{ sentence.text }} → {{ sentence.translation }}</summary>
<p>
{% for name in sentence.names %}
<a href="{{ name }}">{{ name }}</a>
{% endfor %}
</p>
{% for name in sentence.names if not name.endswith(".json") %}
<p>{{ name }}<img loading="lazy" src="{{ name }}" alt="{{ name }}">
{% endfor %}
</details>
{% endfor %}
"""


@dataclasses.dataclass(frozen=True)
class Inspection:
  """Output folder of an inspection, and the result of its attention probe.

  Attributes:
    output: Folder of the files.
    pictures: Number of sentences with figures and JSON.
    probe: Result of the probe, and its origin. "skipped" counts lines that are
      empty or too long, and lines without a tree, which are drawn but not probed.
  """

  output: pathlib.Path
  pictures: int
  probe: dict[str, Any]


@dataclasses.dataclass(frozen=True)
class IndexEntry:
  """A sentence on the index page, with the names of its files."""

  index: int
  text: str
  translation: str
  names: list[str]


def run(
  session: Session,
  sources: Iterable[Source],
  output: str | os.PathLike[str] | None = None,
  *,
  limit: int = 20,
  layers: Sequence[int] | None = None,
) -> Inspection:
  """Draws the first sentences; compares attention with trees in all sentences.

  Args:
    session: Opened run.
    sources: Raw lines or parses.
    output: Output folder. None: "inspect" in the run directory.
    limit: Number of sentences that are drawn.
    layers: Layers of encoder and decoder that are drawn, from 0; None: all.

  Raises:
    InputError: There is no parser, no such layer, or no sentence, or the output
      is not a local folder.
  """
  family = session.plan.spec.architecture
  depth = max(family.layers("encoder"), family.layers("decoder"))
  for layer in layers or ():
    if not 0 <= layer < depth:
      raise InputError(
        f"there is no layer {layer}; they count from 0 to {depth - 1}."
      )
  folder = pathlib.Path(output or session.run.workdir / "inspect")
  exits.check_target(os.fspath(output or folder), "--output", folder=True)
  folder.mkdir(parents=True, exist_ok=True)
  inspector, probe = Inspector(session), Probe()
  entries: list[IndexEntry] = []
  skipped = Counter(dict.fromkeys(SKIPPED, 0))
  with progress.bar(
    "inspecting",
    unit="sentence",
    note=lambda: session.note(inspector.maps.programs),
  ) as bar:
    readable = _readable(inspector, sources, skipped, bar)
    while chunk := list(
      itertools.islice(readable, min(CHUNK, limit - len(entries)))
    ):
      for i, seen in inspector.inspect([source for _, source in chunk]):
        entries.append(write(seen, folder, chunk[i][0], layers=layers))
        encoder = [m for m in seen.attention if m.place == "encoder"]
        _add(probe, seen.source, encoder)
        bar.advance()
    while chunk := list(itertools.islice(readable, CHUNK)):
      rest = [source for _, source in chunk]
      maps = encoder_attention(inspector.maps, session.params[0], rest)
      for i, encoder in maps:
        _add(probe, rest[i], encoder)
        bar.advance()
  if not entries and not probe.sentences:
    raise InputError(
      f"the input has no sentence to inspect ({skipped['empty']} empty lines, "
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
  if entries:
    template = jinja2.Template(_PAGE, autoescape=True, trim_blocks=True)
    page = template.render(
      result, sentences=sorted(entries, key=lambda entry: entry.index)
    )
    files.write_text(folder / INDEX, page)
  return Inspection(folder, len(entries), result)


def write(
  seen: Sentence,
  folder: pathlib.Path,
  index: int,
  *,
  layers: Sequence[int] | None = None,
) -> IndexEntry:
  """Writes JSON and figures of a sentence into an existing folder.

  Args:
    seen: The sentence.
    folder: Output folder.
    index: Line of the input, from 1; it is in the names of the files.
    layers: See `run`.
  """
  if layers is not None:
    seen = dataclasses.replace(
      seen,
      attention=tuple(m for m in seen.attention if m.layer in layers),
      weightings=tuple(m for m in seen.weightings if m.layer in layers),
    )
  prefix = f"sentence_{index:04d}"
  texts = {f"{prefix}.json": to_json(seen, index)}
  for name, tree in arcs.trees(seen).items():
    texts[f"{prefix}.{name}.svg"] = tree
  for name, text in texts.items():
    (folder / name).write_text(text, encoding="utf-8")
  names = [*texts]
  for shown in (*seen.attention, *seen.weightings):
    figure = pictures.picture(shown, f"sentence {index}")
    names.append(f"{prefix}.{_figure_name(shown)}.png")
    figure.savefig(folder / names[-1])
  return IndexEntry(index, seen.source.text, seen.translation, names)


def _figure_name(shown: Map) -> str:
  """Returns a figure's file name: modifier, kind, stack and layer."""
  words = [shown.part] if shown.part else []
  if shown.is_attention:
    words = ["attention", *words]
  elif shown.kind != "weighting":
    words.append(shown.kind)
  layer = "embeddings" if shown.layer < 0 else shown.layer
  return ".".join([*words, f"{shown.place}_{layer}"])


def _readable(
  inspector: Inspector,
  sources: Iterable[Source],
  skipped: Counter[str],
  bar: progress.Bar,
) -> Iterator[tuple[int, ReadSource]]:
  """Yields sentences with line numbers; counts empty and too long lines."""
  for line_number, line in enumerate(sources, start=1):
    try:
      source = inspector.read(line)
    except SentenceTooLongError:
      source, why = None, "too_long"
    else:
      why = "empty"
    if source is None:
      skipped[why] += 1
      bar.advance()
      continue
    skipped["no_tree"] += not source.parsed
    yield line_number, source


def _add(probe: Probe, source: ReadSource, encoder: Sequence[Map]) -> None:
  """Adds a sentence's attention to the probe if the sentence has a tree."""
  if source.parsed:
    size_W = np.bincount(source.units.unit_S)[:-1]  # without EOS
    probe.add(encoder, source.head_of_units(), size_W)
