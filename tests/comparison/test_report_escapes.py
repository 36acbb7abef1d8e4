"""Names of others are text in every kind of report, and mark nothing up."""

import dataclasses
import itertools
import re

import pytest
from results_made import made

from jaxsyn.comparison import page, report

HOSTILE = (
  "<script>alert(1)</script>",
  "a|b",
  "a\\|b\\",
  "*bold* _it_ `code` ~~gone~~",
  "[link](javascript:x) ![i](x)",
  "two\nlines\n# heading",
  "&lt;b&gt; &#60;",
  "$x$ $\\frac{$",
  "]]> --> <!-- \x00",
)


def renamed(name: str):
  """A comparison whose second system, split and file have this name."""
  content = made()
  (split,) = content.splits
  first, second, _ = content.systems
  scores = (split.scores[0], dataclasses.replace(split.scores[1], system=name))
  over_seeds = dataclasses.replace(split.over_seeds[1], system=name)
  split = dataclasses.replace(
    split, name=name, scores=scores, over_seeds=(over_seeds,), over_sentences=()
  )
  return dataclasses.replace(
    content,
    systems=(first, dataclasses.replace(second, name=name, controls=())),
    splits=(split,),
    failed=(dataclasses.replace(content.failed[0], system=name, message=name),),
    config_file=name,
  )


def cells(row: str) -> list[str]:
  """Cells of a row of Markdown, as they are shown."""
  matches = re.split(r"(?<!\\)(?:\\\\)*\|", row.replace("\\\\", "\0"))[1:-1]
  shown = [re.sub(r"\\([!-/:-@\[-`{-~])", r"\1", cell) for cell in matches]
  entities = (("&lt;", "<"), ("&amp;", "&"), ("\0", "\\"))
  for entity, character in entities:
    shown = [cell.replace(entity, character) for cell in shown]
  return [cell.strip() for cell in shown]


@pytest.mark.parametrize("name", HOSTILE)
def test_markdown_shows_names_as_they_are(name):
  text = report.markdown(renamed(name))
  shown = " ".join(name.replace("\x00", "").split())
  assert not re.search(r"<[a-zA-Z/!?]", text)  # no tag begins
  rows = [cells(row) for row in text.splitlines() if row.startswith("| ")]
  assert [shown, "2", "**31.50 ± 0.50†**"] in rows
  # Of the tables of scores, differences, facts and runs.
  assert sorted({len(row) for row in rows}) == [3, 11, 14]
  headings = [line for line in text.splitlines() if line.startswith("#")]
  assert len(headings) == 5
  for mark in "*`[]~$":  # each stands behind a backslash
    plain = text.replace("**", "").replace("\\\\", "")
    assert all(re.findall(rf"(\\?){re.escape(mark)}", plain)), mark


def test_a_paragraph_begins_no_block_and_a_figure_stays():
  for text, expected in (
    ("# b", r"\# b"),
    ("1. c", r"1\. c"),
    ("> q", r"\> q"),
    ("- l", r"\- l"),
    ("p < 0.05, a_b", "p < 0.05, a_b"),
  ):
    assert report._plain(text) == expected
  assert report._cell_text("-1.00") == "-1.00"


@pytest.mark.parametrize("name", [*HOSTILE, "[2ex]up", "*", "50% {of} #1 ^~"])
def test_latex_prints_names_as_they_are(name):
  first, *below = report.latex(renamed(name)).splitlines()
  assert first.startswith("% ") and below[0] == r"\begin{table}"
  plain = re.sub(r"\\[&%$#_{}]", "", "\n".join(below))
  plain, formulas = re.subn(r"\$[^$\n]*\$", "", plain)
  assert formulas and not set("$%#~^_\x00") & set(plain)
  depth = 0
  for character in plain:
    depth += {"{": 1, "}": -1}.get(character, 0)
    assert depth >= 0
  assert depth == 0
  rows = [line for line in below if line.endswith(r"\\")]
  assert len(rows) == 3 and all(row.count(" & ") == 2 for row in rows)
  for before, after in itertools.pairwise(below):
    # What follows \\ or a rule is neither its star nor its option.
    assert not (before.endswith((r"\\", "rule")) and after[:1] in "[*")


def test_the_page_and_its_pictures_show_names_as_they_are(tmp_path):
  name = HOSTILE[0] + HOSTILE[7]
  content = page.html(renamed(name), tmp_path)
  assert "<script>alert" not in content and "&lt;script&gt;alert" in content
