"""The page in a real browser, of a real server: what is seen, moved and typed."""

import contextlib
import re
import shutil
import signal
import subprocess
import sys

import pytest

from jaxsyn.data.sentence import conllu, conllu_text
from jaxsyn.session import Session

playwright = pytest.importorskip("playwright.sync_api")
axe = pytest.importorskip("axe_playwright_python.sync_playwright")
expect = playwright.expect

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
pytestmark = pytest.mark.skipif(not CHROMIUM, reason="no Chromium is installed")

LINE = "the old duck will often carry a bell ."
OTHER = "the farmer sees it ."
LONG = "the old duck will often carry a bell and the farmer sees it"  # 13 words


@pytest.fixture(scope="module")
def address(runs, users_environment):
  """Of a server of two runs, in a process of its own."""
  names = ("pascal", "gru_global")
  command = [sys.executable, "-m", "jaxsyn", "serve", "--port", "0"]
  server = subprocess.Popen(
    [*command, "--compile", "0", *(f"{name}={runs[name]}" for name in names)],
    stdout=subprocess.PIPE,
    text=True,
    env=users_environment,
  )
  try:
    for line in server.stdout:
      if found := re.search(r"http://\S+", line):
        yield found[0]
        break
    else:
      pytest.fail("the server did not begin")
  finally:
    server.send_signal(signal.SIGTERM)
    server.wait(60)


@pytest.fixture(scope="module")
def browser():
  with playwright.sync_playwright() as player:
    browser = player.chromium.launch(
      executable_path=CHROMIUM, args=["--no-sandbox"]
    )
    yield browser
    browser.close()


@pytest.fixture
def opened(browser, address):
  """A function query, how -> the page; what it logs or throws is a fault."""
  told, pages = [], contextlib.ExitStack()

  def open_page(query="", **how):
    page = pages.enter_context(
      contextlib.closing(browser.new_page(**{"reduced_motion": "reduce"} | how))
    )
    page.on("pageerror", lambda error: told.append(str(error)))
    page.on("console", lambda message: told.append(message.text))
    page.goto(f"{address}/{query}")
    return page

  with pages:
    yield open_page
  # What the server refuses is logged by the browser itself.
  known = ("status of 422", "net::ERR_FAILED")
  assert [one for one in told if not any(why in one for why in known)] == []


def is_done(page):
  expect(page.locator("#status")).to_have_text(
    re.compile(r"^(Translated|Not translated)"), timeout=120_000
  )
  expect(page.locator("#answers [aria-busy=true]")).to_have_count(0)


def ask(page, line, right=""):
  page.get_by_label("Beside it").select_option(right)
  page.get_by_label("Sentence").fill(line)
  page.get_by_role("button", name="Translate", exact=True).click()
  is_done(page)


@pytest.fixture(scope="module")
def session(runs):
  return Session(runs["pascal"], nbest=3)  # as served: all of the beam


def nbest(page, side=0):
  """(text, score) of each hypothesis that a panel tells."""
  rows = page.locator(".panel").nth(side).locator(".others tbody tr")
  told = (row.locator("td").all_text_contents() for row in rows.all())
  return [(text, float(score)) for text, score, _ in told]


def of_session(session, source):
  (found,) = session([source])
  return [(one.text or "(nothing)", round(one.score, 3)) for one in found]


def parse_of(page):
  """The tree that the page would send."""
  block = page.get_by_label("A tree of your own").input_value()
  blocks = conllu.blocks_of_text(block + "\n\n", "page")
  return conllu_text.attach(blocks, LINE)


def lead(page, child, to):
  """Takes the arc of a word by its dot, and leads it to a word, or the root."""
  dot = page.locator(f"[data-child='{child}'] circle.dot").bounding_box()
  if to == "root":
    line = page.locator(".roots").bounding_box()
    end = (line["x"] + 150, line["y"] - 6)
  else:
    word = page.locator("text.word").nth(to).bounding_box()
    end = (word["x"] + word["width"] / 2, word["y"] + word["height"] / 2)
  page.mouse.move(dot["x"] + dot["width"] / 2, dot["y"] + dot["height"] / 2)
  page.mouse.down()
  page.mouse.move(*end, steps=5)
  page.mouse.up()


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
  found = axe.Axe().run(page).response["violations"]
  assert [(one["id"], one["nodes"][0]["html"]) for one in found] == []


def test_a_translation_is_the_sessions(opened, session):
  page = opened()
  ask(page, LINE)
  assert nbest(page) == of_session(session, LINE)
  shown = page.locator(".translation")
  expect(shown).to_have_text(nbest(page)[0][0])
  page.reload()  # the address has what was asked
  is_done(page)
  assert nbest(page) == of_session(session, LINE)


def test_an_arc_is_led_to_another_word(opened, session):
  page = opened()
  ask(page, LINE)
  before, given = nbest(page), parse_of(page)
  child = next(w for w, head in enumerate(given.head_W) if head > w + 1)
  lead(page, child, child + 1)
  expect(page.locator("#changed")).to_have_text("1 word has another parent")
  is_done(page)
  moved = parse_of(page)
  heads = list(given.head_W)
  heads[child] = child + 1
  assert moved.head_W == tuple(heads)
  assert moved.row_W[child][:6] == given.row_W[child][:6]
  assert nbest(page) == of_session(session, moved) != before
  page.get_by_role("button", name="Undo").click()
  expect(page.locator("#changed")).to_have_text("")
  is_done(page)
  assert parse_of(page) == given
  assert nbest(page) == before


def test_a_circle_is_refused_and_a_root_may_be_another(opened):
  page = opened()
  ask(page, LINE)
  given = parse_of(page)
  root = next(w for w, head in enumerate(given.head_W) if head == w)
  below = next(w for w, h in enumerate(given.head_W) if h == root and w != root)
  lead(page, root, below)
  words = LINE.split()
  low, high = f"“{words[below]}”", f"“{words[root]}”"
  expect(page.locator("#status")).to_have_text(
    f"{low} is below {high}: that would be a circle. First move {low} to a word "
    f"that is not below {high}, or to root."
  )
  assert parse_of(page) == given
  lead(page, below, "root")
  is_done(page)
  assert parse_of(page).head_W[below] == below
  lead(page, root, below)
  is_done(page)
  now = parse_of(page).head_W
  assert (now[root], now[below]) == (below, below)
  page.get_by_role("button", name="As it was parsed").click()
  is_done(page)
  assert parse_of(page) == given


def test_parents_are_chosen_by_keyboard(opened, session):
  page = opened()
  ask(page, LINE)
  given = parse_of(page)
  page.locator("#parents summary").press("Enter")
  word = len(given.head_W) - 1
  select = page.get_by_label(f"Parent of ., word {word + 1}")
  select.select_option(label="1 the")
  is_done(page)
  expect(select).to_be_focused()
  assert parse_of(page).head_W[word] == 0
  assert nbest(page) == of_session(session, parse_of(page))


def test_a_tree_of_ones_own(opened):
  page = opened()
  rows = ["1\ta\t_\t_\t_\t_\t2\tdet\t_\t_", "2\tcow\t_\t_\t_\t_\t1\troot\t_\t_"]
  page.get_by_text("CoNLL-U", exact=True).click()
  own = page.get_by_label("A tree of your own")
  own.fill("\n".join(rows))
  page.get_by_role("button", name="Translate this tree").click()
  fault = page.locator(".answer .fault").first
  expect(fault).to_contain_text("no root")
  own.fill("\n".join(rows).replace("\t1\troot", "\t0\troot"))
  page.get_by_role("button", name="Translate this tree").click()
  is_done(page)
  expect(page.locator("text.word")).to_have_text(["a", "cow"])
  expect(fault).to_be_hidden()
  own.fill("no rows")
  page.get_by_role("button", name="Translate this tree").click()
  expect(page.locator("#status")).to_contain_text("ten columns")


def test_two_runs_side_by_side_and_one_again(opened):
  page = opened()
  ask(page, OTHER, "gru_global")
  expect(page.locator(".panel h2")).to_have_text(["pascal", "gru_global"])
  second = page.locator(".panel").nth(1)
  second.get_by_label("Place").select_option("cross")
  expect(second.locator(".maps table.map")).to_have_count(1)
  page.get_by_label("Beside it").select_option("")
  is_done(page)
  expect(page.locator(".panel h2")).to_have_text(["pascal"])


def test_attention_is_shown_beside_what_a_part_makes(opened, address):
  page = opened()
  ask(page, LINE)
  told = page.request.post(
    f"{address}/inspect", data={"run": "pascal", "text": LINE}
  ).json()
  (weighting,) = [
    one
    for one in told["weightings"]
    if (one["place"], one["layer"]) == ("encoder", 0)
  ]
  page.locator("button.head").nth(weighting["heads"][0]).click()
  pressed = page.locator("button.head[aria-pressed=true]")
  expect(pressed).to_have_count(1)
  # Counted from 0, as in the answer.
  number = weighting["heads"][0]
  expect(pressed).to_contain_text(f"head {number}")
  expect(page.get_by_label("Layer").locator("option")).to_have_text(["0"])
  captions = page.locator(".maps figcaption b")
  expect(captions.first).to_have_text(f"Attention of head {number}")
  attention, matrix = page.locator(".maps table.map").all()
  own = next(
    one
    for one in told["attention"]
    if (one["place"], one["layer"], one["head"])
    == ("encoder", 0, weighting["heads"][0])
  )
  for shown, entry in ((attention, own), (matrix, weighting)):
    cells = shown.locator("tbody td").all_text_contents()
    flat = [f"{value:.2f}" for row in entry["weights"] for value in row]
    assert len(cells) == len(flat)
    assert all(abs(float(a) - float(b)) < 0.011 for a, b in zip(cells, flat))
  attention.locator("tbody td").first.hover()
  words = (own["rows"][0], own["columns"][0])
  expect(page.locator(".maps output").first).to_contain_text(" → ".join(words))


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
  beside = page.get_by_label("Beside it").locator("option")
  expect(beside).to_have_text(["nothing", *pairs])
  expect(page.get_by_label("Sentence")).to_have_attribute(
    "placeholder", re.compile("^A sentence in ")
  )


def told_of_languages(route, source):
  """The server's runs, as if they read another language."""
  told = route.fetch().json()
  for run in told["runs"]:
    run["languages"]["source"] = source
  route.fulfill(json=told)


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
  given = parse_of(page).head_W
  child = next(w for w, head in enumerate(given) if head > w + 1)
  lead(page, child, child + 1)
  expect(page.locator("#changed")).to_have_text("1 word has another parent")
  is_done(page)
  reads_none = page.locator(".answer", has_text="gru_global").locator(".before")
  expect(reads_none).to_have_text("This run reads no tree.")
  root = next(w for w, head in enumerate(given) if head == w)
  lead(page, root, next(w for w, h in enumerate(given) if h == root != w))
  expect(page.locator("#status")).to_contain_text("that would be a circle")
  expect(reads_none).to_be_hidden()


def test_arcs_are_drawn_clearly(opened):
  """Labels lie over all lines; what a resting mouse lies on is not chosen."""
  page = opened()
  ask(page, LINE)
  given = parse_of(page).head_W
  child = next(w for w, head in enumerate(given) if head > w + 1)
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


def test_what_is_typed_is_text(opened):
  page = opened()
  line = "<img src=x onerror=alert(1)> & \"'</script><script>alert(2)</script>"
  page.on("dialog", lambda dialog: pytest.fail(dialog.message))
  ask(page, line)
  expect(page.locator("#answers img, #tree img, #panels img")).to_have_count(0)
  found = page.locator("text.word").all_text_contents()
  assert "".join(found) == re.sub(r"\s", "", line)


def test_long_and_odd_lines(opened):
  page = opened()
  for line in ("。", "😀 \u0301", "word " * 60, "a" * 1900):
    ask(page, line)
    assert page.evaluate("document.documentElement.scrollWidth") <= 1280


def test_no_server(opened):
  page = opened()
  page.route("**/parse", lambda route: route.abort())
  page.get_by_label("Sentence").fill(LINE)
  page.get_by_role("button", name="Translate", exact=True).click()
  expect(page.locator("#status")).to_contain_text("cannot be reached")


def test_the_last_of_fast_changes_is_shown(opened, session):
  page = opened()
  ask(page, OTHER)
  field = page.get_by_label("Sentence")
  for line in ("a cow sleeps .", OTHER, LINE):
    field.fill(line)
    field.press("Enter")
  expect(page.locator("text.word")).to_have_count(len(LINE.split()))
  is_done(page)
  assert nbest(page) == of_session(session, LINE)
