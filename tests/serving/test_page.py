"""The page in a real browser, with a real server."""

import contextlib
import re
import shutil

import pytest
from serving_client import LINE, OTHER, serving, wait_until_ready

from jaxsyn.data.sentence import conllu
from jaxsyn.session import Session

playwright = pytest.importorskip("playwright.sync_api")
expect = playwright.expect
expect.set_options(timeout=60_000)  # other tests may keep the cores busy
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
pytestmark = pytest.mark.skipif(not CHROMIUM, reason="no Chromium is installed")
LONG = "the old duck will often carry a bell ."


@pytest.fixture(scope="module")
def session(runs):
  return Session(runs["pascal"], nbest=3)


@pytest.fixture(scope="module")
def address(runs, environment):
  """Address of a server process of two runs."""
  names = (f"{name}={runs[name]}" for name in ("pascal", "gru_global"))
  with serving(environment, "--compile=0", *names) as process:
    yield f"http://127.0.0.1:{wait_until_ready(process)}"


@pytest.fixture(scope="module")
def browser():
  """A browser; while it is open, no other code may run an asyncio loop."""
  with playwright.sync_playwright() as player:
    browser = player.chromium.launch(
      executable_path=CHROMIUM, args=["--no-sandbox"]
    )
    yield browser
    browser.close()


@pytest.fixture
def new_page(browser, address):
  """A function that opens the page, which must not log or throw anything."""
  messages, pages = [], contextlib.ExitStack()

  def open_page(query="", **options):
    page = pages.enter_context(contextlib.closing(browser.new_page(**options)))
    page.on("pageerror", lambda error: messages.append(str(error)))
    page.on("console", lambda message: messages.append(message.text))
    page.goto(f"{address}/{query}")
    return page

  with pages:
    yield open_page
  # The browser itself logs responses with an error.
  known = ("status of 4", "net::ERR_FAILED")
  assert [one for one in messages if not any(why in one for why in known)] == []


def wait_until_translated(page):
  status = page.locator("#status")
  expect(status).to_have_text(re.compile("^Finished in"), timeout=120_000)


def translate(page, line, right=""):
  page.get_by_label("Compare with").select_option(right)
  page.get_by_label("Sentence", exact=True).fill(line)
  page.get_by_role("button", name="Translate", exact=True).click()
  wait_until_translated(page)


def tree_of(page):
  """Returns the tree that is shown."""
  block = page.locator("#conllu").input_value()
  return conllu.attach(conllu.blocks_of_text(block + "\n\n", "page"), LONG)


def drag(page, word, to):
  """Drags a word to its new parent, or to the root line."""
  words, roots = page.locator("text.word"), page.locator(".roots")
  box = words.nth(word).bounding_box()
  page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
  page.mouse.down()
  end = (roots if to == "root" else words.nth(to)).bounding_box()
  up = 6 if to == "root" else -5
  page.mouse.move(end["x"] + end["width"] / 2, end["y"] - up, steps=5)
  page.mouse.up()


def nbest(page, side=0):
  """Returns text and score of each hypothesis that a panel shows."""
  rows = page.locator("#panels section").nth(side).locator(".nbest tbody tr")
  cells = (row.locator("td").all_text_contents() for row in rows.all())
  return [(text, float(score)) for text, score, _ in cells]


def of_session(session, source):
  (result,) = session([source])
  return [(one.text, round(one.score, 3)) for one in result]


def test_shows_the_translation_of_the_session(new_page, session):
  page = new_page()
  translate(page, LONG)
  assert nbest(page) == of_session(session, LONG)
  expect(page.locator(".translation")).to_have_text(nbest(page)[0][0])
  page.reload()  # the address contains the sentence
  wait_until_translated(page)
  assert nbest(page) == of_session(session, LONG)


def test_a_sentence_entered_while_the_page_loads_is_translated(
  browser, address, session
):
  with contextlib.closing(browser.new_page()) as page:
    requests = []
    page.route("**/runs", lambda route: requests.append(route))
    page.goto(address)
    page.get_by_label("Sentence", exact=True).fill(LONG)
    page.get_by_role("button", name="Translate", exact=True).click()
    page.wait_for_timeout(100)
    (request,) = requests  # the page was not loaded again
    request.continue_()
    wait_until_translated(page)
    assert nbest(page) == of_session(session, LONG)


def test_dragging_a_word_changes_its_parent(new_page, session):
  page = new_page()
  translate(page, LONG)
  before, tree = nbest(page), tree_of(page)
  word = next(w for w, head in enumerate(tree.head_W) if head > w + 1)
  drag(page, word, word + 1)
  expect(page.locator("#changed")).to_have_text("Changed parents: 1")
  wait_until_translated(page)
  changed, heads = tree_of(page), list(tree.head_W)
  heads[word] = word + 1
  assert changed.head_W == tuple(heads)
  assert changed.row_W[word][:6] == tree.row_W[word][:6]
  assert nbest(page) == of_session(session, changed) != before
  note = page.locator("#answers .note")
  expect(note).to_have_text(re.compile("The same as before|Before: "))
  page.get_by_role("button", name="Undo").click()
  expect(page.locator("#changed")).to_have_text("")
  wait_until_translated(page)
  assert tree_of(page) == tree and nbest(page) == before
  translate(page, OTHER)
  expect(note).to_have_text("")  # this sentence has no translation before


def test_rejects_a_cycle_and_changes_the_root(new_page):
  page = new_page()
  translate(page, LONG)
  tree = tree_of(page)
  root = next(w for w, head in enumerate(tree.head_W) if head == w)
  below = next(w for w, h in enumerate(tree.head_W) if h == root and w != root)
  drag(page, root, below)
  low, high = (f"“{LONG.split()[word]}”" for word in (below, root))
  message = f"{low} is below {high}: this would be a cycle."
  expect(page.locator("#status")).to_contain_text(message)
  assert tree_of(page) == tree
  drag(page, below, "root")
  wait_until_translated(page)
  assert tree_of(page).head_W[below] == below
  page.locator("#parents summary").press("Enter")  # with the keyboard
  select = page.get_by_label(f"Parent of {low[1:-1]}, word {below + 1}")
  page.get_by_label(f"word {root + 1}").select_option(str(below))
  wait_until_translated(page)
  expect(page.get_by_label(f"word {root + 1}")).to_be_focused()
  heads = tree_of(page).head_W
  assert (heads[root], heads[below]) == (below, below)
  expect(select).to_have_value(str(below))
  page.get_by_role("button", name="Reset").click()
  wait_until_translated(page)
  assert tree_of(page) == tree


def test_translates_a_tree_in_conllu(new_page):
  page = new_page()
  rows = ["1\ta\t_\t_\t_\t_\t2\tdet\t_\t_", "2\tcow\t_\t_\t_\t_\t1\troot\t_\t_"]
  page.get_by_text("CoNLL-U", exact=True).click()
  field = page.locator("#conllu")
  button = page.get_by_role("button", name="Translate this tree")
  field.fill("\n".join(rows))
  button.click()
  error = page.locator("#answers .error").first
  expect(error).to_contain_text("no root")
  field.fill("\n".join(rows).replace("\t1\troot", "\t0\troot"))
  button.click()
  wait_until_translated(page)
  expect(page.locator("text.word")).to_have_text(["a", "cow"])
  expect(error).to_have_text("")
  field.fill("no rows")
  button.click()
  expect(page.locator("#status")).to_contain_text("ten columns")


def test_compares_two_runs(new_page):
  page = new_page()
  translate(page, OTHER, "gru_global")
  titles = page.locator("#panels h2")
  expect(titles).to_have_text(["pascal", "gru_global"])
  second = page.locator("#panels section").nth(1)
  second.get_by_label("Place").select_option("cross")
  expect(second.locator(".maps table.map")).to_have_count(1)
  page.get_by_label("Compare with").select_option("")
  wait_until_translated(page)
  expect(titles).to_have_text(["pascal"])


def test_shows_attention_and_what_a_modifier_computes(new_page, address):
  page = new_page()
  translate(page, LONG)
  data = {"run": "pascal", "text": LONG}
  result = page.request.post(f"{address}/inspect", data=data).json()
  (weighting,) = (one for one in result["weightings"] if one["place"] == "encoder")  # fmt: skip
  head = weighting["heads"][0]
  page.locator("button.head").nth(head).click()
  pressed = page.locator("button.head[aria-pressed=true]")
  expect(pressed).to_have_count(1)
  expect(pressed).to_contain_text(f"head {head}")
  address = ("encoder", 0, head)
  (attention,) = (
    one
    for one in result["attention"]
    if (one["place"], one["layer"], one["head"]) == address
  )
  tables = page.locator(".maps table.map").all()
  for table, entry in zip(tables, (attention, weighting), strict=True):
    shown = table.locator("tbody td").all_text_contents()
    expected = [value for row in entry["weights"] for value in row]
    assert len(shown) == len(expected)
    assert all(abs(float(a) - b) < 0.0051 for a, b in zip(shown, expected))
  cell = tables[0].locator("tbody td").first
  words = attention["rows"][0], attention["columns"][0]
  assert cell.get_attribute("title").startswith(" → ".join(words))


def test_escapes_input(new_page):
  page = new_page()
  line = "<img src=x onerror=alert(1)> & \"'</script><script>alert(2)</script>"
  page.on("dialog", lambda dialog: pytest.fail(dialog.message))
  translate(page, line)
  expect(page.locator("main img")).to_have_count(0)
  words = page.locator("text.word").all_text_contents()
  assert "".join(words) == re.sub(r"\s", "", line)


def test_reports_errors(new_page):
  page = new_page()
  field, status = page.get_by_label("Sentence", exact=True), page.locator("#status")  # fmt: skip
  field.fill("a cow " * 400)
  field.press("Enter")
  expect(status).to_contain_text("2,399 characters; at most 2,000")
  page.route("**/parse", lambda route: route.abort())
  field.fill(LINE)
  field.press("Enter")
  expect(status).to_contain_text("cannot be reached")


def test_shows_the_last_of_several_quick_requests(new_page, session):
  page = new_page()
  translate(page, OTHER)
  field = page.get_by_label("Sentence", exact=True)
  for line in (LINE, OTHER, LONG):
    field.fill(line)
    field.press("Enter")
  expect(page.locator("text.word")).to_have_count(len(LONG.split()))
  wait_until_translated(page)
  assert nbest(page) == of_session(session, LONG)


def test_translates_long_sentences_without_figures(new_page, session):
  page = new_page()
  line = ("a cow " * 300).strip()
  translate(page, line)
  note = page.locator("#answers .note")
  expect(note).to_contain_text("Without figures: ")
  expect(note).to_contain_text("at most 511 can be inspected.")
  expect(note).to_contain_text("Only its beginning was translated.")
  assert nbest(page) == of_session(session, line)
  figures = page.locator("#panels .figures")
  expect(figures).to_be_hidden()
  translate(page, LINE)
  expect(note).to_have_text("")
  expect(figures).to_be_visible()


@pytest.mark.parametrize(("width", "scheme"), [(400, "light"), (1600, "dark")])
def test_has_no_overflow_and_is_accessible(new_page, width, scheme):
  axe = pytest.importorskip("axe_playwright_python.sync_playwright")
  page = new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
  for line in ("😀 \u0301", "a" * 1900, LONG):
    translate(page, line, "gru_global")
    wide = "document.documentElement.scrollWidth - innerWidth"
    assert page.evaluate(wide) <= 0
  for summary in page.locator("summary").all():
    summary.click()
  result = axe.Axe().run(page).response["violations"]
  assert [(one["id"], one["nodes"][0]["html"]) for one in result] == []
