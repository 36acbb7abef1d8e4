"""Hashes: the wrong vocabulary or parser is named with both hashes."""

import types

import pytest
import toy_folders

from jaxsyn.data import manifest as manifests
from jaxsyn.errors import InputError

A, B, C = (digit * 64 for digit in "abc")
VOCABULARY = {"file": "vocabulary.model", "sha256": A, "size": 8}
PARSER = {"file": "parser.source.udpipe", "sha256": B, "name": "en"}
MANIFEST = toy_folders.manifest_of(
  sides=["source", "target"],
  vocabulary={"source": VOCABULARY, "target": VOCABULARY},
  parser={"source": PARSER, "target": {"file": "", "sha256": "", "name": ""}},
)


def given(sha256):
  return types.SimpleNamespace(path="given.model", sha256=sha256)


def test_round_trip(tmp_path):
  manifests.write(tmp_path, MANIFEST)
  assert manifests.read(tmp_path) == {"format": 2, **MANIFEST}
  assert [path.name for path in tmp_path.iterdir()] == ["manifest.json"]


def test_right_files_pass():
  manifests.check_vocabulary(MANIFEST, given(A), "target")
  manifests.check_parser(MANIFEST, given(B))
  manifests.check_parser(MANIFEST, given("any"), "target")  # came as CoNLL-U


def test_other_vocabulary():
  message = f"given.model is not the target vocabulary.*{C}.*{A}"
  with pytest.raises(InputError, match=message):
    manifests.check_vocabulary(MANIFEST, given(C), "target")


def test_other_parser():
  message = f"given.model is not the source parser.*{C}.*{B}.*parser.source"
  with pytest.raises(InputError, match=message):
    manifests.check_parser(MANIFEST, given(C))


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
