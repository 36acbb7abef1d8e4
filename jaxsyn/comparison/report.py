"""A report in plain text: for a terminal, in Markdown, in LaTeX."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from jaxsyn.comparison import tables
from jaxsyn.comparison.results import Comparison
from jaxsyn.scoring.metrics import heading
from jaxsyn.scoring.tables import Rows, aligned

_TEX = {
  **{c: "\\" + c for c in "&%$#_{}"},
  # After a line's end \\ these would be its star and its optional argument.
  **{c: f"{{{c}}}" for c in "[]*"},
  "\\": r"\textbackslash{}",
  "~": r"\textasciitilde{}",
  "<": "$<$",
  ">": "$>$",
  "|": r"\textbar\allowbreak{}",
  "^": r"\textasciicircum{}",
  "±": r"$\pm$",
  "↓": r"$\downarrow$",
  "†": r"$^\dagger$",
  "‡": r"$^\ddagger$",
}
# What Markdown, GitHub's with its mathematics too, takes for more than text: at
# any place, and at the beginning of a paragraph.
_MARKUP = re.compile(
  r"[\\`*\[\]~$]|(?<![^\W_])_|_(?![^\W_])|<(?=\S)|&(?=#?\w+;)"
)
_ENTITIES = {"<": "&lt;", "&": "&amp;"}
_OPENING = re.compile(r"^(?:[#>+=-]|(\d+)(?=[.)]))")
_OF_SEEDS = (
  "Interval, p and the two standard deviations are over seeds and sentences "
  "(paired by seed; corrected for few seeds with Student's t of so many "
  'degrees of freedom). "p of each seed" is over sentences alone: of two '
  "trained models, not of two systems."
)
OF_RUNS = (
  "Minutes and tokens/s are of the machine with all that it did meanwhile: they "
  "tell systems apart only where nothing else ran."
)
_OF_ONE = (
  "One seed: intervals and p are over sentences alone, of two trained models "
  "and not of two systems."
)


def as_text(results: Comparison) -> str:
  """The table of scores and what it means, for a terminal."""
  rows = _scores(results, str, inset="  ", cell=lambda cell: cell.text)
  remarks = tables.notes(results, bold=False)
  return "\n\n".join([aligned(rows), *remarks, *tables.conclusions(results)])


def markdown(results: Comparison) -> str:
  """report.md: everything but the pictures."""

  def cell(cell: tables.ScoreCell) -> str:
    text = _cell_text(cell.text)
    return f"**{text}**" if cell.best else text

  rows = _scores(results, _cell_text, inset="&nbsp;&nbsp;", cell=cell)
  parts = [f"# {_plain(tables.title(results))}", _piped(rows)]
  parts += map(_plain, tables.notes(results) + tables.conclusions(results))
  parts += ["## Differences", _table(tables.differences(results))]
  parts.append(_plain(of_differences(results)))
  for split in (split for split in results.splits if split.buckets):
    metric = heading(results.metrics[0])
    title = f"{split.name} by length and tree, {metric}"
    parts.append(f"## {_plain(title)}")
    parts += map(_table, tables.by_fact(results, split).values())
  parts += ["## Every run", _table(tables.every_run(results)), _plain(OF_RUNS)]
  parts += ["## What was run", *map(_plain, tables.setting(results))]
  return "\n\n".join(parts)


def of_differences(results: Comparison) -> str:
  """How to read the table of differences."""
  return _OF_SEEDS if len(results.seeds) > 1 else _OF_ONE


def latex(results: Comparison) -> str:
  """report.tex: the table of scores, to be read with booktabs alone.

  What papers published is grey where xcolor is loaded.
  """

  def cell(cell: tables.ScoreCell) -> str:
    text = _escaped(cell.text)
    if cell.best:
      return rf"\textbf{{{text}}}"
    return rf"\textcolor{{gray}}{{{text}}}" if cell.published and text else text

  rows = _scores(results, _escaped, inset=r"\quad ", cell=cell)
  head, *body = (" & ".join(row) + r" \\" for row in rows)
  grey = any(system.published for system in results.systems)
  caption = [f"{tables.title(results).rstrip('.')}.", *tables.notes(results)]
  lines = [
    f"% {_line(tables.title(results))}; needs \\usepackage{{booktabs}}.",
    # Where xcolor is not loaded, what would be grey is black.
    *([r"\providecommand{\textcolor}[2]{#2}"] if grey else []),
    r"\begin{table}",
    r"\centering",
    r"\begin{tabular}{l" + "r" * (len(rows[0]) - 1) + "}",
    r"\toprule",
    head,
    r"\midrule",
    *body,
    r"\bottomrule",
    r"\end{tabular}",
    r"\caption{" + _escaped(" ".join(caption)) + "}",
    r"\label{tab:comparison}",
    r"\end{table}",
  ]
  return "\n".join(lines)


def _scores(
  results: Comparison,
  write: Callable[[str], str],
  *,
  inset: str,
  cell: Callable[[tables.ScoreCell], str],
) -> Rows:
  """The table of scores in the notation of `write`; controls are set in."""
  rows = [[*map(write, tables.head(results))]]
  for line in tables.lines(results):
    name = inset * line.inset + write(line.system)
    rows.append([name, *map(cell, line.cells)])
  return rows


def _table(rows: Rows) -> str:
  """A Markdown table of plain text."""
  return _piped([[_cell_text(text) for text in row] for row in rows])


def _piped(rows: Sequence[Sequence[str]]) -> str:
  """A Markdown table of what is escaped; columns but the first to the right."""
  lines = ["| " + " | ".join(row) + " |" for row in rows]
  rule = "|---|" + "---:|" * (len(rows[0]) - 1)
  return "\n".join([lines[0], rule, *lines[1:]])


def _plain(text: str) -> str:
  """A paragraph or heading that Markdown shows as it is."""
  return _OPENING.sub(
    lambda m: f"{m[0]}\\" if m[1] else f"\\{m[0]}", _unmarked(text)
  )


def _cell_text(text: str) -> str:
  """The same in a table, whose cells end with bars and begin no block."""
  return _unmarked(text).replace("|", r"\|")


def _unmarked(text: str) -> str:
  return _MARKUP.sub(
    lambda match: _ENTITIES.get(match[0], "\\" + match[0]), _line(text)
  )


def _escaped(text: str) -> str:
  """Text as LaTeX prints it."""
  return "".join(_TEX.get(character, character) for character in _line(text))


def _line(text: str) -> str:
  """On one line, without control characters."""
  return " ".join(re.sub(r"[\x00-\x08\x0e-\x1b\x7f]", "", text).split())
