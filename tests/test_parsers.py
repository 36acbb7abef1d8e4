"""Tests spaCy and Stanza parsers from raw text to translations."""

from __future__ import annotations

import contextlib
import gzip
import itertools
import json
import os

import numpy as np
import parsers_under_test
import pytest

from jaxsyn import train
from jaxsyn.data import schema
from jaxsyn.data.sentence import conllu
from jaxsyn.data.sentence.parsers import PARSERS
from jaxsyn.data.store import manifests
from jaxsyn.data.store.dataset import Dataset
from jaxsyn.decode.sources import SessionReader
from jaxsyn.errors import InputError
from jaxsyn.preprocess import build
from jaxsyn.session import Session
from jaxsyn.session.member import source_reader

PAIRS = 200


@pytest.fixture(scope="module")
def raw(shared_data, tmp_path_factory):
  """A folder of 200 captions, English and German."""
  folder = tmp_path_factory.mktemp("raw")
  for code in ("en", "de"):
    path = shared_data / "multi30k" / f"val.{code}.gz"
    with gzip.open(path, "rt", encoding="utf-8", newline="\n") as file:
      lines = list(itertools.islice(file, PAIRS))
    (folder / f"all.{code}").write_text("".join(lines), encoding="utf-8")
  return folder


@pytest.fixture
def pipelines(shared_data, made_once):
  """Folders of two spaCy pipelines, trained on different numbers of trees."""
  return [
    made_once(
      name,
      lambda path, n=n: parsers_under_test.spacy_pipeline(
        path, shared_data, trees=n
      ),
    )
    for name, n in (("spacy_pipeline", 40), ("spacy_other", 10))
  ]


def test_from_raw_text_to_translations(
  tiny, raw, pipelines, tmp_path, monkeypatch
):
  kind, (place, other) = "spacy", map(str, pipelines)
  config = tiny("pascal")
  config.data.name, config.data.directory = "captions", str(tmp_path / "data")
  config.data.target_language = "de"
  for name, lines in (("train", "1-180"), ("validation", "181-200")):
    config.prepare.splits[name] = ("all.en", "all.de", lines)
  del config.prepare.splits["test"]
  config.data.test = ()
  parse = config.prepare.parse
  parse.target_conllu, parse.sides = {}, ("source",)
  config.prepare.alignments = {}
  parse.source.parser = kind
  parse.source.spacy.model = place
  parse.source.udpipe.model = "unused"
  config.prepare.vocabulary.size = 300
  config.prepare.workers = 2
  config.train.update(steps=5, evaluate_every=5, save_every=5)
  config.train.validation_sentences = 2
  folder = build.run(config, str(raw))

  # Each line has the words and heads that the parser itself gives.
  lines = (raw / "all.en").read_text().splitlines()
  direct = PARSERS[kind](place).open()
  expected = direct.parses(lines[:180])
  trees = conllu.read(
    manifests.sentence_file(folder, "conllu", "train", "source")
  )
  assert [*conllu.match(trees, lines[:180], "all.en")] == expected
  for parse, example in zip(
    expected, Dataset(folder).split("train"), strict=True
  ):
    assert example["source_head"].tolist() == list(parse.head_W)
    assert example["source_parsed"] == parse.parsed
  manifest = manifests.read(folder)
  entry = manifest["parser"]["source"]
  assert entry == {"file": "", "trees": "parser", **direct.identity.entry()}
  assert kind in (folder / "report.txt").read_text()
  # A second run changes no file.
  saved = {path: path.stat().st_mtime_ns for path in folder.rglob("*.gz")}
  build.run(config, str(raw))
  assert {path: path.stat().st_mtime_ns for path in saved} == saved

  run = tmp_path / "run"
  assert train.run(config, run).step == 5
  session = Session(run, beam=2)
  sources = [lines[190], "", "A dog can't swim. It runs!"]
  translations = session(sources)
  assert len(translations) == 3 and translations[1][0].text == ""
  for line in sources:
    parse, example = direct(line), session.example(line)
    assert session.sources.parse(line) == parse
    np.testing.assert_array_equal(example["source_head"], parse.head_W)
  # In worker processes, which open their own parsers.
  monkeypatch.setattr("jaxsyn.decode.sources.FEW", 2)
  with contextlib.closing(SessionReader([session.sources])) as reader:
    started = reader.read_async(lines[:40])
    assert reader._workers is not None
    for (example, _), parse in zip(
      started.result(), expected[:40], strict=True
    ):
      np.testing.assert_array_equal(example["source_head"], parse.head_W)

  opened = source_reader(session.run, longest=99)
  assert opened.parse(lines[0]) == expected[0]
  opened = source_reader(session.run, longest=99, parser=place)
  assert opened.parse(sources[2]) == direct(sources[2])
  opened = source_reader(session.run, longest=99, parser=other)
  with pytest.raises(InputError) as error:
    opened.parse(lines[0])
  message = str(error.value)
  assert "\n" not in message and direct.identity.name in message


def test_missing_parser_is_reported_before_preparation(tiny, raw, tmp_path):
  config = tiny("pascal")
  config.data.directory = str(tmp_path / "data")
  config.data.validation, config.data.test = "train", ()
  for name in ("validation", "test"):
    del config.prepare.splits[name]
  config.prepare.splits["train"] = ("all.en", "all.de")
  config.prepare.parse.target_conllu = {}
  config.prepare.parse.sides = ("source",)
  config.prepare.alignments = {}
  for kind, message in (
    ("spacy", r"parse\.source\.spacy\.model is empty: name a spaCy pipeline"),
    ("stanza", r"Stanza, which is not installed \(pip|Stanza's models of 'en'"),
  ):
    config.prepare.parse.source.parser = kind
    with pytest.raises(InputError, match=message):
      build.run(config, str(raw))
  config.prepare.parse.source.parser = "spacy"
  config.prepare.parse.source.spacy.model = "en_no_such_pipeline"
  with pytest.raises(InputError, match=r"python -m spacy download en_no_such"):
    build.run(config, str(raw))
  assert not os.path.exists(tmp_path / "data" / "manifest.json")


def test_parser_options_keep_their_names_on_disk(prepared):
  options = manifests.read(prepared)["options"]["parse"]["source"]
  assert json.dumps(sorted(options)) == '["parser", "udpipe"]'
  assert options["parser"] == "udpipe" and schema.SIDES
