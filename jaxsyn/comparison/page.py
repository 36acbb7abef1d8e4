"""Renders report.html: a single file with all tables and figures.

It loads no other files, so it can be mailed, archived and read offline.
The layout is in page.html.jinja.
"""

from __future__ import annotations

import base64
import dataclasses
import difflib
import json
import pathlib
import re
from typing import Any

import jinja2
from markupsafe import Markup
from matplotlib.figure import Figure

from jaxsyn.comparison import attention_samples, notes, plots, tables
from jaxsyn.comparison.results import Comparison, Example, TestSet
from jaxsyn.scoring.metrics import LIKELIHOOD, heading
from jaxsyn.scoring.selection import name_of

PIXELS_PER_POINT = 96 / 72  # of CSS
_WIDTH = re.compile(rb'<svg[^>]* width="([\d.]+)pt"')


@dataclasses.dataclass(frozen=True)
class Picture:
  """Figure on the page, with its description.

  Attributes:
    address: Data URL.
    width: Width in CSS pixels.
    text: Description for readers who cannot see it.
  """

  address: str
  width: int
  text: str


@dataclasses.dataclass(frozen=True)
class InspectedSentence:
  """A sentence with its tree and the attention of each system.

  Attributes:
    text: The sentence.
    tree: Picture of its tree, if drawn.
    systems: Name, translation and pictures of each system.
  """

  text: str
  tree: Picture | None
  systems: list[tuple[str, str, list[Picture]]]


def html(results: Comparison, folder: pathlib.Path) -> str:
  """Returns the report as an HTML page.

  Args:
    results: Results of the comparison.
    folder: Directory of the comparison, whose attention samples are shown.
  """
  environment = jinja2.Environment(
    loader=jinja2.PackageLoader("jaxsyn", "comparison"),
    autoescape=True,
    trim_blocks=True,
    lstrip_blocks=True,
    undefined=jinja2.StrictUndefined,
  )
  config = results.system(results.baseline).config
  return environment.get_template("page.html.jinja").render(
    results=results,
    tables=tables,
    notes=notes,
    several=len(results.seeds) > 1,
    first_metric=heading(results.metrics[0]),
    differences=_differences(results),
    curves=_curves(results),
    with_buckets=[split for split in results.splits if split.buckets],
    bucket_pictures=lambda split, by: _bucket_pictures(results, split, by),
    inspected=_inspected(results, folder),
    with_examples=[split for split in results.splits if split.examples],
    translations=lambda example: _translations(results, example),
    config=json.dumps(config, indent=1, ensure_ascii=False),
  )


def _differences(results: Comparison) -> list[Picture]:
  pictures = []
  for split in results.splits:
    for metric in results.metrics:
      if figure := plots.differences(results, split, metric):
        text = (
          f"Difference of each system to {results.baseline}: {heading(metric)}, "
          f"{split.name}; the table below has the numbers."
        )
        pictures.append(_render(figure, text))
  return pictures


def _curves(results: Comparison) -> list[tuple[str, list[Picture]]]:
  """Returns the learning curves as pairs (metric, pictures of systems)."""
  systems = results.leading() or [results.system(results.baseline)]
  selections = [s.config["train"]["selection"] for s in results.systems]
  curves = []
  for metric in dict.fromkeys([*selections, LIKELIHOOD]):
    pictures = []
    for system in systems:
      if figure := plots.curves(results, system, metric):
        title = plots.title_of(results, system, with_baseline=True)
        text = f"Validation {name_of(metric)} by updates: {title}."
        pictures.append(_render(figure, text))
    if pictures:
      curves.append((name_of(metric), pictures))
  return curves


def _bucket_pictures(
  results: Comparison, split: TestSet, by: str
) -> list[Picture]:
  pictures = []
  for system in results.leading():
    if figure := plots.by_fact(results, split, by=by, system=system):
      title = plots.title_of(results, system)
      text = f"{title} minus {results.baseline} by {by}, {split.name}."
      pictures.append(_render(figure, text))
  return pictures


def _inspected(
  results: Comparison, folder: pathlib.Path
) -> list[InspectedSentence]:
  """Reads the attention samples of each system's first run."""
  folders: dict[str, pathlib.Path] = {}
  for run in results.runs:
    folders.setdefault(run.system, folder / run.folder / "look")
  sentences = []
  for index in range(1, attention_samples.SENTENCES + 1):
    first: dict[str, Any] = {}
    tree, systems = None, []
    for system, _ in results.ordered():
      name = system.name
      path = folders.get(name, folder) / f"{index}.json"
      if not path.is_file():
        continue
      content = json.loads(path.read_text(encoding="utf-8"))
      if not first:
        first = content
        words = " ".join(content["words"])
        tree = _read(path.with_suffix(".tree.svg"), f"Dependency tree: {words}")
      systems.append((name, content["translation"], _pictures(path, name)))
    if systems:
      sentences.append(InspectedSentence(first["text"], tree, systems))
  return sentences


def _pictures(path: pathlib.Path, name: str) -> list[Picture]:
  """Returns a system's pictures, stored next to a sentence's JSON file."""
  texts = {
    "tree_read": f"The tree that {name} reads.",
    "tree_found": f"The parents that {name} predicts.",
    "attention": f"Attention of {name}.",
  }
  pictures = [_read(path.with_suffix(f".{n}.svg"), t) for n, t in texts.items()]
  return [picture for picture in pictures if picture]


def _translations(
  results: Comparison, example: Example
) -> list[tuple[str, str, Markup]]:
  """Returns (system, score, marked translation) for each system."""
  rows = []
  for system, _ in results.ordered():
    name = system.name
    if name in example.translations:
      text = mark_differences(example.translations[name], example.reference)
      rows.append((name, f"{example.scores[name]:.1f}", text))
  return rows


def mark_differences(hypothesis: str, reference: str) -> Markup:
  """Underlines words that the reference lacks or has in a different order.

  Without spaces in the reference, letters are compared instead of words.
  """
  space = " " if re.search(r"\s", reference) else ""
  ours = hypothesis.split() if space else list(hypothesis)
  theirs = reference.split() if space else list(reference)
  matcher = difflib.SequenceMatcher(None, ours, theirs, autojunk=False)
  parts = []
  for operation, begin, end, _, _ in matcher.get_opcodes():
    if begin < end:
      text = Markup.escape(space.join(ours[begin:end]))
      parts.append(text if operation == "equal" else Markup("<u>%s</u>") % text)
  return Markup(space).join(parts)


def _render(figure: Figure, text: str) -> Picture:
  return _picture(attention_samples.as_svg(figure), text)


def _read(path: pathlib.Path, text: str) -> Picture | None:
  return _picture(path.read_bytes(), text) if path.is_file() else None


def _picture(svg: bytes, text: str) -> Picture:
  """Converts an SVG to an image with a data URL, so that ids cannot clash."""
  width = float(_WIDTH.findall(svg)[0]) * PIXELS_PER_POINT
  content = base64.b64encode(svg).decode("ascii")
  return Picture(f"data:image/svg+xml;base64,{content}", round(width), text)
