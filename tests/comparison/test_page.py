"""report.html: what is in it, and how a browser lays it out."""

import base64
import dataclasses
import html.parser
import json
import re
import shutil
import subprocess

import numpy as np
import pytest
from results_made import made

from jaxsyn.comparison import attention_samples, page, plots, results
from jaxsyn.inspection import pictures

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
# What a browser is asked once the page has been laid out.
ASKED = """<script>addEventListener("load", () => {
  const broken = [...document.images].filter(i => !i.naturalWidth).length;
  const wide = document.documentElement.scrollWidth - innerWidth;
  document.body.setAttribute("data-found",
    `broken ${broken} of ${document.images.length}, too wide ${wide}`);
});</script>"""


class Parsed(html.parser.HTMLParser):
  """Addresses, elements that are open, and text of a page."""

  VOID = ("meta", "img", "br")

  def __init__(self, content):
    super().__init__()
    self.addresses, self.open, self.text, self.ids = [], [], [], []
    self.feed(content)

  def handle_starttag(self, tag, attributes):
    if tag not in self.VOID:
      self.open.append(tag)
    for name, value in attributes:
      if name in ("src", "href"):
        self.addresses.append(value)
      if name == "id":
        self.ids.append(value)

  def handle_endtag(self, tag):
    assert self.open.pop() == tag

  def handle_data(self, data):
    self.text.append(data)


@pytest.fixture(scope="module")
def content(tmp_path_factory):
  return page.html(made(), tmp_path_factory.mktemp("page"))


def text_of(content):
  """What is read on a page, blanks made one."""
  return re.sub(r"\s+", " ", " ".join(Parsed(content).text))


def test_nothing_is_loaded_from_elsewhere(content):
  parsed = Parsed(content)
  assert not parsed.open
  assert sum(a.startswith("data:image/svg") for a in parsed.addresses) == 3
  for address in parsed.addresses:
    within = address.startswith("#") and address[1:] in parsed.ids
    assert within or address.startswith("data:image/svg+xml;base64,")
  assert "@import" not in content and "url(" not in content


def test_a_page_is_the_same_each_time(content, tmp_path):
  assert page.html(made(), tmp_path) == content


def test_what_the_tables_say_is_on_the_page(content):
  text = text_of(content)
  for figure in (
    *("30.50 ± 0.50", "31.50 ± 0.50†", "29.50 ± 0.50‡"),  # scores
    *("+0.00 .. +2.00", "0.0300", "+2.00"),  # differences
    "Config: configs/m.py with train.steps=9; whole in report.json.",
    "the best checkpoint by validation BLEU (13a), beam 5, length penalty gnmt 0.6",
    "en to de; pairs: test 20; SHA-256",
    *("pascal , seed 2: why", "a chip, 2 cores", "BLEU|case:mixed"),
    "Two seeds are too few",
    "BLEU, test: 2 of 3 pairs are better (Holm-adjusted p < 0.05): pascal "
    "against pascal_random_tree +2.00 (+1.00 to +3.00); pascal against "
    "transformer +1.00 (+0.00 to +2.00).",
    "1 of 3 pairs are worse (Holm-adjusted p < 0.05): pascal_random_tree "
    "against transformer -1.00 (-2.00 to +0.00).",
    "Holm-adjusted in the family of 3 tests (BLEU, test)",
  ):
    assert figure in text, figure


def test_pages_contain_attention_samples(tmp_path):
  sample = tmp_path / "transformer" / "seed_0" / "look"
  attention_samples.write([], sample)
  assert "What the systems look at" not in page.html(made(), tmp_path)
  seen = {"text": "a & b", "words": ["a", "&", "b"], "translation": "x > y"}
  (sample / "2.json").write_text(json.dumps(seen))
  panel = pictures.Panel("head 0", "ab", "ab", np.eye(2))
  svg = attention_samples.as_svg(pictures.matrices([panel]))
  (sample / "2.attention.svg").write_bytes(svg)
  content = page.html(made(), tmp_path)
  assert "<summary>a &amp; b</summary>" in content
  assert "<b>transformer</b><span>→ x &gt; y</span>" in content
  assert base64.b64encode(svg).decode() in content


@pytest.mark.parametrize(
  ("said", "meant", "marked"),
  [
    ("a b c", "a b c", "a b c"),
    ("b a", "a b", "b <u>a</u>"),  # both are meant, but not in this order
    ("a x y c", "a b c", "a <u>x y</u> c"),
    ("", "a b", ""),
    ("私は行く", "私が行く", "私<u>は</u>行く"),
  ],
)
def test_marks_are_where_the_reference_has_something_else(said, meant, marked):
  assert page.against(said, meant) == marked


def test_a_single_seed_of_a_single_system_has_a_page(tmp_path):
  one = made(seeds=(0,))
  split = one.splits[0]
  object.__setattr__(split, "over_seeds", ())
  object.__setattr__(split, "buckets", ())
  single = made(systems=one.systems[:1], splits=(split,), seeds=(0,))
  assert "One seed" in page.html(single, tmp_path)


def test_the_likelihood_has_curves_of_its_own(content, tmp_path):
  assert "log-likelihood" not in text_of(content)  # no run has it
  runs = [
    dataclasses.replace(
      run,
      curve=(
        results.Point(3, 0.5, {"bleu": 2.0, "log_likelihood": -4.0}),
        results.Point(6, 1.0, {"bleu": 29.5, "log_likelihood": -2.5}),
      ),
    )
    for run in made().runs
  ]
  scored = made(runs=tuple(runs))
  (axes,) = plots.curves(scored, scored.system("pascal"), "log_likelihood").axes
  assert axes.get_ylabel() == "validation log-likelihood"
  means = [x for x in axes.lines if x.get_marker() == "o"]
  assert [list(x.get_ydata()) for x in means] == [[-4.0, -2.5]] * len(means)
  parsed = page.html(scored, tmp_path)
  assert "<h3>BLEU</h3>" in parsed and "<h3>log-likelihood</h3>" in parsed


def test_the_plot_of_differences_shows_what_the_table_says():
  content = made()
  (split,) = content.splits
  (axes,) = plots.differences(content, split, "BLEU").axes
  rows = [label.get_text() for label in axes.get_yticklabels()]
  assert rows == ["pascal", "− pascal_random_tree", "pascal_random_tree"]
  bars = {}
  for line in axes.lines:
    x, y = line.get_xdata(), line.get_ydata()
    if len(x) == 2 and line.get_linewidth() == 2 and y[0] == y[1]:
      bars[rows[y[0]]] = list(x), line.get_color()
  assert bars["pascal"] == ([0.0, 2.0], plots.BLUE)  # p = .03
  assert bars["− pascal_random_tree"] == ([1.0, 3.0], plots.BLUE)


def test_buckets_with_too_few_sentences_have_no_point():
  content = made()
  (split,) = content.splits
  figure = plots.by_fact(
    content, split, by="depth", system=content.system("pascal")
  )
  (line,) = [x for x in figure.axes[0].lines if x.get_marker() == "o"]
  assert list(line.get_ydata()) == [0.7]
  assert [t.get_text() for t in figure.axes[0].get_xticklabels()] == [
    "0-2\n4",
    "3\n16",
  ]


def test_panels_of_a_page_have_one_scale():
  content = made()
  split = content.splits[0]
  panels = [
    plots.curves(content, system, "bleu").axes[0].get_ylim()
    for system in content.systems
  ]
  assert len(set(panels)) == 1
  figure = plots.by_fact(
    content, split, by="depth", system=content.system("pascal")
  )
  low, high = figure.axes[0].get_ylim()
  assert low < -0.3 and high > 1.7  # the interval of the only difference


@pytest.mark.skipif(not CHROMIUM, reason="Chromium is not installed")
@pytest.mark.parametrize("width", [1280, 400])
def test_a_browser_shows_all_and_has_nothing_to_scroll(
  content, tmp_path, width
):
  path = tmp_path / "report.html"
  path.write_text(content.replace("</body>", f"{ASKED}</body>"))
  done = subprocess.run(
    [
      *(CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--dump-dom"),
      *(f"--user-data-dir={tmp_path / 'browser'}", "--hide-scrollbars"),
      *(f"--window-size={width},900", "--virtual-time-budget=5000"),
      path.as_uri(),
    ],
    capture_output=True,
    text=True,
    timeout=60,
  )
  matches = re.search(r'data-found="([^"]*)"', done.stdout)
  assert matches, done.stderr
  assert matches.group(1) == "broken 0 of 3, too wide 0"
