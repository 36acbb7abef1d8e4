"""Word alignments of a corpus: with their pairs through all of preparing."""

import collections
import dataclasses
import pathlib

import numpy as np
import pytest
from raw_corpora import corpus, lines_of
from toy_folders import data_of, opened

from jaxsyn.data.loader.batch_sampler import Position
from jaxsyn.data.options import Sampling
from jaxsyn.data.store import example_check, manifests
from jaxsyn.data.store.dataset import Dataset
from jaxsyn.data.store.rows import InvalidExampleError, Rows
from jaxsyn.errors import InputError
from jaxsyn.preprocess import build


def crossed(line):
  """The links of a line of `corpus`: word i with the last but i."""
  words = len(line.split())
  return " ".join(f"{i}-{words - 1 - i}" for i in range(words))


def with_links(tmp_path, change=lambda lines: lines):
  """A corpus with alignments of its training split."""
  config = corpus(tmp_path)
  config.prepare.parse.sides = ()
  config.prepare.workers = 1
  lines = change([crossed(line) for line in lines_of(config, "train.en")])
  raw = pathlib.Path(config.prepare.raw_dir)
  (raw / "train.align").write_text("".join(f"{line}\n" for line in lines))
  config.prepare.alignments["train"] = ("train.align",)
  return config


def units_of(example, side):
  """Which subwords each word between blanks has."""
  by_name = collections.defaultdict(list)
  for place, unit in enumerate(example[f"{side}_unit"].tolist()):
    by_name[unit].append(place)
  return by_name


def test_links_stay_with_their_pairs(tmp_path):
  """Pairs are dropped before, between and after: an empty one, too long ones,
  and repeats."""
  config = with_links(tmp_path, lambda lines: ["", *lines[1:]])
  raw = pathlib.Path(config.prepare.raw_dir)
  lines = lines_of(config, "train.en")
  lines[7], lines[3] = "", lines[20]
  (raw / "train.en").write_text("".join(f"{line}\n" for line in lines))
  links = ["", *map(crossed, lines[1:])]
  (raw / "train.align").write_text("".join(f"{one}\n" for one in links))
  other = [*map(str.upper, lines)]
  (raw / "train.de").write_text("".join(f"{line}\n" for line in other))
  config.prepare.splits["train"] = ("train.en", "train.de")
  config.prepare.clean.update(duplicates=True, max_words=7)
  folder = build.run(config)
  manifest = manifests.read(folder)
  about = manifest["splits"]["train"]
  saved = [*Dataset(folder).split("train")]
  numbers = [int(one["line"]) - 1 for one in saved]
  assert {"empty", "duplicates", "max_words"} <= {
    reason for reason, count in about["dropped"].items() if count
  }
  assert len(numbers) == len(set(lines) - {""}) - sum(
    len(line.split()) > 7 for line in set(lines)
  )
  for one, index in zip(saved, numbers):
    result = one["links"].reshape(-1, 2).tolist()
    assert " ".join(f"{i}-{j}" for i, j in result) == links[index]
    assert set(units_of(one, "source")) == {
      -1,
      *range(len(lines[index].split())),
    }
  # A pair without links is kept.
  counts = {"used": len(saved) - 1, "no links": 1}
  assert about["optional"] == {"alignments": counts} and numbers[0] == 0
  for one in Dataset(folder).split("test"):  # a split that was given none
    assert one["links"].size == 0 and one["source_unit"][0] == 0


def test_batches_have_links_also_with_sampled_subwords(tmp_path):
  folder = build.run(with_links(tmp_path))
  records = Dataset(folder).split("train")
  for sides in ((), ("source", "target")):
    data = dataclasses.replace(data_of(), sampling=Sampling(sides, alpha=0.5))
    split = opened(records, {"links"}, data=data, tokens=512, shapes=2)
    draws = 0
    batches = split.batches(Position(0))
    for planned, train_batch in zip(split.batch_sampler.epoch(0), batches):
      batch = train_batch.batch
      for row, index in enumerate(planned.ids.tolist()):
        one = records[index]
        size = (batch["target_id_BT"][row] != 0).sum()
        draws += size != len(one["target_id"])
        units = batch["source_unit_BS"][row], batch["target_unit_BT"][row]
        words = max(units[0]) + 1
        for t, s in np.ndindex(batch["links_BTS"][row].shape):
          due = units[0][s] >= 0 and units[1][t] == words - 1 - units[0][s]
          assert batch["links_BTS"][row, t, s] == due, (index, t, s)
    assert (draws > 20) == bool(sides)


def test_maps_links_of_tokenized_words_to_words_of_the_text(tmp_path):
  config = with_links(tmp_path)
  raw = pathlib.Path(config.prepare.raw_dir)
  lines = [f"{line}, or so." for line in lines_of(config, "train.en")]
  files = {
    "train.en": lines,
    "train.de": lines,
    "train.en.tok": [f"{x[:-8]} , or so ." for x in lines],
    "train.de.tok": [f"{x[:-4]} so ." for x in lines],
    # The comma, "so", and the full stop; word 2 of the raw text ends in it.
    "train.align": [
      f"{n}-{n - 1} {n + 2}-{n + 1} {n + 3}-{n + 2}"
      for n in (len(x[:-8].split()) for x in lines)
    ],
  }
  for name, value in files.items():
    (raw / name).write_text("".join(f"{line}\n" for line in value))
  config.prepare.splits["train"] = ("train.en", "train.de")
  config.prepare.alignments["train"] = (
    *("train.align", "train.en.tok", "train.de.tok"),
  )
  for one, line in zip(Dataset(build.run(config)).split("train"), lines):
    last = len(line.split()) - 1
    assert one["links"].reshape(-1, 2).tolist() == [
      [last - 2, last - 2],
      [last, last],
    ]
  (raw / "train.de.tok").write_text("x\n" * len(lines))
  with pytest.raises(
    InputError, match=r"train\.de\.tok:1: the word 'x' is not"
  ):
    build.run(config)


@pytest.mark.parametrize(
  ("feature", "value", "message"),
  [
    ("links", [0, 0, 1], "has half a link"),
    ("links", [0, -1], "must be from 0 to 2147483647, got -1"),
    ("source_unit", [0, 9, -1], "must be from -1 to 2, got 9"),
    ("target_unit", [0, -1], "has another number of values"),
  ],
)
def test_checks_links_of_examples(feature, value, message):
  manifest = {
    "sides": [],
    "relations": {},
    "vocabulary": {side: {"size": 9} for side in ("source", "target")},
    "alignments": True,
  }
  example = {
    "line": 1,
    "source_id": [5, 6, 3],
    "target_id": [5, 6, 3],
    "source_unit": [0, 1, -1],
    "target_unit": [0, 0, -1],
    "links": [0, 0, 1, 0],
  }

  def rows(example):
    arrays = {k: np.array(v, np.int32) for k, v in example.items()}
    arrays["line"] = arrays["line"].astype(np.int64)
    return Rows.of([arrays], list(arrays))

  example_check.check(rows(example), manifest)
  with pytest.raises(InvalidExampleError, match=f"{feature} {message}"):
    example_check.check(rows({**example, feature: value}), manifest)
