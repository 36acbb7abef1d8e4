"""A report in plain text: for a terminal, in Markdown, in LaTeX."""

from __future__ import annotations

from collections.abc import Sequence

from jaxsyn.comparison import tables
from jaxsyn.comparison.results import Results
from jaxsyn.scoring.tables import aligned

_TEX = {
  **{c: "\\" + c for c in "&%$#_{}"},
  "\\": r"\textbackslash{}",
  "~": r"\textasciitilde{}",
  "<": "$<$",
  ">": "$>$",
  "|": r"\textbar\allowbreak{}",
  "^": r"\textasciicircum{}",
  "±": r"$\pm$",
  "†": r"$^\dagger$",
  "‡": r"$^\ddagger$",
}
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


# Where xcolor is not loaded, what would be grey is black.
_GREY = [r"\providecommand{\textcolor}[2]{#2}"]


def as_text(results: Results) -> str:
  """The table of scores and what it means, for a terminal."""
  rows = [tables.head(results)]
  for line in tables.lines(results):
    name = "  " * line.inset + line.system
    rows.append([name, *(cell.text for cell in line.cells)])
  return "\n\n".join(
    [aligned(rows), *tables.notes(results), *tables.conclusions(results)]
  )


def markdown(results: Results) -> str:
  """report.md: everything but the pictures."""
  rows = [tables.head(results)]
  for line in tables.lines(results):
    cells = [f"**{c.text}**" if c.best else c.text for c in line.cells]
    rows.append(["&nbsp;&nbsp;" * line.inset + line.system, *cells])
  parts = [f"# {tables.title(results)}", _piped(rows), *tables.notes(results)]
  parts += tables.conclusions(results)
  parts += ["## Differences", _piped(tables.differences(results))]
  parts.append(of_differences(results))
  for split in results.splits:
    metric = results.metrics[0]
    parts.append(f"## {split.name} by length and tree, {metric}")
    parts += map(_piped, tables.by_fact(results, split).values())
  parts += ["## Every run", _piped(tables.every_run(results)), OF_RUNS]
  parts += ["## What was run", *tables.setting(results)]
  return "\n\n".join(parts)


def of_differences(results: Results) -> str:
  """How to read the table of differences."""
  return _OF_SEEDS if len(results.seeds) > 1 else _OF_ONE


def latex(results: Results) -> str:
  """report.tex: the table of scores, to be read with booktabs alone.

  What papers published is grey where xcolor is loaded.
  """
  head = tables.head(results)
  body, found = [], tables.lines(results)
  for line in found:
    name = (r"\quad " if line.inset else "") + _escaped(line.system)
    body.append(" & ".join([name, *map(_cell, line.cells)]) + r" \\")
  caption = [f"{tables.title(results).rstrip('.')}.", *tables.notes(results)]
  lines = [
    f"% {tables.title(results)}; needs \\usepackage{{booktabs}}.",
    *_GREY[: any(c.published for line in found for c in line.cells)],
    r"\begin{table}",
    r"\centering",
    r"\begin{tabular}{l" + "r" * (len(head) - 1) + "}",
    r"\toprule",
    " & ".join(map(_escaped, head)) + r" \\",
    r"\midrule",
    *body,
    r"\bottomrule",
    r"\end{tabular}",
    r"\caption{" + _escaped(" ".join(caption)) + "}",
    r"\label{tab:comparison}",
    r"\end{table}",
  ]
  return "\n".join(lines)


def _cell(cell: tables.Cell) -> str:
  text = _escaped(cell.text)
  if cell.best:
    return rf"\textbf{{{text}}}"
  return rf"\textcolor{{gray}}{{{text}}}" if cell.published and text else text


def _piped(rows: Sequence[Sequence[str]]) -> str:
  """A Markdown table; columns but the first to the right."""
  lines = ["| " + " | ".join(row) + " |" for row in rows]
  rule = "|---|" + "---:|" * (len(rows[0]) - 1)
  return "\n".join([lines[0], rule, *lines[1:]])


def _escaped(text: str) -> str:
  return "".join(_TEX.get(character, character) for character in text)
