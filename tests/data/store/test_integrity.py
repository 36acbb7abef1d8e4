"""Files of a prepared folder: every harm to every file is found."""

import gzip
import shutil

import pytest
import toy_folders

from jaxsyn.data.store import (
  integrity,
  layout,
  manifests,
)
from jaxsyn.errors import InputError
from jaxsyn.storage import checksums


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
  return toy_folders.prepare(tmp_path_factory.mktemp("prepared"))


@pytest.fixture
def folder(prepared, tmp_path):
  return shutil.copytree(prepared, tmp_path / "copy")


def test_a_prepared_directory_has_no_corrupt_file(prepared):
  manifest = manifests.read(prepared)
  assert integrity.corrupt_files(prepared, manifest) == {}
  assert set(layout.names(manifest)) <= set(manifest["files"])
  assert {
    "toy/1.0.0/features.json",
    "toy/1.0.0/dataset_info.json",
    "toy/1.0.0/index-train.npy",
    "text/train.source-00000-of-00003.gz",
    "conllu/test.source.conllu.gz",
    "vocabulary.model",
  } <= set(manifest["files"])


@pytest.mark.parametrize("harm", ["flip", "cut", "grow", "delete"])
def test_finds_any_corruption_of_any_file(folder, harm):
  manifest = manifests.read(folder)
  for name, facts in manifest["files"].items():
    path = folder / name
    data = path.read_bytes()
    if not data and harm in ("flip", "cut"):
      continue
    path.unlink()
    if harm == "flip":
      path.write_bytes(data[:-1] + bytes([data[-1] ^ 8]))
    elif harm == "cut":
      path.write_bytes(data[:-1])
    elif harm == "grow":
      path.write_bytes(data + b"x")
    result = integrity.corrupt_files(folder, manifest)
    assert list(result) == [name]
    assert str(path) in result[name]
    shallow = integrity.corrupt_files(folder, manifest, deep=False)
    assert list(shallow) == ([] if harm == "flip" else [name])
    path.write_bytes(data)
    assert facts["bytes"] == len(data)
  assert integrity.corrupt_files(folder, manifest) == {}


def test_reads_text(prepared):
  manifest = manifests.read(prepared)
  expected = [f"train source {i}" for i in range(11)]
  assert integrity.read_text(prepared, manifest, "train", "source") == expected
  assert integrity.read_text(prepared, manifest, "none", "target") == []


def read_targets(folder):
  manifest = manifests.read(folder)
  integrity.read_text(folder, manifest, "train", "target")


@pytest.mark.parametrize("size", [None, 0, 1, 9, 20, -1])
def test_names_truncated_and_missing_text(folder, size):
  """Of references: a shorter file would be scored against other lines."""
  path = layout.text_files(folder, manifests.read(folder), "train", "target")[0]
  data = path.read_bytes()
  path.unlink()
  message = r"train.target-00000-of-00003.gz: No such file"
  if size is not None:
    path.write_bytes(data[:size])
    message = r"train.target-00000-of-00003.gz has .* bytes and had"
  with pytest.raises(InputError, match=message):
    read_targets(folder)


def test_names_changed_text(folder):
  path = layout.text_files(folder, manifests.read(folder), "train", "target")[0]
  data = bytearray(path.read_bytes())
  data[-1] ^= 1
  path.write_bytes(data)
  with pytest.raises(
    InputError, match=r"train.target-00000-of-00003.gz has another"
  ):
    read_targets(folder)


@pytest.mark.parametrize(
  ("content", "message"),
  [
    (gzip.compress(b"a\nb\n"), "has 2 lines, but the shard has 3 records"),
    (gzip.compress(b"a\n" * 2 + b"a"), "has 2 lines, but the shard has 3"),
    (gzip.compress(b"\xff\n" * 3), "cannot be read .*utf-8"),
    (b"a\n" * 3, "cannot be read .*gzip"),
    (gzip.compress(b"a\n" * 3)[:-9], "cannot be read .*end"),
  ],
  ids=["few", "one less", "no UTF-8", "no gzip", "cut"],  # gzip has the time
)
def test_names_text_with_other_lines_than_the_records(folder, content, message):
  name = "text/train.target-00000-of-00003.gz"
  (folder / name).write_bytes(content)
  manifest = manifests.read(folder)
  manifest["files"] |= checksums.file_checksums(folder, [name])
  manifests.write(folder, manifest)
  with pytest.raises(InputError, match=message):
    read_targets(folder)
