"""Cleaning of the training split: each reason, duplicates, languages."""

import dataclasses
import tempfile
from pathlib import Path

import numpy as np
import pytest
import stage_runs
from raw_corpora import chain, corpus, lines_of, raw_of, write_lines

from jaxsyn.data.options import Clean
from jaxsyn.data.schema import EOS
from jaxsyn.data.sentence.text import read_lines
from jaxsyn.data.store import manifests
from jaxsyn.data.store.dataset import Dataset
from jaxsyn.errors import InputError
from jaxsyn.preprocess import build, clean, selection

OFF = Clean(0, 0, 0.0, duplicates=False, language=False)


def kept(pairs, **options):
  """Returns the rows of the pairs that are kept, and counts of the others."""
  with tempfile.TemporaryDirectory() as folder:
    job = stage_runs.job_of(
      Path(folder),
      {"train": [*zip(*pairs)]},
      clean=dataclasses.replace(OFF, **options),
    )
    stage_runs.run(job)
    chunks = job.chunks("train")
    code_P = np.concatenate([selection.codes_of(job, n) for n in chunks])
    dropped = clean.count_dropped(code_P, job.config.prepare)
    rows = np.flatnonzero(code_P == 0).tolist()
    return rows, {reason: n for reason, n in dropped.items() if n}


@pytest.mark.parametrize(
  ("options", "bad", "good"),
  [
    ({}, ("", "x"), ("x", "y")),
    ({}, ("x", " \t\u3000"), ("x", "\u200ba")),
    # Zero-width characters leave no subword, and EOS would be trained to give
    # EOS.
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
    assert kept([bad, good])[0] == [0, 1]


def test_a_pair_counts_once_for_the_first_reason():
  pairs = [("", "1 2 3 4"), ("1 2 3 4", "x"), ("a b", "c d")]
  assert kept(pairs, max_words=3) == ([2], {"empty": 1, "max_words": 1})
  with pytest.raises(InputError, match=r"no .* left of 2 .*max_characters 2"):
    kept([("aa", "b"), ("a", "bb")], max_characters=1)


def test_duplicates_keep_the_first(monkeypatch):
  pairs = [("a", "b"), ("a", "c"), ("a", "b"), ("b", "a"), ("a", "b")]
  assert kept(pairs, duplicates=True) == ([0, 1, 3], {"duplicates": 2})
  # In other chunks and partitions.
  monkeypatch.setattr(selection, "_PARTITION_PAIRS", 1500)
  lines = [str(i * i % 4099) for i in range(6000)]
  first = {line: i for i, line in reversed([*enumerate(lines)])}
  rows, dropped = kept([*zip(lines, lines)], duplicates=True)
  assert rows == sorted(first.values())
  assert dropped == {"duplicates": 6000 - len(first)}


def test_both_sides_must_have_their_language(shared_data):
  files = [
    shared_data / "multi30k" / f"train.{code}.gz" for code in ("en", "de")
  ]
  captions = [*zip(*(read_lines(file)[:300] for file in files))]
  _, dropped = kept(captions, language=True)
  assert dropped.get("language", 0) < 2  # 0.5 %
  english, german = "Two young men are playing.", "Zwei Männer spielen draußen."
  pairs = [(english, german), (german, english), (english, english)]
  pairs.append((german, german))
  both = kept(pairs[::-1] * 2, language=True, duplicates=True)
  assert both == ([3], {"language": 6, "duplicates": 1})
  with pytest.raises(InputError, match=r"is left of 1 \(dropped: language 1"):
    kept(pairs[1:2], language=True)
  with pytest.raises(InputError, match=r"source_language: .* know 'qaa'"):
    clean.identified_languages(("qaa", "de"))


# Texts that show no characters; SentencePiece leaves no subword of the first
# four, and of the others its blank and an unknown one.
UNSEEN = ("\u200b", "\ufeff", "\u2581", " \u3000", "\u200d\u200d", "\u00ad")


def test_only_the_training_split_is_cleaned(tmp_path):
  """Pairs without subwords would train EOS to give EOS."""
  config = corpus(tmp_path)
  long, raw = " ".join(["dog"] * 200), raw_of(config)
  lines = lines_of(config, "train.en")
  source = [*UNSEEN, *lines[6:20], long, *lines[21:]]
  target = [*lines[:6], *UNSEEN, "a\x00b", *lines[13:]]
  write_lines(raw / "train.de.gz", target)
  for split, texts in (("train", source), ("test", [*UNSEEN, long])):
    write_lines(raw / f"{split}.en", texts)
    (raw / f"{split}.conllu").write_text("".join(map(chain, texts)))
  folder = build.run(config)
  splits = manifests.read(folder)["splits"]
  assert splits["train"]["dropped"] == {
    "empty": 12, "control": 1, "max_words": 1, "max_characters": 0,
    "max_subwords": 0,
  }  # fmt: skip
  assert splits["train"]["blank"] == {"source": 0, "target": 0}
  train = [*Dataset(folder).split("train")]
  kept_lines = [*range(14, 21), *range(22, 61)]
  assert [int(one["line"]) for one in train] == kept_lines
  for one in train:
    assert len(one["source_id"]) > 1 and len(one["target_id"]) > 1
  # Pairs that are scored stay, and are counted.
  assert splits["test"]["dropped"] == {}
  assert splits["test"]["blank"] == {"source": 4, "target": 0}
  test = [*Dataset(folder).split("test")]
  ids = [one["source_id"].tolist() for one in test]
  assert [len(item) for item in ids[:6]] == [1, 1, 1, 1, 3, 3]
  assert ids[0] == [EOS] and len(test[0]["source_head"]) == 0
  assert len(test[6]["source_head"]) == 200
  report = (folder / "report.txt").read_text()
  assert "dropped    empty 12, control 1, max_words 1" in report
  assert "no text    source 4" in report
