"""Renders report.html: a single file with all tables and figures.

It loads no other files, so it can be mailed, archived and read offline.
The layout is in page.html.jinja.
"""

from __future__ import annotations

import base64
import difflib
import io
import itertools
import json
import pathlib
import re
from collections.abc import Iterable
from typing import Any, NamedTuple

import jinja2
import matplotlib
from markupsafe import Markup
from matplotlib.figure import Figure

from jaxsyn.comparison import measure, notes, plots, tables
from jaxsyn.comparison.results import Comparison, TestSet
from jaxsyn.scoring.metrics import LIKELIHOOD, heading
from jaxsyn.scoring.selection import name_of


class Picture(NamedTuple):
  """Figure on the page: data URL and description."""

  address: str
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
  return _render(
    plots.differences(results, split, metric)
    for split, metric in itertools.product(results.splits, results.metrics)
  )


def _curves(results: Comparison) -> list[tuple[str, list[Picture]]]:
  """Returns the learning curves as pairs (metric, pictures of systems)."""
  systems = results.leading() or [results.system(results.baseline)]
  selections = [s.config["train"]["selection"] for s in results.systems]
  curves = []
  for metric in dict.fromkeys([*selections, LIKELIHOOD]):
    figures = (plots.curves(results, system, metric) for system in systems)
    if pictures := _render(figures):
      curves.append((name_of(metric), pictures))
  return curves


def _bucket_pictures(
  results: Comparison, split: TestSet, by: str
) -> list[Picture]:
  return _render(
    plots.by_fact(results, split, by=by, system=system)
    for system in results.leading()
  )


def _inspected(
  results: Comparison, folder: pathlib.Path
) -> list[InspectedSentence]:
  """Reads the attention samples of each system's first run."""
  folders = {
    run.system: folder / run.folder / "look" for run in reversed(results.runs)
  }
  sentences = []
  for index in range(1, measure.SAMPLES + 1):
    text, tree = "", list[Picture]()
    systems: list[tuple[str, str, list[Picture]]] = []
    for system, _ in results.ordered():
      name = system.name
      path = folders.get(name, folder) / f"sentence_{index:04d}.json"
      if not path.is_file():
        continue
      content = json.loads(path.read_text(encoding="utf-8"))
      if not systems:
        text, tree = content["text"], _read(path, "tree", "The parser's tree")
      pictures = _read(path, "tree_read", f"The tree that {name} reads")
      pictures += _read(
        path,
        "tree_found",
        f"The parents that {name} predicts; relations label those of the parser",
      )
      pictures += _read(path, "attention", f"Attention of {name}")
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


def _render(figures: Iterable[Figure | None]) -> list[Picture]:
  """Converts figures to reproducible SVGs, described by title and labels.

  Text is outlined, so that it looks the same on machines with other fonts.
  """
  pictures = []
  for figure in filter(None, figures):
    content = io.BytesIO()
    with matplotlib.rc_context({"svg.hashsalt": "jaxsyn"}):
      metadata: dict[str, Any] = {"Date": None, "Creator": None}
      figure.savefig(content, format="svg", metadata=metadata)
    (axes,) = figure.axes
    words = [axes.get_title("left"), axes.get_ylabel(), axes.get_xlabel()]
    text = ", ".join(filter(None, words))
    pictures.append(_picture(content.getvalue(), ".svg", text))
  return pictures


def _read(path: pathlib.Path, kind: str, text: str) -> list[Picture]:
  """Reads the figures of one kind stored next to a sentence's JSON file."""
  found = sorted(path.parent.glob(f"{path.stem}.{kind}.*"))
  return [_picture(file.read_bytes(), file.suffix, text) for file in found]


def _picture(content: bytes, suffix: str, text: str) -> Picture:
  """Converts an image to a data URL, so that ids in SVGs cannot clash."""
  kind = {".svg": "svg+xml", ".png": "png"}[suffix]
  data = base64.b64encode(content).decode("ascii")
  return Picture(f"data:image/{kind};base64,{data}", text)
