"""Cleaning: each reason by a pair made for it."""

import dataclasses
import gzip
import tempfile
from pathlib import Path

import pytest
import stage_runs
from raw_corpora import chain, corpus, lines_of

from jaxsyn.data.options import Clean
from jaxsyn.data.schema import EOS
from jaxsyn.data.sentence.text import read_lines
from jaxsyn.data.store import manifests
from jaxsyn.data.store.dataset import Dataset
from jaxsyn.errors import InputError
from jaxsyn.preprocess import build, clean

OFF = Clean(
  max_words=0,
  max_characters=0,
  max_ratio=0.0,
  duplicates=False,
  language=False,
)


def kept(pairs, **options):
  """Returns the rows of the pairs that are kept, and counts of the others."""
  with tempfile.TemporaryDirectory() as folder:
    context = stage_runs.context_of(
      Path(folder),
      {"train": [*zip(*pairs)]},
      clean=dataclasses.replace(OFF, **options),
    )
    stage_runs.run(context)
    chunks = context.chunks("train")
    rows = [
      context.chunk(chunk).lines[row]
      for chunk in chunks
      for row in clean.kept_rows(context, chunk)
    ]
    dropped = context.summary("duplicates")["dropped"]["train"]
    return rows, {reason: n for reason, n in dropped.items() if n}


GOOD = ("a b", "c d")


@pytest.mark.parametrize(
  ("options", "bad", "good"),
  [
    ({}, ("", "x"), ("x", "y")),
    ({}, ("x", " \t\u3000"), ("x", "\u200ba")),
    # Zero-width characters: no subword is left of them, and EOS would be
    # trained to give EOS.
    ({}, ("x", "\u200b"), ("\u0301", "y")),
    ({}, ("\u200d \ufeff", "\u00ad"), ("x", ".")),
    ({}, ("a\x01b", "c"), ("a\tb", "c")),
    ({}, ("a", "b\rc"), ("a", "b\u2028c")),
    ({"max_words": 3}, ("a", "1 2 3 4"), ("a b c", "1 2 3")),
    ({"max_characters": 4}, ("abcde", "x"), ("abcd", "x")),
    ({"max_ratio": 2.0}, ("a", "1 2 3"), ("a", "1 2")),
  ],
)
def test_each_reason_drops_its_pair(options, bad, good):
  rows, dropped = kept([bad, good], **options)
  assert rows == [1] and sum(dropped.values()) == 1
  if options:
    assert [*dropped] == [*options]
    assert kept([bad, good])[0][-1] == 1


def test_duplicates_keep_the_first():
  pairs = [("a", "b"), ("a", "c"), ("a", "b"), ("b", "a"), ("a", "b")]
  assert kept(pairs, duplicates=True) == ([0, 1, 3], {"duplicates": 2})


def test_language():
  english, german = "Two young men are playing.", "Zwei Männer spielen draußen."
  pairs = [
    (english, german),
    (german, english),  # neither side is confirmed
    (english, english),  # the target is not
    (german, german),  # the source is not
  ]
  assert kept(pairs, language=True) == ([0], {"language": 3})
  dropped = {"language": 6, "duplicates": 1}
  both = kept(pairs[::-1] * 2, language=True, duplicates=True)
  assert both == ([3], dropped)


def test_language_of_real_captions(shared_data):
  sides = [
    read_lines(shared_data / "multi30k" / f"train.{code}.gz")[:3000]
    for code in ("en", "de")
  ]
  pairs = list(zip(*sides))
  right, dropped = kept(pairs, language=True)
  assert len(right) + dropped["language"] == 3000
  assert dropped["language"] < 15  # 0.5 %
  assert kept(pairs[::-1], language=True)[1] == dropped
  turned = [(b, a) for a, b in pairs]
  with pytest.raises(InputError, match=r"is left of 3000 \(dropped: language"):
    kept(turned, language=True)


def test_unknown_language():
  with pytest.raises(InputError, match=r"source_language: .* know 'qaa'"):
    clean.filters(dataclasses.replace(OFF, language=True), "qaa", "de")


def test_a_pair_counts_once_for_the_first_reason():
  pairs = [("", "1 2 3 4"), ("1 2 3 4", "x"), GOOD]
  assert kept(pairs, max_words=3) == (
    [2],
    {"empty": 1, "max_words": 1},
  )


def test_reports_that_no_pair_is_left():
  with pytest.raises(
    InputError, match=r"no training pair is left of 2 .*max_characters 2"
  ):
    kept([("aa", "b"), ("a", "bb")], max_characters=1)


def test_duplicates_far_apart(tmp_path, monkeypatch):
  """In other chunks, groups of chunks and partitions: the first stays."""
  monkeypatch.setattr(clean, "_PARTITION_PAIRS", 1500)
  lines = [str(i * i % 4099) for i in range(6000)]
  first = {line: i for i, line in reversed([*enumerate(lines)])}
  result, dropped = kept([*zip(lines, lines)], duplicates=True)
  assert result == sorted(first.values())
  assert dropped == {"duplicates": 6000 - len(first)}


def write(config, name, lines):
  """Writes a raw file anew; the trees of a source too."""
  folder = Path(config.prepare.raw_dir)
  data = "".join(f"{line}\n" for line in lines).encode()
  if name.endswith(".gz"):
    data = gzip.compress(data)
  (folder / name).write_bytes(data)
  if name.endswith(".en"):
    trees = (folder / name).with_suffix(".conllu")
    trees.write_text("".join(map(chain, lines)))


def test_drops_training_pairs_with_nul(tmp_path):
  config = corpus(tmp_path)
  lines = lines_of(config, "train.en")
  write(config, "train.de.gz", ["a\x00b", *lines[1:]])
  folder = build.run(config)
  assert manifests.read(folder)["splits"]["train"]["dropped"]["control"] == 1


# Nothing to see in any of these; SentencePiece leaves no subword of the first
# four, and of the others its blank and an unknown one.
UNSEEN = ("\u200b", "\ufeff", "\u2581", " \u3000", "\u200d\u200d", "\u00ad")


def test_pairs_without_subwords(tmp_path):
  """They trained EOS to give EOS."""
  config = corpus(tmp_path)
  lines = lines_of(config, "train.en")
  write(config, "train.en", [*UNSEEN, *lines[6:]])
  write(config, "train.de.gz", [*lines[:6], *UNSEEN, *lines[12:]])
  tests = lines_of(config, "test.en")
  write(config, "test.en", [*UNSEEN, tests[6]])
  folder = build.run(config)
  facts = manifests.read(folder)["splits"]
  assert facts["train"]["dropped"]["empty"] == 12
  assert facts["train"]["blank"] == {"source": 0, "target": 0}
  for one in Dataset(folder).split("train"):
    assert len(one["source_id"]) > 1 and len(one["target_id"]) > 1
  # What is to be scored stays, and is told.
  assert facts["test"]["blank"] == {"source": 4, "target": 0}
  ids = [one["source_id"].tolist() for one in Dataset(folder).split("test")]
  assert [len(item) for item in ids[:6]] == [1, 1, 1, 1, 3, 3]
  assert ids[0] == [EOS]
  report = (folder / "report.txt").read_text()
  assert "dropped    empty 12" in report and "no text    source 4" in report
