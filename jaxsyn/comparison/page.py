"""report.html: everything of a comparison on one page, in one file.

Pictures are inside it, nothing is loaded from elsewhere: it can be mailed, kept
beside a paper, read offline and printed. The layout is in page.html.jinja.
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

from jaxsyn.comparison import attention_samples, plots, report, tables
from jaxsyn.comparison.results import Comparison, Example, TestSet
from jaxsyn.scoring.metrics import LIKELIHOOD, heading
from jaxsyn.scoring.selection import name_of
from jaxsyn.scoring.tables import Rows

PIXELS = 96  # of CSS in an inch
_POINTS = re.compile(rb'<svg[^>]* width="([\d.]+)pt"')


@dataclasses.dataclass(frozen=True)
class Picture:
  """An image of a page.

  Attributes:
    address: a data URL.
    width: in CSS pixels, as it was drawn.
    text: what it shows, for who cannot see it.
  """

  address: str
  width: int
  text: str


@dataclasses.dataclass(frozen=True)
class InspectedSentence:
  """A sentence, its tree, and what each system looked at.

  Attributes:
    text: the sentence.
    tree: picture; None if it was not drawn.
    systems: name, translation, and pictures: of the tree that a control read
      or a head found, and of attention.
  """

  text: str
  tree: Picture | None
  systems: list[tuple[str, str, list[Picture]]]


def html(results: Comparison, folder: pathlib.Path) -> str:
  """The page.

  Args:
    results: of the comparison.
    folder: of it; pictures of attention are read from its runs.
  """
  loader = jinja2.PackageLoader("jaxsyn", "comparison")
  environment = jinja2.Environment(
    loader=loader,
    autoescape=True,
    trim_blocks=True,
    lstrip_blocks=True,
    undefined=jinja2.StrictUndefined,
  )
  return environment.get_template("page.html.jinja").render(
    results=results,
    tables=tables,
    several=len(results.seeds) > 1,
    first_metric=heading(results.metrics[0]),
    of_differences=report.of_differences(results),
    of_runs=report.OF_RUNS,
    differences=_differences(results),
    curves=_curves(results),
    facts=[
      (split, _facts(results, split))
      for split in results.splits
      if split.buckets
    ],
    looked=_inspected(results, folder),
    examples=[
      (split, [(e, _marked(results, e)) for e in split.examples])
      for split in results.splits
      if split.examples
    ],
    config=json.dumps(
      results.system(results.baseline).config, indent=1, ensure_ascii=False
    ),
  )


def _differences(results: Comparison) -> list[Picture]:
  return [
    _render(
      figure,
      f"Difference of each system to {results.baseline}: {heading(metric)}, "
      f"{split.name}; the figures are in the table below.",
    )
    for split in results.splits
    for metric in results.metrics
    if (figure := plots.differences(results, split, metric))
  ]


def _curves(results: Comparison) -> list[tuple[str, list[Picture]]]:
  """What selects, then the likelihood: its name, and a panel for each system."""
  systems = results.leading() or [results.system(results.baseline)]
  metrics = [*map(plots.selected_by, results.systems), LIKELIHOOD]
  curves = []
  for metric in dict.fromkeys(metrics):
    pictures = [
      _render(
        figure,
        f"Validation {name_of(metric)} by updates: "
        f"{plots.title_of(results, system, beside_baseline=True)}.",
      )
      for system in systems
      if (figure := plots.curves(results, system, metric))
    ]
    if pictures:
      curves.append((name_of(metric), pictures))
  return curves


def _facts(
  results: Comparison, split: TestSet
) -> list[tuple[str, list[Picture], Rows]]:
  """Each fact with its pictures and its table."""
  kinds = []
  for by, rows in tables.by_fact(results, split).items():
    pictures = [
      _render(
        figure,
        f"{plots.title_of(results, system)} less {results.baseline} by {by}, "
        f"{split.name}.",
      )
      for system in results.leading()
      if (figure := plots.by_fact(results, split, by=by, system=system))
    ]
    kinds.append((by, pictures, rows))
  return kinds


def _inspected(
  results: Comparison, folder: pathlib.Path
) -> list[InspectedSentence]:
  """What the first seeds' runs have drawn; a run without is passed over."""
  sentences = []
  for index in range(1, attention_samples.SENTENCES + 1):
    seen: dict[str, tuple[pathlib.Path, dict[str, Any]]] = {}
    for system, _ in results.ordered():
      for run in results.runs:
        path = folder / run.folder / "look" / f"{index}.json"
        if run.system == system.name and path.is_file():
          seen[system.name] = path, json.loads(path.read_text(encoding="utf-8"))
    if not seen:
      continue
    path, first = next(iter(seen.values()))
    words = " ".join(first["words"])
    systems = [
      (name, content["translation"], _pictures(path, name))
      for name, (path, content) in seen.items()
    ]
    tree = _read(path.with_suffix(".tree.svg"), f"Dependency tree: {words}")
    sentences.append(InspectedSentence(first["text"], tree, systems))
  return sentences


def _pictures(path: pathlib.Path, name: str) -> list[Picture]:
  """Those beside a sentence's JSON that are the system's own."""
  texts = {
    "tree_read": f"The tree that {name} read.",
    "tree_found": f"The parents that {name} finds.",
    "attention": f"Attention of {name}.",
  }
  pictures = (
    _read(path.with_suffix(f".{kind}.svg"), text)
    for kind, text in texts.items()
  )
  return [picture for picture in pictures if picture]


def _marked(
  results: Comparison, example: Example
) -> list[tuple[str, str, Markup]]:
  """System, score, and translation; what is not in the reference is marked."""
  return [
    (
      system.name,
      f"{example.scores[system.name]:.1f}",
      against(example.translations[system.name], example.reference),
    )
    for system, _ in results.ordered()
    if system.name in example.translations
  ]


def against(hypothesis: str, meant: str) -> Markup:
  """Words (in a script without blanks: letters) in the order they are meant."""
  blank = " " if re.search(r"\s", meant) else ""
  ours, theirs = (t.split() if blank else list(t) for t in (hypothesis, meant))
  matcher = difflib.SequenceMatcher(None, ours, theirs, autojunk=False)
  parts = []
  for what, begin, end, _, _ in matcher.get_opcodes():
    if begin < end:
      text = Markup.escape(blank.join(ours[begin:end]))
      parts.append(text if what == "equal" else Markup("<u>%s</u>") % text)
  return Markup(blank).join(parts)


def _render(figure: Figure, text: str) -> Picture:
  return _picture(attention_samples.as_svg(figure), text)


def _read(path: pathlib.Path, text: str) -> Picture | None:
  return _picture(path.read_bytes(), text) if path.is_file() else None


def _picture(svg: bytes, text: str) -> Picture:
  """As an image, not as part of the page: no names in it can clash."""
  points = float(_POINTS.findall(svg)[0])
  content = base64.b64encode(svg).decode("ascii")
  return Picture(
    f"data:image/svg+xml;base64,{content}", round(points / 72 * PIXELS), text
  )
