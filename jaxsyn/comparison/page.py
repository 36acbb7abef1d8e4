"""Renders report.html: a single file with all tables and figures.

It loads no other files, so it can be mailed, archived and read offline.
The layout is in page.html.jinja.
"""

from __future__ import annotations

import base64
import difflib
import itertools
import json
import pathlib
import re
from typing import NamedTuple

import jinja2
from markupsafe import Markup
from matplotlib.figure import Figure

from jaxsyn.comparison import attention_samples, notes, plots, tables
from jaxsyn.comparison.results import Comparison, TestSet
from jaxsyn.scoring.metrics import LIKELIHOOD, heading
from jaxsyn.scoring.selection import name_of

PIXELS_PER_POINT = 96 / 72  # of CSS
_WIDTH = re.compile(rb'<svg[^>]* width="([\d.]+)pt"')


class Picture(NamedTuple):
  """Figure on the page: data URL, width in CSS pixels, description."""

  address: str
  width: int
  text: str


class InspectedSentence(NamedTuple):
  """A sentence with its tree and the attention of each system.

  Attributes:
    text: The sentence.
    tree: Picture of its tree; empty if it was not drawn.
    systems: Name, translation and pictures of each system.
  """

  text: str
  tree: list[Picture]
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
    bucket_pictures=_bucket_pictures,
    inspected=_inspected(results, folder),
    with_examples=[split for split in results.splits if split.examples],
    names=[system.name for system, _ in results.ordered()],
    mark_differences=mark_differences,
    config=json.dumps(config, indent=1, ensure_ascii=False),
  )


def _differences(results: Comparison) -> list[Picture]:
  pictures = []
  for split, metric in itertools.product(results.splits, results.metrics):
    text = (
      f"Difference of each system to {results.baseline}: {heading(metric)}, "
      f"{split.name}; the table below has the numbers."
    )
    pictures += _render(plots.differences(results, split, metric), text)
  return pictures


def _curves(results: Comparison) -> list[tuple[str, list[Picture]]]:
  """Returns the learning curves as pairs (metric, pictures of systems)."""
  systems = results.leading() or [results.system(results.baseline)]
  selections = [s.config["train"]["selection"] for s in results.systems]
  curves = []
  for metric in dict.fromkeys([*selections, LIKELIHOOD]):
    pictures = []
    for system in systems:
      title = plots.title_of(results, system, with_baseline=True)
      text = f"Validation {name_of(metric)} by updates: {title}."
      pictures += _render(plots.curves(results, system, metric), text)
    if pictures:
      curves.append((name_of(metric), pictures))
  return curves


def _bucket_pictures(
  results: Comparison, split: TestSet, by: str
) -> list[Picture]:
  pictures = []
  for system in results.leading():
    title = plots.title_of(results, system)
    text = f"{title} minus {results.baseline} by {by}, {split.name}."
    figure = plots.by_fact(results, split, by=by, system=system)
    pictures += _render(figure, text)
  return pictures


def _inspected(
  results: Comparison, folder: pathlib.Path
) -> list[InspectedSentence]:
  """Reads the attention samples of each system's first run."""
  folders = {
    run.system: folder / run.folder / "look" for run in reversed(results.runs)
  }
  sentences = []
  for index in range(1, attention_samples.SENTENCES + 1):
    text, tree = "", list[Picture]()
    systems: list[tuple[str, str, list[Picture]]] = []
    for system, _ in results.ordered():
      name = system.name
      path = folders.get(name, folder) / f"{index}.json"
      if not path.is_file():
        continue
      content = json.loads(path.read_text(encoding="utf-8"))
      if not systems:
        text, words = content["text"], " ".join(content["words"])
        tree = _read(path, "tree", f"Dependency tree: {words}")
      pictures = _read(path, "tree_read", f"The tree that {name} reads.")
      pictures += _read(
        path, "tree_found", f"The parents that {name} predicts."
      )
      pictures += _read(path, "attention", f"Attention of {name}.")
      systems.append((name, content["translation"], pictures))
    if systems:
      sentences.append(InspectedSentence(text, tree, systems))
  return sentences


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


def _render(figure: Figure | None, text: str) -> list[Picture]:
  """Converts a figure to a list with one picture; [] for None."""
  return [_picture(attention_samples.as_svg(figure), text)] if figure else []


def _read(path: pathlib.Path, kind: str, text: str) -> list[Picture]:
  """Returns a list with the SVG beside a sentence's JSON; [] if missing."""
  path = path.with_suffix(f".{kind}.svg")
  return [_picture(path.read_bytes(), text)] if path.is_file() else []


def _picture(svg: bytes, text: str) -> Picture:
  """Converts an SVG to a data-URL image, so that element ids cannot clash."""
  width = float(_WIDTH.findall(svg)[0]) * PIXELS_PER_POINT
  content = base64.b64encode(svg).decode("ascii")
  return Picture(f"data:image/svg+xml;base64,{content}", round(width), text)
