"""The page in a real browser, of a real server: what is seen, moved and typed."""

import re

import pytest
from page_under_test import (
  LINE,
  NEEDS_CHROMIUM,
  OTHER,
  ask,
  expect,
  is_done,
  lead,
  parse_of,
)

from jaxsyn.session import Session

pytestmark = NEEDS_CHROMIUM


@pytest.fixture(scope="module")
def session(runs):
  return Session(runs["pascal"], nbest=3)  # as served: all of the beam


def nbest(document, side=0):
  """(text, score) of each hypothesis that a panel tells."""
  rows = document.locator(".panel").nth(side).locator(".others tbody tr")
  message = (row.locator("td").all_text_contents() for row in rows.all())
  return [(text, float(score)) for text, score, _ in message]


def of_session(session, source):
  (result,) = session([source])
  return [(one.text or "(nothing)", round(one.score, 3)) for one in result]


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
  before, inputs = nbest(page), parse_of(page)
  child = next(w for w, head in enumerate(inputs.head_W) if head > w + 1)
  lead(page, child, child + 1)
  expect(page.locator("#changed")).to_have_text("1 word has another parent")
  is_done(page)
  moved = parse_of(page)
  heads = list(inputs.head_W)
  heads[child] = child + 1
  assert moved.head_W == tuple(heads)
  assert moved.row_W[child][:6] == inputs.row_W[child][:6]
  assert nbest(page) == of_session(session, moved) != before
  page.get_by_role("button", name="Undo").click()
  expect(page.locator("#changed")).to_have_text("")
  is_done(page)
  assert parse_of(page) == inputs
  assert nbest(page) == before


def test_the_address_has_the_arcs_that_were_led(opened, session):
  page = opened()
  ask(page, LINE)
  inputs = parse_of(page)
  root = next(w for w, head in enumerate(inputs.head_W) if head == w)
  child = next(w for w, head in enumerate(inputs.head_W) if head > w + 1)
  lead(page, child, child + 1)
  is_done(page)
  below = next(
    w for w, h in enumerate(inputs.head_W) if h == root and w != root
  )
  lead(page, below, "root")
  lead(page, root, below)
  is_done(page)
  moved, result = parse_of(page), nbest(page)
  page.reload()
  is_done(page)
  assert parse_of(page).head_W == moved.head_W != inputs.head_W
  assert nbest(page) == result == of_session(session, parse_of(page))
  count = sum(a != b for a, b in zip(moved.head_W, inputs.head_W))
  message = page.locator("#changed")
  expect(message).to_have_text(f"{count} words have another parent")
  expect(page.locator(".before").first).to_be_hidden()
  page.get_by_role("button", name="As it was parsed").click()
  is_done(page)
  assert parse_of(page) == inputs and "moved" not in page.url
  for moves in ("1:99", f"{root + 1}:{below + 1}", "a:b", "0:1"):
    page.goto(f"{page.url.split('&moved')[0]}&moved={moves}")
    expect(page.locator("#status")).to_contain_text(
      "do not fit", timeout=60_000
    )
    assert parse_of(page) == inputs


def test_a_circle_is_refused_and_a_root_may_be_another(opened):
  page = opened()
  ask(page, LINE)
  inputs = parse_of(page)
  root = next(w for w, head in enumerate(inputs.head_W) if head == w)
  below = next(
    w for w, h in enumerate(inputs.head_W) if h == root and w != root
  )
  lead(page, root, below)
  words = LINE.split()
  low, high = f"“{words[below]}”", f"“{words[root]}”"
  expect(page.locator("#status")).to_have_text(
    f"{low} is below {high}: that would be a circle. First move {low} to a word "
    f"that is not below {high}, or to root."
  )
  assert parse_of(page) == inputs
  lead(page, below, "root")
  is_done(page)
  assert parse_of(page).head_W[below] == below
  lead(page, root, below)
  is_done(page)
  now = parse_of(page).head_W
  assert (now[root], now[below]) == (below, below)
  page.get_by_role("button", name="As it was parsed").click()
  is_done(page)
  assert parse_of(page) == inputs


def test_parents_are_chosen_by_keyboard(opened, session):
  page = opened()
  ask(page, LINE)
  inputs = parse_of(page)
  page.locator("#parents summary").press("Enter")
  word = len(inputs.head_W) - 1
  select = page.get_by_label(f"Parent of ., word {word + 1}")
  select.select_option(label="1 the")
  is_done(page)
  expect(select).to_be_focused()
  assert parse_of(page).head_W[word] == 0
  assert nbest(page) == of_session(session, parse_of(page))


def test_translates_a_given_tree(opened):
  page = opened()
  rows = ["1\ta\t_\t_\t_\t_\t2\tdet\t_\t_", "2\tcow\t_\t_\t_\t_\t1\troot\t_\t_"]
  page.get_by_text("CoNLL-U", exact=True).click()
  expected = page.get_by_label("A tree of your own")
  expected.fill("\n".join(rows))
  page.get_by_role("button", name="Translate this tree").click()
  fault = page.locator(".answer .fault").first
  expect(fault).to_contain_text("no root")
  expected.fill("\n".join(rows).replace("\t1\troot", "\t0\troot"))
  page.get_by_role("button", name="Translate this tree").click()
  is_done(page)
  expect(page.locator("text.word")).to_have_text(["a", "cow"])
  expect(fault).to_be_hidden()
  expected.fill("no rows")
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
  message = page.request.post(
    f"{address}/inspect", data={"run": "pascal", "text": LINE}
  ).json()
  (weighting,) = [
    one
    for one in message["weightings"]
    if (one["place"], one["layer"]) == ("encoder", 0)
  ]
  page.locator("button.head").nth(weighting["heads"][0]).click()
  pressed = page.locator("button.head[aria-pressed=true]")
  expect(pressed).to_have_count(1)
  # Counted from 0, as in the answer.
  index = weighting["heads"][0]
  expect(pressed).to_contain_text(f"head {index}")
  expect(page.get_by_label("Layer").locator("option")).to_have_text(["0"])
  captions = page.locator(".maps figcaption b")
  expect(captions.first).to_have_text(f"Attention of head {index}")
  attention, matrix = page.locator(".maps table.map").all()
  expected = next(
    one
    for one in message["attention"]
    if (one["place"], one["layer"], one["head"])
    == ("encoder", 0, weighting["heads"][0])
  )
  for shown, entry in ((attention, expected), (matrix, weighting)):
    active = shown.locator("tbody td").all_text_contents()
    flat = [f"{value:.2f}" for row in entry["weights"] for value in row]
    assert len(active) == len(flat)
    assert all(abs(float(a) - float(b)) < 0.011 for a, b in zip(active, flat))
  attention.locator("tbody td").first.hover()
  words = (expected["rows"][0], expected["columns"][0])
  expect(page.locator(".maps output").first).to_contain_text(" → ".join(words))


def test_input_is_escaped(opened):
  page = opened()
  line = "<img src=x onerror=alert(1)> & \"'</script><script>alert(2)</script>"
  page.on("dialog", lambda dialog: pytest.fail(dialog.message))
  ask(page, line)
  expect(page.locator("#answers img, #tree img, #panels img")).to_have_count(0)
  result = page.locator("text.word").all_text_contents()
  assert "".join(result) == re.sub(r"\s", "", line)


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


def test_refuses_a_long_sentence_with_its_length(opened):
  page = opened()
  field = page.get_by_label("Sentence")
  status = page.locator("#status")
  message = "The sentence has 2,001 characters; at most 2,000 are translated."
  line = "\U0001f404" + "a cow " * 333 + "ab"  # 2,001 characters, 2,002 units
  field.fill(line)
  expect(status).to_contain_text(message)
  assert field.input_value() == line
  page.get_by_role("button", name="Translate", exact=True).click()
  expect(status).to_contain_text(message)
  expect(page.locator(".answer")).to_have_count(0)
  field.fill(line[:-1])
  expect(status).to_have_text("")
  ask(page, LINE)
  assert nbest(page)


def test_translates_without_figures_what_is_too_long_for_them(opened, session):
  page = opened()
  line = ("a cow " * 300).strip()
  ask(page, line)
  message = page.locator(".answer .note")
  expect(message).to_contain_text("Translated without figures: ")
  expect(message).to_contain_text("subwords are too many")
  expect(message).to_contain_text("at most 511 can be inspected.")
  expect(message).to_contain_text("Only its beginning was translated.")
  assert nbest(page) == of_session(session, line)
  expect(page.locator(".panel .figures")).to_be_hidden()
  expect(page.locator("#status")).to_contain_text("Translated in ")
  ask(page, LINE)
  expect(message).to_be_hidden()
  expect(page.locator(".panel .figures")).to_be_visible()


def test_says_that_programs_are_compiled_for_a_sentence(opened):
  page = opened()
  message = {"status": "ok", "compiling": True, "programs": 7}
  page.route("**/health", lambda route: route.fulfill(json=message))
  page.route("**/inspect", lambda route: None)  # takes its time
  page.get_by_label("Sentence").fill(LINE)
  page.get_by_role("button", name="Translate", exact=True).click()
  expect(page.locator("#status")).to_have_text(
    "Programs are being compiled for sentences of this length (7 so far) …"
  )
  message = {"status": "ok"}
  expect(page.locator("#status")).to_have_text("Translating …")
