"""Renders the tables and sentences of a report as text and Markdown."""

from __future__ import annotations

import re

from jaxsyn.comparison import notes, tables
from jaxsyn.comparison.results import Comparison
from jaxsyn.comparison.tables import Table
from jaxsyn.scoring.metrics import heading
from jaxsyn.scoring.tables import aligned

# Characters with a meaning in (GitHub's) Markdown, anywhere and at the beginning
# of a paragraph.
_MARKUP = re.compile(
  r"[\\`*\[\]~$]|(?<![^\W_])_|_(?![^\W_])|<(?=\S)|&(?=#?\w+;)"
)
_ENTITIES = {"<": "&lt;", "&": "&amp;"}
_BLOCK_START = re.compile(r"^(\d*)([.)#>+=-])")


def as_text(results: Comparison) -> str:
  """Returns the scores with notes and conclusions, for a terminal."""
  table = tables.scores(results)
  rows = [table.head]
  for name, *cells in table.rows:
    indent = "  " if name.style == "control" else ""
    rows.append([indent + name.text, *(cell.text for cell in cells)])
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


def _markdown_table(table: Table) -> str:
  styles = {"best": "**{}**", "control": "&nbsp;&nbsp;{}"}
  rows = [[_cell_text(text) for text in table.head]]
  for row in table.rows:
    texts = [(styles.get(c.style, "{}"), _cell_text(c.text)) for c in row]
    rows.append([style.format(text) if text else "" for style, text in texts])
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


def _one_line(text: str) -> str:
  """Returns a text on one line, without control characters."""
  return " ".join(re.sub(r"[\x00-\x08\x0e-\x1b\x7f]", "", text).split())
