"""A random subset of the training pairs."""

import dataclasses
import gzip
import pathlib
import shutil

import numpy as np
import pytest
from raw_corpora import chain, corpus, lines_of, records_of
from stage_runs import context_of, run

from jaxsyn.data.options import Subset
from jaxsyn.data.store import manifests
from jaxsyn.data.store.dataset import Dataset
from jaxsyn.errors import InputError
from jaxsyn.preprocess import build, clean, job, verify

PAIRS = 700


def large(tmp_path, pairs=PAIRS, seed=5):
  """A corpus with everything that belongs to a line, and its subset."""
  config = corpus(tmp_path, train=2500, test=40)
  raw = pathlib.Path(config.prepare.raw_dir)
  source = lines_of(config, "train.en")
  other = "".join(chain(line).replace("dep", "obj") for line in source)
  (raw / "train.other").write_text(other)
  (raw / "train.brackets").write_text("".join(map(bracketed, source)))
  links = (
    " ".join(f"{i}-{i}" for i in range(len(line.split()))) for line in source
  )
  (raw / "train.align").write_text("".join(f"{line}\n" for line in links))
  config.prepare.parse.source_alternatives = {"train": ("train.other",)}
  config.prepare.parse.source_brackets = {"train": "train.brackets"}
  config.prepare.alignments = {"train": ("train.align",)}
  config.prepare.clean.update(duplicates=True, max_words=7)
  config.prepare.subset.update(pairs=pairs, seed=seed)
  config.prepare.workers = 1
  return config


def bracketed(line):
  words = " ".join(f"(X {word})" for word in line.split())
  return f"(S {words})\n"


@pytest.fixture(scope="module")
def drawn(tmp_path_factory):
  """A config with a subset, its dataset directory, and the bytes of its files."""
  config = large(tmp_path_factory.mktemp("subset"))
  folder = build.run(config)
  return config, folder, records_of(folder)


def copied(config, tmp_path):
  """The same input and options for another folder."""
  config = config.copy_and_resolve_references()
  config.data.directory = str(tmp_path / "out")
  return config


def examples(folder, split="train"):
  return [*Dataset(folder).split(split)]


def lines(folder, split="train"):
  return [int(example["line"]) for example in examples(folder, split)]


def text_of(folder, side):
  paths = sorted((folder / "text").glob(f"train.{side}*.gz"))
  return b"".join(gzip.decompress(path.read_bytes()) for path in paths)


def drawn_lines(folder):
  text = gzip.decompress((folder / "text" / "train.drawn.gz").read_bytes())
  return [int(line) for line in text.split()]


def test_draws_clean_lines_and_records_them(drawn):
  config, folder, _ = drawn
  facts = manifests.read(folder)["splits"]["train"]
  result = lines(folder)
  assert len(result) == PAIRS == facts["examples"]
  assert result == sorted(set(result)) == drawn_lines(folder)
  clean_pairs = 2500 - facts["dropped"]["duplicates"]
  clean_pairs -= facts["dropped"]["max_words"]
  assert facts["dropped"]["duplicates"] > 50 < facts["dropped"]["max_words"]
  assert facts["subset"] == {
    "pairs": PAIRS,
    "of": clean_pairs,
    "seed": 5,
    "lines": "text/train.drawn.gz",
  }
  assert facts["lines"] == PAIRS + sum(facts["dropped"].values()) == 2500
  assert "text/train.drawn.gz" in manifests.read(folder)["files"]
  report = (folder / "report.txt").read_text()
  assert (
    f"subset     {PAIRS:,} of {clean_pairs:,} clean pairs, seed 5" in report
  )
  assert len(examples(folder, "test")) == 40
  # None is a line that cleaning would drop.
  source = lines_of(config, "train.en")
  texts = [source[line - 1] for line in result]
  assert len(set(texts)) == PAIRS
  assert max(len(text.split()) for text in texts) <= 7


def test_equals_preparing_a_file_with_exactly_these_lines(drawn, tmp_path):
  """Vocabulary, trees, alternatives, brackets, links: all but the numbers."""
  config, folder, _ = drawn
  chosen = [line - 1 for line in lines(folder)]
  single = copied(config, tmp_path)
  raw = tmp_path / "raw"
  shutil.copytree(config.prepare.raw_dir, raw)
  for name in ("train.en", "train.de.gz", "train.brackets", "train.align"):
    data = (raw / name).read_bytes()
    if name.endswith(".gz"):
      data = gzip.decompress(data)
    rows = data.splitlines(keepends=True)
    data = b"".join(rows[i] for i in chosen)
    if name.endswith(".gz"):
      data = gzip.compress(data)
    (raw / name).write_bytes(data)
  for name in ("train.conllu", "train.other"):
    blocks = (raw / name).read_text().split("\n\n")
    text = "".join(f"{blocks[i]}\n\n" for i in chosen)
    (raw / name).write_text(text)
  single.prepare.raw_dir = str(raw)
  for split in ("train", "test"):
    path = str(raw / f"{split}.conllu")
    single.prepare.parse.source_conllu[split] = path
  single.prepare.subset.pairs = 0
  other = build.run(single)
  assert lines(other) == [*range(1, PAIRS + 1)]
  assert (folder / "vocabulary.model").read_bytes() == (
    other / "vocabulary.model"
  ).read_bytes()
  for split in ("train", "test"):
    mine, theirs = examples(folder, split), examples(other, split)
    for one, two in zip(mine, theirs, strict=True):
      assert (
        set(one)
        == set(two)
        > {
          "source_head",
          "source_other_head",
          "source_brackets",
          "links",
        }
      )
      for name in set(one) - {"line"}:
        np.testing.assert_array_equal(one[name], two[name], name)
  train = examples(folder)
  assert all(len(example["links"]) for example in train)
  assert all(len(example["source_other_head"]) for example in train)
  assert sum(len(example["source_brackets"]) > 0 for example in train) > 600
  for side in ("source", "target"):
    assert text_of(folder, side) == text_of(other, side)


def test_does_not_depend_on_chunks_or_processes(drawn, tmp_path, monkeypatch):
  config = copied(drawn[0], tmp_path / "processes")
  config.prepare.workers = 2
  assert records_of(build.run(config)) == drawn[2]
  monkeypatch.setattr(job, "MIN_LINES", 64)
  monkeypatch.setattr(job, "MAX_LINES", 64)
  monkeypatch.setattr(clean, "_PARTITION_PAIRS", 900)
  config = copied(drawn[0], tmp_path / "chunks")
  assert records_of(build.run(config)) == drawn[2]


def test_subsets_of_one_seed_are_nested_and_seeds_differ(drawn, tmp_path):
  smaller = copied(drawn[0], tmp_path / "smaller")
  smaller.prepare.subset.pairs = 100
  result, larger = lines(build.run(smaller)), lines(drawn[1])
  assert len(result) == 100 and set(result) < set(larger)
  other = copied(drawn[0], tmp_path / "other")
  other.prepare.subset.seed = 6
  again = lines(build.run(other))
  shared = len(set(again) & set(larger))
  of = manifests.read(drawn[1])["splits"]["train"]["subset"]["of"]
  expected = PAIRS * PAIRS / of
  assert abs(shared - expected) < 5 * np.sqrt(expected * (1 - PAIRS / of))


def test_every_line_is_drawn_equally_often(tmp_path):
  """Chi-square over 600 seeds: 20 of 60 lines, and pairs of lines."""
  text = [f"line {index}" for index in range(60)]
  splits = {"train": (text, text)}
  context = context_of(tmp_path, splits, subset=Subset(20, 0))
  run(context, ("read", "clean"))
  combined = np.zeros((60, 60))
  for seed in range(600):
    config = context.config
    prepare = dataclasses.replace(config.prepare, subset=Subset(20, seed))
    config = dataclasses.replace(config, prepare=prepare)
    other = job.JobContext(dataclasses.replace(context.job, config=config))
    other.outputs.write_summary("duplicates", clean.select(other, []))
    rows = clean.kept_rows(other, 0)
    assert len(rows) == 20 and rows == sorted(rows)
    combined[np.ix_(rows, rows)] += 1
  counts = np.diag(combined)
  # Of a count the variance is 600 (1/3) (2/3); 59 degrees of freedom.
  chi = ((counts - 600 / 3) ** 2).sum() / (600 * 2 / 9) * 59 / 60
  assert 35 < chi < 90
  share = 20 * 19 / (60 * 59)
  of_both = combined[np.triu_indices(60, 1)] - 600 * share
  assert abs(of_both).max() < 4.5 * np.sqrt(600 * share * (1 - share))


def test_verify_finds_changed_line_numbers(drawn, tmp_path, capsys):
  config, folder, _ = drawn
  verify.run(folder)
  assert "is intact" in capsys.readouterr().out
  copy = tmp_path / "copy"
  shutil.copytree(folder, copy, ignore=shutil.ignore_patterns("work"))
  path = copy / "text" / "train.drawn.gz"
  path.write_bytes(gzip.compress(b"1\n2\n3\n", mtime=0))
  with pytest.raises(InputError, match=r"train\.drawn\.gz"):
    verify.run(copy)
  assert build.run(config) == folder
  assert "is prepared already" in capsys.readouterr().out


def test_rejects_more_pairs_than_there_are(drawn, tmp_path):
  of = manifests.read(drawn[1])["splits"]["train"]["subset"]["of"]
  config = copied(drawn[0], tmp_path)
  config.prepare.subset.pairs = of
  assert len(lines(build.run(config))) == of
  config.prepare.subset.pairs = of + 1
  with pytest.raises(
    InputError,
    match=rf"config\.prepare\.subset\.pairs is {of + 1:,}, .* {of:,} .*2,500",
  ):
    build.run(config)


def test_without_a_subset_nothing_changes(tmp_path):
  config = corpus(tmp_path)
  folder = build.run(config)
  facts = manifests.read(folder)["splits"]["train"]
  assert "subset" not in facts["dropped"] and "subset" not in facts
  assert not (folder / "text" / "train.drawn.gz").exists()
  config.prepare.subset.seed = 9
  key = manifests.read(folder)["key"]
  assert manifests.read(build.run(config))["key"] == key
  config.prepare.subset.pairs = 10
  build.run(config)
  config.prepare.subset.pairs = 0
  build.run(config)
  assert not (folder / "text" / "train.drawn.gz").exists()


def test_does_not_replace_pairs_with_too_many_subwords(tmp_path):
  config = corpus(tmp_path)
  config.prepare.subset.update(pairs=40, seed=1)
  config.prepare.max_subwords = 10
  folder = build.run(config)
  facts = manifests.read(folder)["splits"]["train"]
  assert facts["dropped"]["max_subwords"] > 0
  assert facts["examples"] == 40 - facts["dropped"]["max_subwords"]
  assert len(drawn_lines(folder)) == 40
  assert set(lines(folder)) < set(drawn_lines(folder))
  verify.run(folder)
