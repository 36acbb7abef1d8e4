"""How the page looks in a real browser: at several widths, light and dark."""

import re

import pytest
from page_under_test import (
  LINE,
  LONG,
  NEEDS_CHROMIUM,
  OTHER,
  ask,
  expect,
  is_done,
  lead,
  parse_of,
)

axe = pytest.importorskip("axe_playwright_python.sync_playwright")
pytestmark = NEEDS_CHROMIUM


@pytest.mark.parametrize("width", [400, 1000, 1600])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_is_laid_out_and_accessible(opened, width, scheme):
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


@pytest.mark.parametrize("width", [1000, 1600])
def test_matrices_are_whole(opened, width):
  """Of two runs, beside each other where the window is wide; of 13 words."""
  page = opened(viewport={"width": width, "height": 900})
  ask(page, LONG, "gru_global")
  expect(page.locator(".maps table.map")).to_have_count(3)
  for box in page.locator(".maps .scroll").all():
    assert box.evaluate("it => it.scrollWidth - it.clientWidth") <= 0


def test_what_scrolls_shows_at_which_edge(opened):
  page = opened(viewport={"width": 400, "height": 900})
  ask(page, LONG)
  arcs = page.locator("#arcs")
  shades = (
    "it => ['::before', '::after'].map(e => getComputedStyle(it, e).opacity)"
  )
  for to, edges in ((0, "right"), (40, "left right"), (9999, "left")):
    arcs.evaluate("(it, to) => it.scrollTo({left: to})", to)
    shown = ["1" if edge in edges else "0" for edge in ("left", "right")]
    for _ in range(50):  # the page is told a frame later
      if arcs.evaluate(shades) == shown:
        break
      page.wait_for_timeout(20)
    assert arcs.evaluate(shades) == shown
  ask(page, OTHER)  # which has room
  expect(arcs).not_to_have_class(re.compile("more"))


def test_an_empty_page_says_what_it_wants(opened, address):
  page = opened()
  runs = page.request.get(f"{address}/runs").json()["runs"]
  pairs = [
    f"{run['name']} ({run['languages']['source']} to {run['languages']['target']})"
    for run in runs
  ]
  expect(page.get_by_label("Run").locator("option")).to_have_text(pairs)
  adjacent = page.get_by_label("Beside it").locator("option")
  expect(adjacent).to_have_text(["nothing", *pairs])
  expect(page.get_by_label("Sentence")).to_have_attribute(
    "placeholder", re.compile("^A sentence in ")
  )


def told_of_languages(route, source):
  """The server's runs, as if they read another language."""
  message = route.fetch().json()
  for run in message["runs"]:
    run["languages"]["source"] = source
  route.fulfill(json=message)


@pytest.mark.parametrize(
  "source, words",
  [
    ("en", r"A sentence in English, as in: Two men .*\."),
    ("de", r"A sentence in German, as in: Zwei Männer .*\."),
    ("is", "A sentence in Icelandic"),
    ("no code", "A sentence in no code"),
    ("", "A sentence"),
  ],
)
def test_an_example_is_of_the_runs_language(opened, source, words):
  page = opened()
  page.route("**/runs", lambda route: told_of_languages(route, source))
  page.reload()
  expect(page.get_by_label("Sentence")).to_have_attribute(
    "placeholder", re.compile(f"^{words}$")
  )


def test_what_a_moved_arc_did_not_change(opened):
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


def test_subwords_begin_lightly(opened):
  page = opened()
  ask(page, LINE)
  labels = page.locator(".maps th")
  assert "▁" not in "".join(labels.all_text_contents())
  assert page.locator(".maps th i.beginning").count() >= 2 * len(LINE.split())


def test_long_and_odd_lines(opened):
  page = opened()
  for line in ("。", "😀 \u0301", "word " * 60, "a" * 1900):
    ask(page, line)
    assert page.evaluate("document.documentElement.scrollWidth") <= 1280
