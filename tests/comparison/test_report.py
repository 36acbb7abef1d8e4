"""The report as JSON, text, Markdown, LaTeX and HTML, and its figures."""

import base64
import dataclasses
import itertools
import json
import re
import shutil
import subprocess

import pytest
import toy_folders
from markupsafe import Markup
from models_under_test import config_of
from results_made import made

from jaxsyn.comparison import (
  measure,
  notes,
  page,
  plots,
  report,
  results,
  tables,
)
from jaxsyn.config import as_dict
from jaxsyn.configs import systems
from jaxsyn.data.sentence.text import read_lines
from jaxsyn.data.store import manifests
from jaxsyn.errors import InputError

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
# Runs in the browser after the layout.
MEASURE = """<script>addEventListener("load", () => {
  const broken = [...document.images].filter(i => !i.naturalWidth).length;
  const wide = document.documentElement.scrollWidth - innerWidth;
  document.body.setAttribute("data-found",
    `broken ${broken} of ${document.images.length}, too wide ${wide}`);
});</script>"""
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


def with_split(content=None, **changes):
  """A comparison with changes of its test set."""
  content = content or made()
  split = dataclasses.replace(content.splits[0], **changes)
  return dataclasses.replace(content, splits=(split,))


def with_first(**changes):
  """A comparison with changes of its first system."""
  first, *rest = made().systems
  return made(systems=(dataclasses.replace(first, **changes), *rest))


@pytest.mark.parametrize(
  ("old", "new", "message"),
  [
    ('"format": 3', '"format": 9', "has format 9; this version reads 3"),
    ('"samples": 100', '"smaples": 100', "no option 'smaples'"),
    ("{", "", "is corrupt"),
  ],
)
def test_rejects_invalid_json(old, new, message):
  text = results.to_json(made()).replace(old, new, 1)
  with pytest.raises(InputError, match=message):
    results.from_json(text)


def test_markdown():
  text = report.markdown(made())
  assert "| transformer | 2 | 30.50 ± 0.50 |" in text
  assert (
    "| pascal | 2 | **31.50 ± 0.50†** |\n"
    "| &nbsp;&nbsp;pascal_random_tree | 2 | 29.50 ± 0.50‡ |"
  ) in text
  for expected in (
    "† p < 0.05, ‡ p < 0.01 against transformer",
    "Holm-adjusted in the family of 3 tests (BLEU, test)",
    "Failed runs: pascal seed 2.",
    "BLEU|case:mixed",
    "| pascal | transformer | +1.00 | +0.00 .. +2.00 | 0.0300",
    "| pascal | pascal_random_tree | +2.00 | +1.00 .. +3.00 | 0.0001 |",
    "Two seeds are too few",
    "a chip, 2 cores",
    "better (Holm-adjusted p < 0.05) in 2 of 3 pairs: pascal against "
    "pascal_random_tree +2.00 (+1.00 to +3.00); pascal against transformer "
    "+1.00 (+0.00 to +2.00).",
    "with the best checkpoint by validation BLEU (13a), beam 5, length penalty "
    "gnmt 0.6",
    "| pascal | Parent-scaled self-attention: Bugliarello & Okazaki 2020 (PASCAL).",
    "| pascal_random_tree | Control of pascal: random trees.",
  ):
    assert expected in text, expected


def test_all_systems_have_a_description():
  entry = made().systems[0]
  for name in [*systems.SYSTEMS, "pascal+relative", "of_an_older_version"]:
    config = entry.config | {"system": name}
    text = tables.description(dataclasses.replace(entry, config=config))
    assert len(text) > 20 or (name == "of_an_older_version" and not text), name


def test_warnings_precede_conclusions():
  first, *rest = notes.conclusions(made())
  assert "Two seeds are too few" in first and "2 of 3 pairs" in rest[0]
  scores = [
    dataclasses.replace(s, mean=s.mean / 40) for s in made().splits[0].scores
  ]
  first, *rest = notes.conclusions(with_split(scores=tuple(scores)))
  assert first.startswith("No system reaches 1 BLEU") and len(rest) > 1
  scores[0] = dataclasses.replace(scores[0], mean=1.0)
  first, *_ = notes.conclusions(with_split(scores=tuple(scores)))
  assert "Two seeds are too few" in first


def test_warns_if_most_runs_were_still_improving():
  results = made()
  (run,) = results.runs
  last = dataclasses.replace(run.facts, best_step=run.facts.step)
  improving = dataclasses.replace(run, facts=last)
  for runs, warned in (
    ((improving, run) * 2, False),
    ((improving,) * 2 + (run,), True),
  ):
    first, *_ = notes.conclusions(dataclasses.replace(results, runs=runs))
    assert first.startswith("In 2 of 3 runs, the last checkpoint is") == warned


def test_lists_the_options_that_differ_from_the_baseline():
  first, second, third = made().systems
  pascal = as_dict(config_of("pascal"))
  changed = as_dict(config_of("pascal"))
  changed["parts"]["encoder"]["parent_scaled"]["heads"] = [1]
  changed["seed"] = 3

  def listed(baseline, *others):
    configs = [as_dict(config_of(baseline)), *others]
    entries = [
      dataclasses.replace(entry, config=json.loads(json.dumps(config)))
      for entry, config in zip((first, second, third), configs)
    ]
    rows = tables.systems(made(systems=tuple(entries))).rows
    return [row[2].text for row in rows]

  assert listed("transformer", pascal, changed) == [
    "",
    "parts.encoder.parent_scaled",
    "parts.encoder.parent_scaled, parts.encoder.parent_scaled.heads=[1], seed=3",
  ]
  # Sections that only the baseline has, and choices of other sections.
  gru = as_dict(config_of("gru_global"))
  _, without, other = listed("pascal", as_dict(config_of("transformer")), gru)
  assert without == "without parts.encoder.parent_scaled"
  assert "model.family='gru', model.gru, " in other
  assert "without model.transformer" in other


def test_marks_the_smallest_ter_and_no_equal_scores():
  scores = made().splits[0].scores
  ter = tuple(dataclasses.replace(s, metric="TER") for s in scores)
  content = with_split(made(metrics=("TER",)), scores=ter, signatures={})
  text = report.markdown(content)
  assert "| **29.50 ± 0.50** |" in text and "**31.50" not in text
  equal = tuple(dataclasses.replace(s, mean=0.001) for s in scores)
  text = report.markdown(with_split(scores=equal))
  assert "| pascal | 2 | 0.00 ± 0.50† |" in text


def test_published_scores_have_a_column():
  others = {"Moses": {"nc11 test": 16.35}}
  ablation = results.Ablation("A", "Which layer?", others)
  content = with_first(published={"nc11 test": 23.2})
  content = dataclasses.replace(content, ablation=ablation)
  assert results.from_json(results.to_json(content)) == content
  text = report.markdown(content)
  assert "published BLEU, nc11 test" in text
  assert "| transformer | 2 | 30.50 ± 0.50 | 23.2 |" in text
  assert "not trained here: Moses: BLEU nc11 test 16.35." in text
  assert r"& \textcolor{gray}{23.2} \\" in report.latex(content)


def test_the_interval_of_one_seed_is_over_sentences(tmp_path):
  _, one, _ = made().splits[0].over_seeds
  one = dataclasses.replace(one, low=None, high=None, p=None, by_seed=(1.0,))
  text = report.markdown(with_split(made(seeds=(0,)), over_seeds=(one,)))
  assert "| transformer | +1.00 | +0.10 .. +1.90 |  |" in text
  assert "p-values are over sentences alone" in text
  alone = made(seeds=(0,), systems=made().systems[:1])
  alone = with_split(alone, over_seeds=(), buckets=())
  assert "One seed" in page.html(alone, tmp_path)


def test_reports_notes_commits_and_translating_parameters():
  (run,) = made().runs
  facts = dataclasses.replace(run.facts, notes=("parameters of step 5",))
  noted = dataclasses.replace(run, seed=1, commit="beef", facts=facts)
  content = made(runs=(run, noted))
  for text in (report.as_text(content), report.markdown(content)):
    assert "transformer seed 1: parameters of step 5" in text
    assert "of the code: 9.9 (c0ffee): 1 runs, 9.9 (beef): 1 runs." in text
  config = made().systems[0].config
  for section, options, expected in (
    ("train", {"average": 3}, "with the mean of the last 3 checkpoints, beam"),
    ("decode", {"checkpoint": "last"}, "with the last checkpoint, beam"),
  ):
    changed = config | {section: config[section] | options}
    assert expected in report.markdown(with_first(config=changed))


def renamed(name):
  """A comparison whose second system, test set and config have this name."""
  content = made()
  (split,), (first, second, _) = content.splits, content.systems
  failed = dataclasses.replace(content.failed[0], system=name, message=name)
  content = made(
    systems=(first, dataclasses.replace(second, name=name, controls=())),
    failed=(failed,),
    config_file=name,
  )
  return with_split(
    content,
    name=name,
    scores=(split.scores[0], dataclasses.replace(split.scores[1], system=name)),
    over_seeds=(dataclasses.replace(split.over_seeds[1], system=name),),
    over_sentences=(),
  )


def cells(row):
  """The cells of a row of Markdown, as they are shown."""
  matches = re.split(r"(?<!\\)(?:\\\\)*\|", row.replace("\\\\", "\0"))[1:-1]
  shown = [re.sub(r"\\([!-/:-@\[-`{-~])", r"\1", cell) for cell in matches]
  for entity, character in (("&lt;", "<"), ("&amp;", "&"), ("\0", "\\")):
    shown = [cell.replace(entity, character) for cell in shown]
  return [cell.strip() for cell in shown]


@pytest.mark.parametrize("name", HOSTILE)
def test_markdown_shows_names_unchanged(name):
  text = report.markdown(renamed(name))
  shown = " ".join(name.replace("\x00", "").split())
  assert not re.search(r"<[a-zA-Z/!?]", text)  # no tag begins
  rows = [cells(row) for row in text.splitlines() if row.startswith("| ")]
  assert [shown, "2", "**31.50 ± 0.50†**"] in rows
  # Scores, systems and buckets; runs; differences.
  assert sorted({len(row) for row in rows}) == [3, 11, 14]
  assert len(re.findall(r"^#", text, re.MULTILINE)) == 6  # headings
  for mark in "*`[]~$":  # each is behind a backslash
    plain = text.replace("**", "").replace("\\\\", "")
    assert all(re.findall(rf"(\\?){re.escape(mark)}", plain)), mark


def test_a_markdown_paragraph_starts_no_block():
  (run,) = made().runs
  for start in ("# b", "1. c", "> q", "- l", "+ m"):
    facts = dataclasses.replace(run.facts, notes=(start,))
    noted = dataclasses.replace(run, facts=facts, system=start)
    assert f"\n\n{start}" not in report.markdown(made(runs=(noted,)))


@pytest.mark.parametrize("name", [*HOSTILE, "[2ex]up", "*", "50% {of} #1 ^~"])
def test_latex_shows_names_unchanged(name):
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
  text = report.latex(made())
  assert r"\quad pascal\_random\_tree & 2 & 29.50 $\pm$ 0.50$^\ddagger$" in text
  assert r"\textbf{31.50 $\pm$ 0.50$^\dagger$} \\" in text
  rows = [line for line in below if line.endswith(r"\\")]
  assert len(rows) == 3 and all(row.count(" & ") == 2 for row in rows)
  for before, after in itertools.pairwise(below):
    # No star or option follows \\ or a rule.
    assert not (before.endswith((r"\\", "rule")) and after[:1] in "[*")


@pytest.fixture(scope="module")
def content(tmp_path_factory):
  return page.html(made(), tmp_path_factory.mktemp("page"))


def test_page_is_complete_and_reproducible(content, tmp_path):
  addresses = re.findall(r'(?:src|href)="([^"]*)"', content)
  ids = re.findall(r' id="([^"]*)"', content)
  images = [a for a in addresses if a.startswith("data:image/svg+xml;base64,")]
  assert len(images) == 3
  assert {a for a in addresses if a not in images} <= {f"#{i}" for i in ids}
  assert "@import" not in content and "url(" not in content
  assert page.html(made(), tmp_path) == content


def test_page_has_the_tables_and_notes_of_the_report(content, tmp_path):
  shown, result = Markup(content).striptags(), made()
  for table in (tables.scores, tables.systems, tables.differences, tables.runs):
    for row in table(result).rows:
      for cell in row:
        assert cell.text in shown, cell
  for texts in (notes.of_scores, notes.conclusions, notes.setting):
    for text in texts(result):
      assert text in shown, text
  assert "pascal, seed 2: why" in shown
  assert "60.0x <y> z" in shown  # an example
  assert '<td class="control">pascal_random_tree</td>' in content
  assert '<td class="number best">31.50 ± 0.50†</td>' in content
  content = page.html(renamed(HOSTILE[0] + HOSTILE[7]), tmp_path)
  assert "<script>alert" not in content and "&lt;script&gt;alert" in content


def test_page_has_attention_samples(content, tmp_path):
  assert 'id="attention"' not in content
  sample = tmp_path / "transformer" / "seed_0" / "look"
  sample.mkdir(parents=True)
  seen = {"text": "a & b", "translation": "x > y"}
  (sample / "sentence_0002.json").write_text(json.dumps(seen))
  (sample / "sentence_0002.tree.svg").write_bytes(b"a tree")
  (sample / "sentence_0002.attention.encoder_0.png").write_bytes(b"a map")
  content = page.html(made(), tmp_path)
  assert "<summary>a &amp; b</summary>" in content
  assert "<b>transformer</b> <span>→ x &gt; y</span>" in content
  for kind, file in (("svg+xml", b"a tree"), ("png", b"a map")):
    data = base64.b64encode(file).decode()
    assert content.count(f"data:image/{kind};base64,{data}") == 1


@pytest.mark.parametrize(
  ("hypothesis", "reference", "marked"),
  [
    ("a b c", "a b c", "a b c"),
    ("b a", "a b", "b <u>a</u>"),  # another order
    ("a x y c", "a b c", "a <u>x y</u> c"),
    ("", "a b", ""),
    ("a <b>", "a c", "a <u>&lt;b&gt;</u>"),
    ("私は行く", "私が行く", "私<u>は</u>行く"),
  ],
)
def test_marks_differences_to_the_reference(hypothesis, reference, marked):
  assert page.mark_differences(hypothesis, reference) == marked


def test_curves_of_the_likelihood(content, tmp_path):
  assert "log-likelihood" not in content  # no run has it
  (run,) = made().runs
  runs = []
  # The second run is shorter.
  for seed, values in enumerate(({3: -4.0, 6: -2.5}, {3: -5.0})):
    points = tuple(
      results.Point(step, 0.5, {"bleu": 2.0, "log_likelihood": value})
      for step, value in values.items()
    )
    runs.append(dataclasses.replace(run, seed=seed, curve=points))
  scored = made(runs=tuple(runs))
  (axes,) = plots.curves(scored, scored.system("pascal"), "log_likelihood").axes
  assert axes.get_ylabel() == "validation log-likelihood"
  (mean,) = [x for x in axes.lines if x.get_marker() == "o"]
  assert (list(mean.get_xdata()), list(mean.get_ydata())) == ([3], [-4.5])
  shown = page.html(scored, tmp_path)
  assert "<h3>BLEU</h3>" in shown and "<h3>log-likelihood</h3>" in shown


def test_figure_of_differences_equals_the_table():
  content = made()
  (axes,) = plots.differences(content, content.splits[0], "BLEU").axes
  rows = [label.get_text() for label in axes.get_yticklabels()]
  assert rows == ["pascal", "− pascal_random_tree", "pascal_random_tree"]
  bars = {}
  for line in axes.lines:
    x, y = line.get_xdata(), line.get_ydata()
    if len(x) == 2 and line.get_linewidth() == 2 and y[0] == y[1]:
      bars[rows[y[0]]] = list(x), line.get_color()
  assert bars["pascal"] == ([0.0, 2.0], plots.BLUE)  # p = .03
  assert bars["− pascal_random_tree"] == ([1.0, 3.0], plots.BLUE)
  one = dataclasses.replace(content.splits[0].over_seeds[1], adjusted_p=0.06)
  content = with_split(over_seeds=(one,))
  (axes,) = plots.differences(content, content.splits[0], "BLEU").axes
  assert plots.BLUE not in [line.get_color() for line in axes.lines]


def test_figure_of_buckets_has_no_point_for_few_sentences():
  content = made()
  pascal = content.system("pascal")
  figure = plots.by_fact(content, content.splits[0], by="depth", system=pascal)
  (axes,) = figure.axes
  (line,) = [x for x in axes.lines if x.get_marker() == "o"]
  assert list(line.get_ydata()) == [0.7]
  labels = [label.get_text() for label in axes.get_xticklabels()]
  assert labels == ["0-2\n4", "3\n16"]
  low, high = axes.get_ylim()
  assert low < -0.3 and high > 1.7  # includes the interval


def test_samples_attention_of_sentences_by_length(prepared, tmp_path):
  chosen = measure.sample(str(prepared), "test")
  lines = read_lines(
    manifests.sentence_file(prepared, "text", "test", "source")
  )
  rows = [lines.index(parse.text) for parse in chosen]
  assert len(rows) == measure.SAMPLES
  assert rows == sorted(set(rows))
  for parse in chosen:
    assert parse.parsed and 7 <= len(parse.head_W) <= 13
  manifests.write(tmp_path, toy_folders.manifest_of(tmp_path, sides=[]))
  assert measure.sample(str(tmp_path), "test") == []  # no trees


@pytest.mark.skipif(not CHROMIUM, reason="Chromium is not installed")
@pytest.mark.parametrize("width", [1280, 400])
def test_page_fits_a_browser(content, tmp_path, width):
  path = tmp_path / "report.html"
  path.write_text(content.replace("</body>", f"{MEASURE}</body>"))
  done = subprocess.run(
    [
      CHROMIUM,
      "--headless",
      "--no-sandbox",
      "--disable-gpu",
      "--dump-dom",
      f"--user-data-dir={tmp_path / 'browser'}",
      "--hide-scrollbars",
      f"--window-size={width},900",
      "--virtual-time-budget=5000",
      path.as_uri(),
    ],
    capture_output=True,
    text=True,
    timeout=60,
  )
  matches = re.search(r'data-found="([^"]*)"', done.stdout)
  assert matches, done.stderr
  assert matches.group(1) == "broken 0 of 3, too wide 0"
