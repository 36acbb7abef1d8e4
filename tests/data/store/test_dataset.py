"""Tests reading a dataset, and the errors for corrupt files."""

import gzip
import os
import shutil

import numpy as np
import pytest
from toy_folders import example, prepare, same, write_shard

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
SHARD = "toy/1.0.0/toy-train.tfrecord-0000{}-of-00003"
OTHER_DATA = "is corrupt, or of another dataset: "


@pytest.fixture(scope="module")
def dataset(tmp_path_factory):
  """A dataset whose training split has 3, 4 and 4 records in three shards."""
  return prepare(tmp_path_factory.mktemp("prepared"))


@pytest.fixture
def folder(dataset, tmp_path):
  """A copy of the dataset that a test may corrupt."""
  return shutil.copytree(dataset, tmp_path / "copy")


@pytest.fixture
def blocks_of_two(monkeypatch):
  monkeypatch.setattr(datasets, "BLOCK", 2)


def update_checksums(folder, *names):
  """Writes the checksums of changed files into the manifest."""
  manifest = manifests.read(folder)
  manifest["files"] |= checksums.file_checksums(folder, names)
  manifests.write(folder, manifest)


def replace_shard(folder, shard, examples, *, in_index=False):
  """Writes other records of the same total size."""
  texts = {
    name: [f"{name} {one['line']}" for one in examples] for name in schema.TEXTS
  }
  payloads = records.encode(Rows.of(examples, FEATURES), texts)
  path = folder / SHARD.format(shard)
  size = path.stat().st_size
  write_shard(path, payloads)
  assert path.stat().st_size == size
  if in_index:
    entries = np.load(folder / INDEX)
    first = (0, 3, 7)[shard]
    crcs = [tfrecord.masked_crc(payload) for payload in payloads]
    entries["crc"][first : first + len(crcs)] = crcs
    replace_index(folder, entries)


def replace_index(folder, entries):
  tfrecord.save_index(folder / INDEX, [entries])
  update_checksums(folder, INDEX)


def check_rejected(folder, message, features=FEATURES):
  """Asserts that reading the training split fails with a message."""
  with pytest.raises(InputError, match=message):
    list(Dataset(folder).split("train").rows(features))


@pytest.mark.parametrize("block", [1, 3, 4096])
def test_reads_examples_by_index_in_order_and_together(
  dataset, monkeypatch, block
):
  monkeypatch.setattr(datasets, "BLOCK", block)
  split = Dataset(dataset).split("train")
  for one, expected in zip(split, EXAMPLES, strict=True):
    same(one, expected)
  for i in (10, 0, 5):
    same(split[i], EXAMPLES[i])
  for i in (-1, 11):
    with pytest.raises(IndexError, match=rf" {i} of 11"):
      split[i]
  buffer = split.load(FEATURES)
  for ids in ([1, 2, 9], list(range(11))):
    rows = split.load(FEATURES, np.array(ids), buffer)
    for one, i in zip(rows.examples(), ids, strict=True):
      same(one, EXAMPLES[i])
  assert len(Dataset(dataset).split("test")) == 1
  assert list(Dataset(dataset).split("none")) == []
  with pytest.raises(InputError, match=r"no split 'trian'. Did you mean 'tr"):
    Dataset(dataset).split("trian")


def test_reads_features_and_texts_of_blocks_in_any_order(
  dataset, blocks_of_two
):
  split = Dataset(dataset).split("train")
  # Blocks end where shards end.
  assert np.diff(split.block_start).tolist() == [2, 1, 2, 2, 2, 2]
  names = ("line", "target_utf8", "source_id")
  blocks = [5, 0, 0, 3, 2, 1, 4, 0]
  found = list(split.read_blocks(blocks, names))
  for block, rows in zip(blocks, found, strict=True):
    first, end = split.block_start[block : block + 2]
    assert tuple(rows.flat) == names
    for i, one in zip(range(first, end), rows.examples(), strict=True):
      assert one["line"] == i + 1
      assert bytes(one["target_utf8"]).decode() == f"target_text {i + 1}"
      assert one["source_id"].tolist() == EXAMPLES[i]["source_id"].tolist()


def test_index_has_the_sizes_of_records_and_the_lengths(dataset):
  split = Dataset(dataset).split("train")
  lengths = split.lengths
  assert [side.dtype for side in lengths] == [np.uint8] * 4
  assert lengths.source.tolist() == [3 + i % 3 for i in range(11)]
  assert lengths.target.tolist() == [1 + i % 4 for i in range(11)]
  assert lengths.source_words.tolist() == [2 + i % 3 for i in range(11)]
  assert not lengths.target_words.any()
  sizes = [
    len(payload)
    for shard in range(3)
    for payload in tfrecord.scan(dataset / SHARD.format(shard))
  ]
  assert split.index["bytes"].tolist() == sizes
  assert split.index.dtype.itemsize == 16


def test_index_rejects_sentences_that_are_too_long():
  def entries(length):
    long = EXAMPLES[1] | {"target_id": np.ones(length, np.int32)}
    rows = Rows.of([EXAMPLES[0], long], FEATURES)
    return tfrecord.index_entries([b"a", b"b"], rows)

  assert entries(2**16 - 1)["target"].tolist() == [1, 2**16 - 1]
  message = r"65,536 target subwords; at most 65,535 .*max_subwords"
  with pytest.raises(InputError, match=message):
    entries(2**16)


def test_counts_sentences_without_a_tree(folder):
  assert Dataset(folder).split("train").unparsed("source") == 0
  unparsed = [{**one, "source_parsed": np.uint8(0)} for one in EXAMPLES[3:5]]
  replace_shard(folder, 1, [*unparsed, *EXAMPLES[5:7]], in_index=True)
  assert Dataset(folder).split("train").unparsed("source") == 2


@pytest.mark.parametrize("name", [SHARD.format(2), INDEX])
@pytest.mark.parametrize("change", ["missing", -1, 4])
def test_names_a_file_of_another_size_when_it_is_opened(folder, name, change):
  path = folder / name
  if change == "missing":
    path.unlink()
    error = "No such file"
  else:
    os.truncate(path, path.stat().st_size + change)
    error = "has .* bytes and had"
  with pytest.raises(InputError, match=f"{path.name}:? {error}.*[Pp]repare"):
    Dataset(folder).split("train")


def test_names_the_record_where_a_shard_ends_early(folder, blocks_of_two):
  """A shard may be truncated or removed after the split was opened."""
  split, path = Dataset(folder).split("train"), folder / SHARD.format(1)
  sizes = [len(payload) + 16 for payload in tfrecord.scan(path)]
  ends = np.cumsum(sizes).tolist()
  for size, record in (
    (ends[3] - 1, 3),
    (ends[2], 3),
    (ends[2] - 1, 2),
    (ends[0], 1),
    (0, 0),
  ):
    os.truncate(path, size)
    message = rf"00001-of-00003: record {record} is truncated. .*[Pp]repare"
    with pytest.raises(InputError, match=message):
      list(split)
  path.unlink()
  same(split[10], EXAMPLES[10])
  with pytest.raises(InputError, match=r"00001-of-00003 cannot be read: No s"):
    list(split)


def test_names_the_record_with_a_flipped_bit(folder, blocks_of_two):
  path = folder / SHARD.format(1)
  data = bytearray(path.read_bytes())
  data[-20] ^= 1  # in the payload of the last of its four records
  path.write_bytes(data)
  split = Dataset(folder).split("train")
  for i in (2, 4, 7):
    same(split[i], EXAMPLES[i])
  message = r"01-of-00003: record 3 is corrupt.*checksum.*[Pp]repare"
  with pytest.raises(InputError, match=message):
    split[6]
  check_rejected(folder, message, ["line"])  # which was not changed


def test_names_records_of_other_data(folder):
  """A file may have been copied from a similar dataset."""
  for order, record in (((2, 1, 0), 0), ((0, 2, 1), 1)):
    replace_shard(folder, 0, [EXAMPLES[i] for i in order])
    message = rf"00000-of-00003: record {record} {OTHER_DATA}its size differs"
    check_rejected(folder, message)
  first, old, last = EXAMPLES[:3]
  # Sizes and lengths are right.
  swapped = old | {"source_id": old["source_id"][[1, 0, 2, 3]]}
  replace_shard(folder, 0, [first, swapped, last])
  assert Dataset(folder).corrupt_files(deep=False) == {}
  assert list(Dataset(folder).corrupt_files()) == [SHARD.format(0)]
  check_rejected(folder, f"record 1 {OTHER_DATA}its checksum differs from the")
  # Sizes and checksums are right.
  longer = old | {
    "source_id": np.append(old["source_id"][:1], old["source_id"]),
    "source_relation": old["source_relation"][1:],
  }
  replace_shard(folder, 0, [first, longer, last], in_index=True)
  check_rejected(folder, f"record 1 {OTHER_DATA}source_id has another length")


def test_rejects_an_invalid_index(folder):
  path = folder / INDEX
  data = bytearray(path.read_bytes())
  data[-10] ^= 1  # in the size of the last record
  path.write_bytes(data)
  check_rejected(folder, rf"{path.name} has another checksum.*[Pp]repare")
  # The checksum is right, as if another program had written the index.
  not_of_eleven = "is not the index of 11 records"
  for content, message in (
    (np.zeros(12, tfrecord.ENTRY), not_of_eleven),
    (np.zeros((11, 1), tfrecord.ENTRY), not_of_eleven),
    (np.zeros(11, np.int64), not_of_eleven),
    (np.array([{}] * 11), "cannot be read"),
    (b"\x93NUMPY\x01\x00", "cannot be read"),
  ):
    if isinstance(content, bytes):
      path.write_bytes(content)
    else:
      np.save(path, content)
    update_checksums(folder, INDEX)
    check_rejected(folder, rf"index-train.npy {message}.*[Pp]repare")


def test_names_the_record_where_the_index_of_other_data_differs(folder):
  """The index has the right number of entries and its checksum is right."""
  entries = np.load(folder / INDEX)
  for name in tfrecord.ENTRY.names:
    if name == "target_words":  # the target has no trees
      continue
    other = entries.copy()
    other[name][4] += 1
    other[name][5] -= name == "bytes"  # otherwise the shard would be too short
    replace_index(folder, other)
    check_rejected(folder, r"00001-of-00003: record 1 is")


def test_compares_the_numbers_of_records_with_the_manifest(folder):
  manifest = manifests.read(folder)
  split = manifest["splits"]["train"]
  split["shards"][0]["examples"], split["shards"][1]["examples"] = 4, 3
  manifests.write(folder, manifest)
  check_rejected(folder, r"00000-of-00003: record 3 is truncated")
  split["examples"], split["shards"][0]["examples"] = 12, 5
  manifests.write(folder, manifest)
  check_rejected(folder, r"index-train.npy is not the index of 12 records")


@pytest.mark.parametrize("corruption", ["flip", "cut", "grow", "delete"])
def test_finds_any_corruption_of_any_file(folder, corruption):
  dataset = Dataset(folder)
  assert dataset.corrupt_files() == {}
  names = set(dataset.manifest["files"])
  assert {*manifests.file_names(dataset.manifest)} < names
  assert {f"toy/1.0.0/{n}.json" for n in ("features", "dataset_info")} < names
  for name in names:
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
    result = dataset.corrupt_files()
    assert list(result) == [name]
    assert str(path) in result[name]
    shallow = dataset.corrupt_files(deep=False)
    assert list(shallow) == ([] if corruption == "flip" else [name])
    path.write_bytes(data)


def test_names_text_that_does_not_belong_to_the_records(folder):
  """Otherwise, translations could be scored against other lines."""
  name = "text/train.target-00000-of-00003.gz"
  expected = [f"train target {i}" for i in range(11)]
  assert Dataset(folder).text("train", "target") == expected
  assert Dataset(folder).trees("train", "target") is None
  three = gzip.compress(b"a\n" * 3)
  for content, in_manifest, message in (
    (b"", False, "has .* bytes and had"),
    (gzip.compress(b"a\nb\n"), True, "2 lines, but the shard has 3 records"),
    (gzip.compress(b"a\n" * 3 + b"a"), True, "3 lines, but the shard has 3"),
    (gzip.compress(b"\xff\n" * 3), True, "cannot be read .*utf-8"),
    (b"a\n" * 3, True, "cannot be read .*gzip"),
    (three[:-9], True, "cannot be read .*end"),
  ):
    (folder / name).write_bytes(content)
    if in_manifest:
      update_checksums(folder, name)
    with pytest.raises(InputError, match=rf"{name}.*{message}"):
      Dataset(folder).text("train", "target")
