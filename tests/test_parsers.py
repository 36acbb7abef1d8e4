"""The spaCy and Stanza parsers from raw text to translations."""

from __future__ import annotations

import shutil

import parsers_under_test
import pytest
from numpy.testing import assert_array_equal
from raw_corpora import write_lines

from jaxsyn import train
from jaxsyn.data.sentence import conllu
from jaxsyn.data.sentence.text import read_lines
from jaxsyn.data.store import manifests
from jaxsyn.data.store.dataset import Dataset
from jaxsyn.errors import InputError
from jaxsyn.preprocess import build
from jaxsyn.session import Session
from jaxsyn.session.member import source_reader


@pytest.fixture(scope="module")
def raw(shared_data, tmp_path_factory):
  """A folder of 80 captions, English and German."""
  folder = tmp_path_factory.mktemp("raw")
  for code in ("en", "de"):
    lines = read_lines(shared_data / "multi30k" / f"val.{code}.gz")[:80]
    write_lines(folder / f"all.{code}", lines)
  return folder


@pytest.fixture
def config(tiny, tmp_path):
  """The config of a corpus of captions, with a parser of the source only."""
  config = tiny("pascal")
  config.data.update(name="captions", directory=str(tmp_path / "data"))
  config.data.update(target_language="de", test=())
  for name, lines in (("train", "1-70"), ("validation", "71-80")):
    config.prepare.splits[name] = ("all.en", "all.de", lines)
  del config.prepare.splits["test"]
  config.prepare.parse.target_conllu = {}
  config.prepare.parse.sides = ("source",)
  config.prepare.alignments = {}
  config.prepare.vocabulary.size = 200
  config.prepare.workers = 2
  config.model.transformer.encoder_layers = 1
  config.batch.shapes = 1
  config.train.update(steps=2, evaluate_every=2, save_every=2)
  config.train.validation_sentences = 2
  return config


def test_from_raw_text_to_translations(
  config, raw, shared_data, made_once, tmp_path
):
  spec = parsers_under_test.spec_of("spacy", shared_data, made_once)
  config.prepare.parse.source.parser = "spacy"
  config.prepare.parse.source.spacy.model = spec.model
  config.prepare.parse.source.udpipe.model = "unused"
  folder = build.run(config, str(raw))

  # Each line has the words and heads that the parser itself gives.
  lines = (raw / "all.en").read_text().splitlines()
  parser = spec.open()
  expected = parser.parses(lines[:70])
  path = manifests.sentence_file(folder, "conllu", "train", "source")
  assert [*conllu.match(conllu.read(path), lines[:70], "all.en")] == expected
  records = Dataset(folder).split("train")
  for parse, example in zip(expected, records, strict=True):
    assert example["source_head"].tolist() == list(parse.head_W)
    assert example["source_parsed"] == parse.parsed
  entry = manifests.read(folder)["parser"]["source"]
  assert entry == {"file": "", "trees": "parser", **parser.identity.entry()}
  assert "spacy" in (folder / "report.txt").read_text()
  # A second run changes no file.
  saved = {path: path.stat().st_mtime_ns for path in folder.rglob("*.gz")}
  build.run(config, str(raw))
  assert {path: path.stat().st_mtime_ns for path in saved} == saved

  run = tmp_path / "run"
  assert train.run(config, run).step == 2
  session = Session(run, beam=2)
  sources = [lines[75], "", "A dog can't swim. It runs!"]
  translations = session(sources)
  assert len(translations) == 3 and translations[1][0].text == ""
  for line in sources:
    parse, example = parser(line), session.sources.example(line)
    assert session.sources.parser(line) == parse
    assert_array_equal(example["source_head"], parse.head_W)

  opened = source_reader(session.run, longest=99, parser=spec.model)
  assert opened.parser(sources[2]) == parser(sources[2])
  other = shutil.copytree(spec.model, tmp_path / "other")
  meta = other / "meta.json"
  meta.write_text(meta.read_text() + "\n")
  opened = source_reader(session.run, longest=99, parser=str(other))
  with pytest.raises(InputError, match=parser.identity.name):
    opened.parser(lines[0])


def test_parser_options_keep_their_names_on_disk(prepared):
  options = manifests.read(prepared)["options"]["parse"]["source"]
  assert {*options} == {"parser", "udpipe"} and options["parser"] == "udpipe"
