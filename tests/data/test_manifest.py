"""Hashes: the wrong vocabulary or parser is named with both hashes."""

import types

import pytest

from jaxsyn.data import manifest as manifests
from jaxsyn.errors import InputError

MANIFEST = {
  "name": "toy",
  "version": "1.0.0",
  "sides": ["source", "target"],
  "splits": {},
  "vocabulary": {
    "source": {"file": "vocabulary.model", "sha256": "aa11", "size": 8},
    "target": {"file": "vocabulary.model", "sha256": "aa11", "size": 8},
  },
  "parser": {
    "source": {"file": "parser.source.udpipe", "sha256": "bb22", "name": "en"},
    "target": {"file": "", "sha256": "", "name": ""},
  },
  "relations": {},
}


def given(sha256):
  return types.SimpleNamespace(path="given.model", sha256=sha256)


def test_round_trip(tmp_path):
  manifests.write(tmp_path, MANIFEST)
  assert manifests.read(tmp_path) == {"format": 1, **MANIFEST}
  assert [path.name for path in tmp_path.iterdir()] == ["manifest.json"]


def test_right_files_pass():
  manifests.check_vocabulary(MANIFEST, given("aa11"), "target")
  manifests.check_parser(MANIFEST, given("bb22"))
  manifests.check_parser(MANIFEST, given("any"), "target")  # came as CoNLL-U


def test_other_vocabulary():
  message = "given.model is not the target vocabulary.*cc33.*aa11"
  with pytest.raises(InputError, match=message):
    manifests.check_vocabulary(MANIFEST, given("cc33"), "target")


def test_other_parser():
  message = "given.model is not the source parser.*cc33.*bb22.*parser.source"
  with pytest.raises(InputError, match=message):
    manifests.check_parser(MANIFEST, given("cc33"))


def test_paths(tmp_path):
  assert manifests.parser_file(tmp_path, MANIFEST, "target") is None
  assert manifests.parser_file(tmp_path, MANIFEST, "source") == (
    tmp_path / "parser.source.udpipe"
  )
  assert manifests.tfds_folder(tmp_path, MANIFEST) == tmp_path / "toy/1.0.0"


def test_hash_of_texts_knows_where_one_ends():
  hashes = {
    manifests.sha256_texts(texts)
    for texts in (["ab", "c"], ["a", "bc"], ["abc"], ["abc", ""])
  }
  assert len(hashes) == 4
