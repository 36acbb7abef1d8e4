"""Tests validation of manifests, vocabularies and parsers."""

import json
import shutil
import types

import mutants
import numpy as np
import pytest
import toy_folders
from corruptions import corrupted

from jaxsyn.data import schema
from jaxsyn.data.sentence.parsers import recorded
from jaxsyn.data.sentence.parsers.parser import Identity
from jaxsyn.data.store import manifests
from jaxsyn.data.store.dataset import Dataset
from jaxsyn.errors import InputError
from jaxsyn.storage import checksums

A, B, C = (digit * 64 for digit in "abc")
VOCABULARY = {"file": "vocabulary.model", "sha256": A, "size": 8}
PARSER = {"file": "parser.source.udpipe", "sha256": B, "name": "en"}
MANIFEST = toy_folders.manifest_of(
  sides=["source", "target"],
  vocabulary={"source": VOCABULARY, "target": VOCABULARY},
  parser={"source": PARSER, "target": {"file": "", "sha256": "", "name": ""}},
)


def test_round_trip(tmp_path):
  manifests.write(tmp_path, MANIFEST)
  assert manifests.read(tmp_path) == {"format": 6, **MANIFEST}
  assert [path.name for path in tmp_path.iterdir()] == ["manifest.json"]


def test_rejects_another_parser():
  def parser(kind, sha256, side="source", **options):
    found = Identity(kind, "given", sha256, options=options)
    recorded.check(MANIFEST, found, side)

  parser("udpipe", B)
  for kind, sha256, options in (
    ("udpipe", C, {}),
    ("udpipe", B, {"beam": "1"}),
    ("stanza", B, {}),
  ):
    parser(kind, sha256, "target", **options)  # whose trees came as CoNLL-U
    message = f"{kind} given .*{sha256}.* is not the source parser.* en .*{B}"
    with pytest.raises(InputError, match=message):
      parser(kind, sha256, **options)


def test_hash_of_texts_depends_on_their_ends():
  texts = (["ab", "c"], ["a", "bc"], ["abc"], ["abc", ""])
  assert len({*map(checksums.sha256_texts, texts)}) == 4


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
  return toy_folders.prepare(tmp_path_factory.mktemp("prepared"))


@pytest.fixture
def folder(prepared, tmp_path):
  return shutil.copytree(prepared, tmp_path / "copy")


def test_rejects_another_vocabulary(monkeypatch):
  def check(sha256, size=8):
    def found(path):
      return types.SimpleNamespace(path=path, sha256=sha256, size=size)

    monkeypatch.setattr(manifests, "Vocabulary", found)
    manifests.vocabulary("given", MANIFEST, "target")

  check(A)
  message = f"given/vocabulary.model is not the target .*{C}.*{A}"
  with pytest.raises(InputError, match=message):
    check(C)
  with pytest.raises(InputError, match="ids is 9, the manifest says 8"):
    check(A, 9)


def put(folder, content):
  """Writes invalid content with a valid checksum."""
  (folder / manifests.FILE).write_text(
    json.dumps(checksums.add_checksum(content))
  )


def at(content, path):
  """The section and the last key of "splits.train.shards.0.file"."""
  *sections, last = path.split(".")
  for name in sections:
    content = content[int(name) if isinstance(content, list) else name]
  return content, int(last) if isinstance(content, list) else last


SHARD = "splits.train.shards.0"
INVALID_FIELDS = [
  ("name", "../toy", "manifest.name must be lowercase"),
  ("name", 3, "manifest.name must be of type str"),
  ("version", "1.0.0/../..", "manifest.version must be like 1.0.0"),
  ("sides", ["left"], "sides.0. must be one of 'source', 'target'"),
  ("sides", ["source", "target"], "manifest.parser must be of the sides"),
  ("splits.train", None, "manifest.splits.train must be a section"),
  ("splits.train.examples", 12, r"the sum of its shards, 11, got 12"),
  ("splits.train.examples", 10, r"the sum of its shards, 11, got 10"),
  ("splits.train.examples", True, "must be of type int"),
  (f"{SHARD}.file", "../payload", r"shards\[0\].file must be toy-train.tfrec"),
  (f"{SHARD}.file", "/etc/passwd", r"shards\[0\].file must be toy-train"),
  (f"{SHARD}.bytes", 2**70, "shards.0..bytes must be"),
  (f"{SHARD}.sha256", "5" * 63, "a SHA-256 of 64 hex digits"),
  ("vocabulary", {}, "manifest.vocabulary must be of source and target"),
  ("vocabulary.source.file", "../payload.model", "the name of a .model file"),
  ("vocabulary.source.file", "config.json", "the name of a .model file"),
  ("vocabulary.source.size", 3, "must be from 4 to"),
  ("vocabulary.source.size", 2**31, "must be"),
  ("parser.source", {}, "manifest.parser.source.file is missing"),
  ("parser.source.file", "/x.udpipe", "the name of a .udpipe file"),
  ("parser.source.file", "x.udpipe", "parser.source.sha256 must be there"),
  ("relations.source", ["b", "a"], "different labels in sorted order"),
  ("relations.source", ["a", "a"], "different labels in sorted order"),
  ("relations", {}, "manifest.relations must be of the sides with trees"),
  ("brackets", {"source": ["b", "a"]}, "different labels in sorted order"),
  ("brackets", {"target": []}, "manifest.brackets must be one of 'source'"),
  ("options.parse.source.udpipe.model", 1, "udpipe.model must be of type"),
  ("files", {}, "manifest.files lacks conllu/none"),
  ("files", {"../x": {"bytes": 1, "crc32c": "00000000"}}, "names of files"),
  ("surprise", 1, "manifest has no option 'surprise'"),
]


@pytest.mark.parametrize(("path", "value", "message"), INVALID_FIELDS)
def test_names_invalid_fields(folder, path, value, message):
  content = manifests.read(folder)
  section, key = at(content, path)
  section[key] = value
  for write in (put, manifests.write):  # it is not written either
    with pytest.raises(InputError, match=message):
      write(folder, content)
      manifests.read(folder)


def test_rejects_missing_and_other_documents(folder):
  path = folder / manifests.FILE
  text = path.read_text()
  document = json.loads(text)
  path.write_text(json.dumps(document))  # laid out otherwise
  assert manifests.read(folder)["name"] == "toy"
  path.write_text(text.replace('"a",', '"z",'))
  with pytest.raises(InputError, match=r"its checksum differs"):
    manifests.read(folder)
  for other in ("", "[]", '{"format": 3}', "[" * 99999, "\xff", "9" * 5000):
    path.write_bytes(other.encode("latin-1"))
    with pytest.raises(InputError, match=r"manifest.json (is corr|has format)"):
      manifests.read(folder)
  path.write_text(json.dumps({**document, "format": 4}))
  message = r"has format 4; this version reads 6\. Run jaxsyn prepare --config"
  with pytest.raises(InputError, match=message):
    manifests.read(folder)
  path.unlink()
  with pytest.raises(InputError, match=r"no.* prepared folder.*again, if it"):
    manifests.read(folder)
  with pytest.raises(InputError, match=r"nowhere is missing"):
    manifests.read(folder / "nowhere")


def test_mutated_manifests_are_rejected_or_name_files_of_the_directory(folder):
  """Mutates the bytes, and the content with a valid checksum."""
  path = folder / manifests.FILE
  intact, data = manifests.read(folder), path.read_bytes()
  rejected = 0
  for seed in range(60):
    rng = np.random.default_rng(seed)
    path.write_bytes(corrupted(data, rng))
    try:
      assert manifests.read(folder) == intact  # only blanks differ
    except InputError as error:
      assert "manifest.json" in str(error)
    put(folder, mutants.tree(intact, rng))
    try:
      loaded = manifests.read(folder)
      for name in manifests.file_names(loaded):
        inside = (folder / name).resolve().relative_to(folder.resolve())
        assert inside.as_posix() == name
      for split in loaded["splits"]:
        assert len(list(Dataset(folder).split(split))) in (0, 1, 11)
    except InputError:
      rejected += 1
  assert rejected > 48


def test_lists_the_features_of_a_batch():
  features = schema.features_for(
    toy_folders.manifest_of(), ["source_parent_mid"]
  )
  always = ("source_id", "target_id", "source_word", "source_parsed")
  assert features == (*always, "source_parent_mid")


@pytest.mark.parametrize(
  ("sides", "required", "message"),
  [
    (
      [],
      ("source_head", "target_head", "source_relation"),
      r"reads source_head, source_relation, target_head, .* no trees of the "
      r"source and the target side.*parse\.sides=\"\('source','target',\)\"",
    ),
    (
      ["source"],
      ("target_eigenvectors",),
      r"reads target_eigenvectors, .*no trees of the target side.*parse\.sides",
    ),
    (
      ["source"],
      ["source_upos"],
      r"reads source_upos, .* no such annotation.*annotations=\"\('upos',\)\"",
    ),
  ],
)
def test_names_missing_features_with_the_option_to_set(
  sides, required, message
):
  with pytest.raises(InputError, match=message):
    schema.features_for(toy_folders.manifest_of(sides=sides), required)


def test_reads_a_manifest_without_newer_options(tmp_path):
  manifest = toy_folders.manifest_of(tmp_path)
  assert manifest["options"].pop("alignments") == {}
  manifests.write(tmp_path, manifest)
  assert "links" not in schema.features(manifests.read(tmp_path))
