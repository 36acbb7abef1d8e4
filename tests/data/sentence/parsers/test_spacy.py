"""The spaCy parser, with a pipeline that is trained here."""

from __future__ import annotations

import shutil

import parsers_under_test
import pytest

from jaxsyn.data.sentence.parsers.spacy import SpacyParser, SpacySpec
from jaxsyn.errors import InputError


@pytest.fixture(scope="module")
def pipeline(shared_data, made_once):
  return parsers_under_test.spec_of("spacy", shared_data, made_once).model


@pytest.fixture(scope="module")
def parser(pipeline):
  return SpacyParser(pipeline)


def test_words_and_heads_equal_spacy(parser, pipeline, shared_data):
  import spacy

  nlp = spacy.load(pipeline)
  lines = [b.text for b in parsers_under_test.gold(shared_data, 60)][40:]
  lines += ["He sleeps. She reads. They can't!", "私は学生です。"]
  for line, parse in zip(lines, parser.parses(lines), strict=True):
    doc = nlp.make_doc(line)
    for word in doc[1:]:
      word.is_sent_start = False
    doc = nlp(doc)
    assert parse.parsed and len(list(doc.sents)) == 1
    assert parse.start_W == tuple(word.idx for word in doc)
    assert parse.end_W == tuple(word.idx + len(word) for word in doc)
    assert parse.head_W == tuple(word.head.i for word in doc)
    assert parse.relation_W == tuple(
      "root" if word.head.i == word.i else word.dep_ for word in doc
    )
    assert [row[3] for row in parse.row_W] == [word.pos_ or "_" for word in doc]


def test_blanks_are_not_words(parser):
  parse = parser("  He   sleeps \t in\u3000 the  park .  ")
  words = [parse.text[s:e] for s, e in zip(parse.start_W, parse.end_W)]
  assert words == ["He", "sleeps", "in", "the", "park", "."] and parse.parsed


def test_rejects_a_pipeline_without_a_parser(tmp_path):
  import spacy

  spacy.blank("en").to_disk(tmp_path / "blank")
  with pytest.raises(InputError, match="has no parser, but nothing; name one"):
    SpacyParser(str(tmp_path / "blank"))


def test_hash_covers_all_files(parser, pipeline, tmp_path):
  copy = shutil.copytree(pipeline, tmp_path / "copy")
  meta = (copy / "meta.json").read_text()
  (copy / "meta.json").write_text(meta + "\n")
  other = SpacySpec(str(copy)).open().identity
  assert other.key != parser.identity.key
  assert other.name == parser.identity.name and "spaCy 3." in other.version
