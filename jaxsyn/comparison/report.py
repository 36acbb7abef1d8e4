"""Renders the tables and sentences of a report as text, Markdown and LaTeX."""

from __future__ import annotations

import re
from collections.abc import Callable

from jaxsyn.comparison import notes, tables
from jaxsyn.comparison.results import Comparison
from jaxsyn.comparison.tables import Table
from jaxsyn.scoring.metrics import heading
from jaxsyn.scoring.tables import Rows, aligned

_TEX = {
  **{c: "\\" + c for c in "&%$#_{}"},
  # After \\ these would be its star and its optional argument.
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
# Characters with a meaning in (GitHub's) Markdown, anywhere and at the beginning
# of a paragraph.
_MARKUP = re.compile(
  r"[\\`*\[\]~$]|(?<![^\W_])_|_(?![^\W_])|<(?=\S)|&(?=#?\w+;)"
)
_ENTITIES = {"<": "&lt;", "&": "&amp;"}
_BLOCK_START = re.compile(r"^(\d*)([.)#>+=-])")


def as_text(results: Comparison) -> str:
  """Returns the scores with notes and conclusions, for a terminal."""
  rows = _rows(tables.scores(results), str, control="  {}")
  parts = [aligned(rows), *notes.of_scores(results)]
  return "\n\n".join([*parts, *notes.conclusions(results)])


def markdown(results: Comparison) -> str:
  """Returns report.md: everything except figures and examples."""
  parts = [f"# {_paragraph(notes.title(results))}"]
  parts.append(_markdown_table(tables.scores(results)))
  texts = [*notes.of_scores(results), notes.BOLD, *notes.conclusions(results)]
  parts += map(_paragraph, texts)
  parts += ["## Systems", _markdown_table(tables.systems(results))]
  parts += ["## Differences", _markdown_table(tables.differences(results))]
  parts.append(_paragraph(notes.of_differences(results)))
  metric = heading(results.metrics[0])
  for split in results.splits:
    if split.buckets:
      title = f"{split.name} by length and tree, {metric}"
      parts.append(f"## {_paragraph(title)}")
      parts += map(_markdown_table, tables.by_fact(results, split).values())
  parts += ["## Runs", _markdown_table(tables.runs(results))]
  parts += [_paragraph(notes.OF_RUNS), "## Setting"]
  parts += map(_paragraph, notes.setting(results))
  return "\n\n".join(parts)


def latex(results: Comparison) -> str:
  """Returns report.tex: the table of scores, which requires booktabs.

  Published scores are gray if xcolor is loaded.
  """
  head, *body = _rows(
    tables.scores(results),
    _latex_text,
    best=r"\textbf{{{}}}",
    published=r"\textcolor{{gray}}{{{}}}",
    control=r"\quad {}",
  )
  title = notes.title(results)
  texts = [f"{title.rstrip('.')}.", *notes.of_scores(results), notes.BOLD]
  lines = [f"% {_one_line(title)}; needs \\usepackage{{booktabs}}."]
  if tables.published_tasks(results):  # without xcolor, they are black
    lines.append(r"\providecommand{\textcolor}[2]{#2}")
  lines += [
    r"\begin{table}",
    r"\centering",
    r"\begin{tabular}{l" + "r" * (len(head) - 1) + "}",
    r"\toprule",
    " & ".join(head) + r" \\",
    r"\midrule",
    *(" & ".join(row) + r" \\" for row in body),
    r"\bottomrule",
    r"\end{tabular}",
    rf"\caption{{{_latex_text(' '.join(texts))}}}",
    r"\label{tab:comparison}",
    r"\end{table}",
  ]
  return "\n".join(lines)


def _rows(table: Table, escape: Callable[[str], str], **styles: str) -> Rows:
  """Returns the rows of a table, starting with the header.

  Args:
    table: The table.
    escape: Function that escapes a text.
    **styles: Format of the text of cells with a style.
  """
  rows = [[escape(text) for text in table.head]]
  for row in table.rows:
    cells = [(styles.get(cell.style, "{}"), escape(cell.text)) for cell in row]
    rows.append([style.format(text) if text else "" for style, text in cells])
  return rows


def _markdown_table(table: Table) -> str:
  rows = _rows(table, _cell_text, best="**{}**", control="&nbsp;&nbsp;{}")
  head, *body = ["| " + " | ".join(row) + " |" for row in rows]
  numbers = len(table.head) - table.words
  rule = "|" + "---|" * table.words + "---:|" * numbers
  return "\n".join([head, rule, *body])


def _paragraph(text: str) -> str:
  """Escapes a text so that Markdown shows it unchanged outside tables."""
  return _BLOCK_START.sub(r"\1\\\2", _escape_markup(text))


def _cell_text(text: str) -> str:
  """Escapes a text so that Markdown shows it unchanged in a table cell."""
  return _escape_markup(text).replace("|", r"\|")


def _escape_markup(text: str) -> str:
  return _MARKUP.sub(
    lambda match: _ENTITIES.get(match[0], "\\" + match[0]), _one_line(text)
  )


def _latex_text(text: str) -> str:
  return "".join(_TEX.get(letter, letter) for letter in _one_line(text))


def _one_line(text: str) -> str:
  """Returns a text on one line, without control characters."""
  return " ".join(re.sub(r"[\x00-\x08\x0e-\x1b\x7f]", "", text).split())
