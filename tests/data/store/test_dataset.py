"""Tests reading a dataset, and the errors for corrupt files."""

import gzip
import os
import shutil

import numpy as np
import pytest
from toy_folders import (
  example,
  prepare,
  same,
  write_dataset,
  write_shard,
)

from jaxsyn.data import schema
from jaxsyn.data.store import dataset as datasets
from jaxsyn.data.store import manifests, records, tfrecord
from jaxsyn.data.store.dataset import Dataset
from jaxsyn.data.store.rows import Rows
from jaxsyn.errors import InputError
from jaxsyn.storage import checksums

EXAMPLES = [example(i) for i in range(11)]
FEATURES = tuple(EXAMPLES[0])
INDEX = "toy/1.0.0/index-train.npy"
OTHER_DATA = "is corrupt, or of another dataset: "


@pytest.fixture(scope="module")
def dataset(tmp_path_factory):
  return prepare(tmp_path_factory.mktemp("prepared"))


@pytest.fixture
def folder(dataset, tmp_path):
  """A copy of the dataset that a test may corrupt."""
  return shutil.copytree(dataset, tmp_path / "copy")


def shard(folder, number):
  name = f"toy-train.tfrecord-{number:05d}-of-00003"
  return folder / "toy" / "1.0.0" / name


def payloads_of(examples):
  texts = {
    name: [f"{name} {one['line']}" for one in examples] for name in schema.TEXTS
  }
  return records.encode(Rows.of(examples, FEATURES), texts)


def replace_shard(folder, number, examples, *, in_index=False):
  """Writes other records of the same total size; returns the path."""
  path, payloads = shard(folder, number), payloads_of(examples)
  size = path.stat().st_size
  write_shard(path, payloads)
  assert path.stat().st_size == size
  if in_index:
    entries = np.load(folder / INDEX)
    first = (0, 3, 7)[number]
    crcs = [tfrecord.masked_crc(payload) for payload in payloads]
    entries["crc"][first : first + len(crcs)] = crcs
    replace_index(folder, entries)
  return path


def replace_index(folder, entries):
  tfrecord.save_index(folder / INDEX, [entries])
  update_checksums(folder, INDEX)


def update_checksums(folder, *names):
  """Makes the checksums of changed files in the manifest right."""
  manifest = manifests.read(folder)
  manifest["files"] |= checksums.file_checksums(folder, names)
  manifests.write(folder, manifest)


def read_all(folder, features=FEATURES):
  return list(Dataset(folder).split("train").rows(features))


def reads(folder, message):
  """Asserts that reading the training split fails with a message."""
  with pytest.raises(InputError, match=message):
    read_all(folder)


@pytest.mark.parametrize("block", [1, 2, 3, 4, 4096])
def test_reads_examples_by_number_and_in_order(dataset, monkeypatch, block):
  monkeypatch.setattr(datasets, "BLOCK", block)
  found = Dataset(dataset).split("train")
  assert len(found) == 11
  for one, expected in zip(found, EXAMPLES, strict=True):
    same(one, expected)
  for i in (10, 0, 5):
    same(found[i], EXAMPLES[i])
  for i in (-1, 11):
    with pytest.raises(IndexError, match=rf" {i} of 11"):
      found[i]
  assert len(Dataset(dataset).split("test")) == 1
  assert list(Dataset(dataset).split("none")) == []
  with pytest.raises(InputError, match=r"no split 'trian'. Did you mean 'tr"):
    Dataset(dataset).split("trian")


def test_reads_blocks_in_any_order_and_repeatedly(dataset, monkeypatch):
  monkeypatch.setattr(datasets, "BLOCK", 2)
  split = Dataset(dataset).split("train")
  # 11 records in 3 shards: 3, 4, 4. Blocks end where shards end.
  assert np.diff(split.block_start).tolist() == [2, 1, 2, 2, 2, 2]
  assert Dataset(dataset).split("none").block_start.tolist() == [0]
  numbers = [5, 0, 0, 3, 2, 1, 4, 0]
  found = list(split.read_blocks(numbers, ["line", "source_id"]))
  for number, rows in zip(numbers, found, strict=True):
    first, end = split.block_start[number : number + 2]
    assert rows.flat["line"].tolist() == list(range(first + 1, end + 1))
    expected = [EXAMPLES[i]["source_id"] for i in range(first, end)]
    assert rows.flat["source_id"].tolist() == np.concatenate(expected).tolist()
    assert set(rows.flat) == {"line", "source_id"}


def test_rows_hold_the_named_features_and_texts(dataset):
  names = ("target_utf8", "target_id", "source_utf8")
  for split, count in (("train", 11), ("test", 1), ("none", 0)):
    found = list(Dataset(dataset).split(split).rows(names))
    examples = [one for rows in found for one in rows.examples()]
    lines = [bytes(one["target_utf8"]).decode() for one in examples]
    assert lines == [f"target_text {i + 1}" for i in range(count)]
    assert all(tuple(rows.flat) == names for rows in found)


def test_index_and_lengths(dataset):
  split = Dataset(dataset).split("train")
  found = split.lengths
  assert [side.dtype for side in found] == [np.uint8] * 4
  assert found.source.tolist() == [3 + i % 3 for i in range(11)]
  assert found.target.tolist() == [1 + i % 4 for i in range(11)]
  assert found.source_words.tolist() == [2 + i % 3 for i in range(11)]
  assert not found.target_words.any()
  payloads = [
    payload for n in range(3) for payload in tfrecord.scan(shard(dataset, n))
  ]
  assert split.index["bytes"].tolist() == [len(data) for data in payloads]
  assert split.index.dtype.itemsize == 16


def test_index_rejects_sentences_that_are_too_long():
  long = EXAMPLES[1] | {"target_id": np.ones(2**16, np.int32)}
  message = r"65,536 target subwords; at most 65,535 .*max_subwords"
  with pytest.raises(InputError, match=message):
    tfrecord.index_entries([b"a", b"b"], Rows.of([EXAMPLES[0], long], FEATURES))


def test_counts_sentences_without_a_tree(folder):
  assert Dataset(folder).split("train").unparsed("source") == 0
  unparsed = [{**one, "source_parsed": np.uint8(0)} for one in EXAMPLES[3:5]]
  replace_shard(folder, 1, [*unparsed, *EXAMPLES[5:7]], in_index=True)
  assert Dataset(folder).split("train").unparsed("source") == 2


@pytest.mark.parametrize("change", [None, -1, 4])
def test_names_a_shard_of_another_size_when_it_is_opened(folder, change):
  path = shard(folder, 2)
  if change is None:
    path.unlink()
    message = r"00002-of-00003: No such file.*[Pp]repare"
  else:
    os.truncate(path, path.stat().st_size + change)
    message = r"00002-of-00003 has .* bytes and had .*[Pp]repare"
  with pytest.raises(InputError, match=message):
    Dataset(folder).split("train")


def test_names_a_shard_that_vanishes_after_it_was_opened(folder):
  found = Dataset(folder).split("train")
  shard(folder, 1).unlink()
  same(found[10], EXAMPLES[10])
  message = r"00001-of-00003 cannot be read: No such file.*[Pp]repare"
  with pytest.raises(InputError, match=message):
    list(found)


@pytest.mark.parametrize("block", [2, 4096])
def test_names_the_record_where_a_shard_ends_early(folder, monkeypatch, block):
  """A shard may be cut after the split was opened."""
  monkeypatch.setattr(datasets, "BLOCK", block)
  found = Dataset(folder).split("train")
  sizes = [len(payload) + 16 for payload in tfrecord.scan(shard(folder, 1))]
  ends = np.cumsum(sizes).tolist()
  for size, record in (
    (ends[3] - 1, 3),
    (ends[2], 3),
    (ends[2] - 1, 2),
    (ends[0], 1),
    (1, 0),
    (0, 0),
  ):
    os.truncate(shard(folder, 1), size)
    message = rf"00001-of-00003: record {record} is truncated. .*[Pp]repare"
    with pytest.raises(InputError, match=message):
      list(found)


@pytest.mark.parametrize("block", [2, 4096])
def test_names_the_record_with_a_flipped_bit(folder, monkeypatch, block):
  monkeypatch.setattr(datasets, "BLOCK", block)
  path = shard(folder, 1)
  data = bytearray(path.read_bytes())
  data[-20] ^= 1  # in the payload of the last of its 4 records
  path.write_bytes(data)
  found = Dataset(folder).split("train")
  for i in (2, 7, *([4] if block == 2 else [])):
    same(found[i], EXAMPLES[i])
  for read in (lambda: found[6], lambda: list(found)):
    message = r"01-of-00003: record 3 is corrupt.*checksum.*[Pp]repare"
    with pytest.raises(InputError, match=message):
      read()


def test_finds_a_flipped_bit_in_features_that_are_not_read(folder):
  """The checksum is of the complete record."""
  path = shard(folder, 0)
  path.write_bytes(
    path.read_bytes().replace(b"target_text 1", b"Target_text 1")
  )
  with pytest.raises(InputError, match=r"00000-of-00003: record 0 is corrupt"):
    read_all(folder, ["line"])


def test_names_records_of_other_data(folder):
  """A file may have been copied from a similar dataset."""
  for order, record in (((2, 1, 0), 0), ((0, 2, 1), 1)):
    replace_shard(folder, 0, [EXAMPLES[i] for i in order])
    reads(
      folder,
      rf"00000-of-00003: record {record} {OTHER_DATA}"
      r"its size differs from the index.*[Pp]repare",
    )
  # Sizes and lengths are right.
  swapped = EXAMPLES[0] | {"source_id": EXAMPLES[0]["source_id"][[1, 0, 2]]}
  path = replace_shard(folder, 0, [swapped, *EXAMPLES[1:3]])
  found = Dataset(folder)
  assert found.corrupt_files(deep=False) == {}
  assert list(found.corrupt_files()) == [f"toy/1.0.0/{path.name}"]
  reads(folder, f"record 0 {OTHER_DATA}its checksum differs from the")
  # Sizes and checksums are right.
  old = EXAMPLES[0]
  longer = old | {
    "source_id": np.append(old["source_id"][:1], old["source_id"]),
    "source_relation": old["source_relation"][1:],
  }
  replace_shard(folder, 0, [longer, *EXAMPLES[1:3]], in_index=True)
  reads(folder, f"record 0 {OTHER_DATA}source_id has another length than the")


@pytest.mark.parametrize("corruption", ["missing", "cut", "flipped"])
def test_rejects_a_corrupt_index_when_it_is_opened(folder, corruption):
  path = folder / INDEX
  data = path.read_bytes()
  if corruption == "missing":
    path.unlink()
    message = rf"{path.name}: No such file.*[Pp]repare"
  elif corruption == "cut":
    os.truncate(path, len(data) - 1)
    message = rf"{path.name} has .* bytes and had .*[Pp]repare"
  else:  # another size of a record, of the same number of bytes
    path.write_bytes(data[:-16] + bytes([data[-16] ^ 1]) + data[-15:])
    message = rf"{path.name} has another checksum.*[Pp]repare"
  reads(folder, message)


@pytest.mark.parametrize(
  ("content", "message"),
  [
    (np.zeros(12, tfrecord.ENTRY), "is not the index of 11 records"),
    (np.zeros((11, 1), tfrecord.ENTRY), "is not the index of 11 records"),
    (np.zeros(11, np.int64), "is not the index of 11 records"),
    (np.array([{}] * 11), "cannot be read"),
    (b"no array", "cannot be read"),
    (b"", "cannot be read"),
    (b"\x93NUMPY\x01\x00", "cannot be read"),
  ],
)
def test_rejects_an_invalid_index(folder, content, message):
  """The checksum is right, as if another program had written the index."""
  if isinstance(content, bytes):
    (folder / INDEX).write_bytes(content)
  else:
    np.save(folder / INDEX, content)
  update_checksums(folder, INDEX)
  reads(folder, rf"index-train.npy {message}.*[Pp]repare")


def test_names_the_record_where_the_index_of_other_data_differs(folder):
  """The index has the right number of entries and its checksum is right."""
  entries = np.load(folder / INDEX)
  for name in tfrecord.ENTRY.names:
    other = entries.copy()
    other[name][4] += 1
    other[name][5] -= name == "bytes"  # else the shard would be too short
    replace_index(folder, other)
    if name == "target_words":  # the target has no trees
      read_all(folder)
    else:
      reads(folder, r"00001-of-00003: record 1 is")


def test_compares_the_numbers_of_records_with_the_manifest(folder):
  manifest = manifests.read(folder)
  split = manifest["splits"]["train"]
  split["shards"][0]["examples"], split["shards"][1]["examples"] = 4, 3
  manifests.write(folder, manifest)
  reads(folder, r"00000-of-00003: record 3 is truncated")
  split["examples"], split["shards"][0]["examples"] = 12, 5
  manifests.write(folder, manifest)
  reads(folder, r"index-train.npy is not the index of 12 records")


def test_reads_more_than_a_block_in_several_shards(tmp_path):
  """Blocks have 4,096 records, and end where a shard ends."""
  assert datasets.BLOCK == 4096
  sampled = np.random.default_rng(0).integers(11, size=12_000)
  examples = [
    EXAMPLES[k] | {"line": np.int64(i + 1)} for i, k in enumerate(sampled)
  ]
  write_dataset(tmp_path, {"train": examples}, shards=2)
  found = Dataset(tmp_path).split("train")
  assert np.diff(found.block_start).tolist() == [4096, 1904, 4096, 1904]
  rows, expected = Rows.joined(read_all(tmp_path)), Rows.of(examples, FEATURES)
  for name in FEATURES:
    np.testing.assert_array_equal(rows.flat[name], expected.flat[name])
    np.testing.assert_array_equal(rows.start[name], expected.start[name])
    assert rows.flat[name].dtype == expected.flat[name].dtype
  for i in (0, 4095, 4096, 5999, 6000, 10_095, 10_096, 11_999):
    same(found[i], examples[i])


def test_the_manifest_has_a_checksum_of_each_file(dataset):
  found = Dataset(dataset)
  assert found.corrupt_files() == {}
  assert set(manifests.file_names(found.manifest)) <= set(
    found.manifest["files"]
  )
  assert {
    "toy/1.0.0/features.json",
    "toy/1.0.0/dataset_info.json",
    "toy/1.0.0/index-train.npy",
    "text/train.source-00000-of-00003.gz",
    "conllu/test.source.conllu.gz",
    "vocabulary.model",
  } <= set(found.manifest["files"])


@pytest.mark.parametrize("corruption", ["flip", "cut", "grow", "delete"])
def test_finds_any_corruption_of_any_file(folder, corruption):
  found = Dataset(folder)
  for name in found.manifest["files"]:
    path = folder / name
    data = path.read_bytes()
    if not data and corruption in ("flip", "cut"):
      continue
    path.unlink()
    if corruption == "flip":
      path.write_bytes(data[:-1] + bytes([data[-1] ^ 8]))
    elif corruption == "cut":
      path.write_bytes(data[:-1])
    elif corruption == "grow":
      path.write_bytes(data + b"x")
    result = found.corrupt_files()
    assert list(result) == [name]
    assert str(path) in result[name]
    shallow = found.corrupt_files(deep=False)
    assert list(shallow) == ([] if corruption == "flip" else [name])
    path.write_bytes(data)
  assert found.corrupt_files() == {}


def test_reads_text(dataset):
  expected = [f"train source {i}" for i in range(11)]
  assert Dataset(dataset).text("train", "source") == expected
  assert Dataset(dataset).text("none", "target") == []
  assert Dataset(dataset).trees("train", "target") is None


WRONG_TEXT = [
  (None, False, "No such file"),
  (b"", False, "has .* bytes and had"),
  (gzip.compress(b"a\nb\n"), True, "has 2 lines, but the shard has 3 records"),
  (gzip.compress(b"a\n" * 2 + b"a"), True, "has 2 lines, but the shard has 3"),
  (gzip.compress(b"\xff\n" * 3), True, "cannot be read .*utf-8"),
  (b"a\n" * 3, True, "cannot be read .*gzip"),
  (gzip.compress(b"a\n" * 3)[:-9], True, "cannot be read .*end"),
]


@pytest.mark.parametrize(
  ("content", "in_manifest", "message"), WRONG_TEXT, ids=range(len(WRONG_TEXT))
)
def test_names_text_that_is_not_that_of_the_records(
  folder, content, in_manifest, message
):
  """Otherwise, translations could be scored against other lines."""
  name = "text/train.target-00000-of-00003.gz"
  (folder / name).unlink()
  if content is not None:
    (folder / name).write_bytes(content)
  if in_manifest:
    update_checksums(folder, name)
  with pytest.raises(InputError, match=rf"{name}.*{message}"):
    Dataset(folder).text("train", "target")
