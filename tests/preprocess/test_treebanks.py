"""Trees that come as CoNLL-U, and treebanks as raw text."""

from __future__ import annotations

import gzip
import pathlib

import numpy as np
import pytest
from raw_corpora import chain, corpus, lines_of, records_of

from jaxsyn.configs import pud
from jaxsyn.data import schema
from jaxsyn.data.sentence import conllu
from jaxsyn.data.store import manifests
from jaxsyn.data.store.dataset import Dataset
from jaxsyn.errors import InputError
from jaxsyn.preprocess import build


def test_conllu_in_the_folder_of_the_raw_files(tmp_path):
  a = corpus(tmp_path / "a")
  expected = records_of(build.run(a))
  b = corpus(tmp_path / "b")
  for split in ("train", "test"):
    b.prepare.parse.source_conllu[split] = f"{split}.conllu"
  assert records_of(build.run(b)) == expected
  inputs, b.prepare.raw_dir = b.prepare.raw_dir, ""
  assert build.run(b, inputs) == pathlib.Path(b.data.directory)
  b.prepare.parse.source_conllu["test"] = "tset.conllu"
  with pytest.raises(
    InputError,
    match=r"source_conllu\.test: there is no file tset\.conllu, nor .*b/raw\)",
  ):
    build.run(b, inputs)


def treebank_corpus(tmp_path):
  """The same corpus; the source is a treebank of all, cut by line numbers."""
  config = corpus(tmp_path)
  raw = pathlib.Path(config.prepare.raw_dir)
  lines = lines_of(config, "train.en") + lines_of(config, "test.en")
  trees = [f"# text = {line}\n{chain(line)}" for line in lines]
  with gzip.open(raw / "all.conllu.gz", "wt") as file:
    file.write("".join(trees))
  (raw / "all.de").write_text("".join(f"{x.upper()}\n" for x in lines))
  for split, cut in (("train", "1-60"), ("test", "61-67")):
    config.prepare.splits[split] = ("all.conllu.gz", "all.de", cut)
  config.prepare.parse.source_conllu = {}
  return config


def test_a_treebank_as_raw_text(tmp_path):
  plain = build.run(corpus(tmp_path / "plain"))
  folder = build.run(treebank_corpus(tmp_path / "treebank"))
  for split, first in (("train", 1), ("test", 61)):
    pairs = zip(
      Dataset(plain).split(split), Dataset(folder).split(split), strict=True
    )
    for i, (a, b) in enumerate(pairs):
      assert b["line"] == first + i  # of the file, not of the part
      for name in set(a) - {"line"}:
        np.testing.assert_array_equal(a[name], b[name])
  was, now = manifests.read(plain), manifests.read(folder)
  assert now["vocabulary"] == was["vocabulary"]
  assert now["parser"] == was["parser"]
  assert now["parser"]["source"]["trees"] == "CoNLL-U"
  assert now["splits"]["test"]["lines"] == 7
  assert now["options"]["splits"]["test"] == [
    "all.conllu.gz",
    "all.de",
    "61-67",
  ]


def test_cleaning_a_part_of_a_file(tmp_path):
  config = treebank_corpus(tmp_path)
  raw = pathlib.Path(config.prepare.raw_dir)
  config.prepare.splits.train = ("all.conllu.gz", "all.de", "11-60")
  target = lines_of(config, "all.de")
  target[2] = target[12] = ""  # line 3 is in no part, line 13 in "train"
  (raw / "all.de").write_text("".join(f"{x}\n" for x in target))
  folder = build.run(config)
  facts = manifests.read(folder)["splits"]["train"]
  assert (facts["lines"], facts["examples"]) == (50, 49)
  assert facts["dropped"]["empty"] == 1
  numbers = [int(one["line"]) for one in Dataset(folder).split("train")]
  assert numbers == [11, 12, *range(14, 61)]


def test_reports_treebanks_for_some_splits_only(tmp_path):
  config = treebank_corpus(tmp_path)
  config.prepare.splits.test = ("test.en", "test.de.gz")
  with pytest.raises(
    InputError, match=r"source files of train are treebanks, those of test are"
  ):
    build.run(config)


def test_a_named_parser_takes_precedence_over_treebanks(tmp_path, prepared):
  config = treebank_corpus(tmp_path)
  model = str(prepared / "parser.source.udpipe")
  config.prepare.parse.source.udpipe.model = model
  config.prepare.workers = 1
  manifest = manifests.read(build.run(config))
  assert manifest["parser"]["source"]["trees"] == "parser"
  assert manifest["parser"]["source"]["name"] == "parser.source.udpipe"
  # Both: its own trees, and the parser goes along for translation.
  for split in ("train", "test"):
    config.prepare.parse.source_conllu[split] = "all.conllu.gz"
  manifest = manifests.read(build.run(config))
  assert manifest["parser"]["source"]["trees"] == "CoNLL-U"
  assert manifest["parser"]["source"]["name"] == "parser.source.udpipe"
  assert manifest["relations"] == {"source": ["dep", "root"]}


def test_parallel_treebanks(shared_data, tmp_path):
  """Real gold trees: multi-word tokens, crossing arcs, text without blanks."""
  folder, pair = shared_data / "ud", ("de", "ja")
  files = [folder / f"{language}_pud.conllu.gz" for language in pair]
  if not all(file.is_file() for file in files):
    pytest.skip(f"no treebanks in {folder}")
  config = pud.pud(*pair)
  config.data.directory = str(tmp_path / "out")
  manifest = manifests.read(build.run(config, str(folder)))
  assert manifest["sides"] == ["source", "target"]
  trees = [list(conllu.read(file)) for file in files]
  names = [  # the same sentences
    [next(c for c in t.comments if c.startswith("# sent_id")) for t in side]
    for side in trees
  ]
  assert names[0] == names[1]
  first = 0
  for split, count in (("train", 800), ("validation", 100), ("test", 100)):
    facts = manifest["splits"][split]
    assert (facts["examples"], facts["unparsed"]) == (count, 0)
    for i, one in enumerate(
      Dataset(tmp_path / "out").split(split), start=first
    ):
      assert one["line"] == i + 1
      for side, blocks in zip(schema.SIDES, trees):
        assert tuple(one[f"{side}_head"]) == blocks[i].head_W
    first += count
