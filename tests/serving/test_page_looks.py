"""How the page looks in a real browser: at several widths, light and dark."""

import re

import pytest
from page_under_test import (
  LINE,
  NEEDS_CHROMIUM,
  ask,
  expect,
  is_done,
  lead,
  parse_of,
)

axe = pytest.importorskip("axe_playwright_python.sync_playwright")
pytestmark = NEEDS_CHROMIUM


@pytest.mark.parametrize(
  ("width", "scheme"), [(400, "light"), (1000, "dark"), (1600, "light")]
)
def test_has_no_overflow_and_is_accessible(opened, width, scheme):
  page = opened(
    viewport={"width": width, "height": 900},
    color_scheme=scheme,
  )
  ask(page, LINE, "gru_global")
  page.get_by_text("Parents as a table").last.click()
  page.get_by_text("CoNLL-U", exact=True).click()
  for summary in page.get_by_text("n-best list").all():
    summary.click()
  wide = "document.documentElement.scrollWidth - innerWidth"
  assert page.evaluate(wide) <= 0
  result = axe.Axe().run(page).response["violations"]
  assert [(one["id"], one["nodes"][0]["html"]) for one in result] == []


def test_reports_runs_that_a_moved_arc_does_not_change(opened):
  """Said of each run by what it reads, and not of a move that is refused."""
  page = opened()
  ask(page, LINE, "gru_global")
  inputs = parse_of(page).head_W
  child = next(w for w, head in enumerate(inputs) if head > w + 1)
  lead(page, child, child + 1)
  expect(page.locator("#changed")).to_have_text("1 word has another parent")
  is_done(page)
  reads_none = page.locator(".answer", has_text="gru_global").locator(".before")
  expect(reads_none).to_have_text("This run reads no tree.")
  root = next(w for w, head in enumerate(inputs) if head == w)
  lead(page, root, next(w for w, h in enumerate(inputs) if h == root != w))
  expect(page.locator("#status")).to_contain_text("that would be a circle")
  expect(reads_none).to_be_hidden()


def test_arcs_are_drawn_clearly(opened):
  """Labels lie over all lines; what a resting mouse lies on is not chosen."""
  page = opened()
  ask(page, LINE)
  inputs = parse_of(page).head_W
  child = next(w for w, head in enumerate(inputs) if head > w + 1)
  group = page.locator("#arcs svg > g")
  kinds = group.evaluate_all("all => all.map(it => it.classList[0])")
  assert kinds == sorted(kinds) and set(kinds) == {"arc", "label"}
  page_colour = page.evaluate("getComputedStyle(document.body).backgroundColor")
  rect = page.locator("g.label rect").first
  assert rect.evaluate("it => getComputedStyle(it).fill") == page_colour
  dot = page.locator(".arc circle.dot").last.bounding_box()
  lead(page, child, child + 1)
  is_done(page)
  # An arc is drawn again where the mouse rests, as after a drag.
  x, y = dot["x"] + dot["width"] / 2, dot["y"] + dot["height"] / 2
  page.mouse.move(x, y)
  page.get_by_role("button", name="Undo").press("Enter")
  expect(page.locator("#changed")).to_have_text("")
  is_done(page)
  expect(page.locator(".arc:hover")).to_have_count(1)
  thick = "all => all.some(it => getComputedStyle(it).strokeWidth === '2.6px')"
  lines = page.locator(".arc .line")
  assert not lines.evaluate_all(thick)
  page.mouse.move(x + 1, y)
  expect(page.locator("#arcs")).not_to_have_class(re.compile("rests"))
  assert lines.evaluate_all(thick)


def test_long_and_odd_lines(opened):
  page = opened()
  for line in ("。", "😀 \u0301", "word " * 60, "a" * 1900):
    ask(page, line)
    assert page.evaluate("document.documentElement.scrollWidth") <= 1280
