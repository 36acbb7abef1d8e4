"""A split that is read from its shards: its examples, or one error message."""

import itertools
import os
import shutil

import numpy as np
import pytest
from toy_folders import example, prepare, same, write_shard

from jaxsyn.data import schema
from jaxsyn.data.store import dataset as datasets
from jaxsyn.data.store import index, integrity, manifests, records
from jaxsyn.data.store.dataset import Dataset
from jaxsyn.data.store.manifest_format import records_sha256
from jaxsyn.data.store.rows import Rows
from jaxsyn.errors import InputError
from jaxsyn.storage import checksums

EXAMPLES = [example(i) for i in range(11)]
FEATURES = tuple(EXAMPLES[0])
INDEX = "toy/1.0.0/index-train.npy"


@pytest.fixture(scope="module")
def dataset(tmp_path_factory):
  return prepare(tmp_path_factory.mktemp("prepared"))


@pytest.fixture
def folder(dataset, tmp_path):
  """A copy that a test may corrupt."""
  return shutil.copytree(dataset, tmp_path / "copy")


@pytest.fixture
def blocks_of_two(monkeypatch):
  monkeypatch.setattr(datasets, "BLOCK", 2)


def shard(folder, number):
  name = f"toy-train.tfrecord-{number:05d}-of-00003"
  return folder / "toy" / "1.0.0" / name


def payloads_of(examples, *, text="{name} {line}"):
  """Serialized examples whose texts are made of a pattern."""
  rows = Rows.of(examples, FEATURES)
  texts = {
    name: [text.format(name=name, line=one["line"]) for one in examples]
    for name in schema.TEXTS
  }
  return records.encode(rows, texts)


def update_crcs(folder, crcs):
  """Writes checksums of records into the index, from the first record on."""
  entries = np.load(folder / INDEX)
  entries["crc"][: len(crcs)] = crcs
  index.save(folder / "other.npy", [entries])
  update_checksum(folder, INDEX, (folder / "other.npy").read_bytes())


def update_checksum(folder, name, data):
  """Replaces a file, and its checksum in the manifest."""
  (folder / name).write_bytes(data)
  manifest = manifests.read(folder)
  manifest["files"] |= checksums.file_checksums(folder, [name])
  manifests.write(folder, manifest)


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


def test_blocks_end_where_shards_end(dataset, blocks_of_two):
  split = Dataset(dataset).split("train")
  # 11 records in 3 shards: 3, 4, 4.
  assert np.diff(split.block_start).tolist() == [2, 1, 2, 2, 2, 2]
  assert Dataset(dataset).split("none").block_start.tolist() == [0]


def test_reads_blocks_in_any_order_and_repeatedly(dataset, blocks_of_two):
  split = Dataset(dataset).split("train")
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


def test_lengths_have_the_smallest_types(dataset):
  found = Dataset(dataset).split("train").lengths
  assert [side.dtype for side in found] == [np.uint8] * 4
  assert found.source.tolist() == [3 + i % 3 for i in range(11)]
  assert found.target.tolist() == [1 + i % 4 for i in range(11)]
  assert found.source_words.tolist() == [2 + i % 3 for i in range(11)]
  assert not found.target_words.any()


def test_index_has_the_size_of_each_payload(dataset):
  entries = Dataset(dataset).split("train").index
  sizes = [
    len(payload)
    for number in range(3)
    for payload in records.scan(shard(dataset, number))
  ]
  assert entries["bytes"].tolist() == sizes
  assert entries.dtype.itemsize == 16


def test_counts_sentences_without_a_tree(folder):
  assert Dataset(folder).split("train").unparsed("source") == 0
  unparsed = [{**one, "source_parsed": np.uint8(0)} for one in EXAMPLES[3:5]]
  payloads = payloads_of([*EXAMPLES[:3], *unparsed, *EXAMPLES[5:7]])
  write_shard(shard(folder, 1), payloads[3:])
  update_crcs(folder, [*map(records.masked_crc, payloads)])
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
  with pytest.raises(
    InputError,
    match=r"00001-of-00003 cannot be read: No such file.*[Pp]repare",
  ):
    list(found)


@pytest.mark.parametrize("block", [2, 4096])
def test_names_the_record_where_a_shard_ends_early(folder, monkeypatch, block):
  """A shard may be cut after the split was opened."""
  monkeypatch.setattr(datasets, "BLOCK", block)
  found = Dataset(folder).split("train")
  sizes = [len(payload) + 16 for payload in records.scan(shard(folder, 1))]
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
    with pytest.raises(
      InputError,
      match=rf"00001-of-00003: record {record} is truncated. .*[Pp]repare",
    ):
      list(found)


def test_names_a_folder_in_the_place_of_a_shard(folder):
  path = shard(folder, 0)
  size = path.stat().st_size
  path.unlink()
  path.mkdir()
  with pytest.raises(InputError, match=r"00000-of-00003"):
    list(Dataset(folder).split("train"))
  path.rmdir()
  path.write_bytes(bytes(size))
  with pytest.raises(InputError, match=r"00000-of-00003: record 0 is corrupt"):
    list(Dataset(folder).split("train"))


@pytest.mark.parametrize("block", [2, 4096])
def test_names_the_record_with_a_flipped_bit(folder, monkeypatch, block):
  monkeypatch.setattr(datasets, "BLOCK", block)
  path = shard(folder, 1)
  data = bytearray(path.read_bytes())
  data[-20] ^= 1  # in the payload of the last of its 4 records
  path.write_bytes(data)
  found = Dataset(folder).split("train")
  same(found[2], EXAMPLES[2])
  same(found[7], EXAMPLES[7])
  if block == 2:
    same(found[4], EXAMPLES[4])
  for read in (lambda: found[6], lambda: list(found)):
    with pytest.raises(
      InputError,
      match=r"01-of-00003: record 3 is corrupt.*checksum.*[Pp]repare",
    ):
      read()


def test_finds_a_flipped_bit_in_features_that_are_not_read(folder):
  """The checksum is of the complete record."""
  path = shard(folder, 0)
  data = path.read_bytes()
  place = data.index(b"target_text 1")
  path.write_bytes(data[:place] + b"T" + data[place + 1 :])
  with pytest.raises(InputError, match=r"00000-of-00003: record 0 is corrupt"):
    list(Dataset(folder).split("train").rows(["line"]))


@pytest.mark.parametrize(
  ("examples", "record"), [((2, 1, 0), 0), ((0, 2, 1), 1), ((9, 1, 2), 0)]
)
def test_names_records_of_other_data(folder, examples, record):
  """As when a file is copied from another dataset directory of the same size."""
  path = shard(folder, 0)
  size = path.stat().st_size
  write_shard(path, payloads_of([EXAMPLES[i] for i in examples]))
  grown = path.stat().st_size - size
  assert (grown > 0) == (9 in examples)
  if grown:
    with pytest.raises(InputError, match=r"00000-of-00003 has .* bytes and"):
      Dataset(folder).split("train")
    return
  with pytest.raises(
    InputError,
    match=rf"00000-of-00003: record {record} is corrupt, or of another data "
    r"set: its size differs from the index.*[Pp]repare",
  ):
    list(Dataset(folder).split("train"))


def test_names_a_record_whose_sentences_have_other_lengths(folder):
  """A record may have the size that the index has, and other sentences."""
  old = EXAMPLES[0]
  new = old | {
    "source_id": np.append(old["source_id"][:1], old["source_id"]),
    "source_relation": old["source_relation"][1:],
  }
  payloads = payloads_of([new, *EXAMPLES[1:3]])
  path = shard(folder, 0)
  size = path.stat().st_size
  write_shard(path, payloads)
  assert path.stat().st_size == size
  update_crcs(folder, [*map(records.masked_crc, payloads)])
  with pytest.raises(
    InputError,
    match=r"record 0 is corrupt, or of another data set: "
    r"source_id has another length than the index",
  ):
    list(Dataset(folder).split("train").rows(["source_id"]))


def test_names_the_record_of_other_data_that_differs_in_values_alone(folder):
  """Size, lengths and checksums of the records are right."""
  swapped = EXAMPLES[0] | {"source_id": EXAMPLES[0]["source_id"][[1, 0, 2]]}
  path = shard(folder, 0)
  size = path.stat().st_size
  write_shard(path, payloads_of([swapped, *EXAMPLES[1:3]]))
  assert path.stat().st_size == size
  manifest = manifests.read(folder)
  assert integrity.corrupt_files(folder, manifest, deep=False) == {}
  assert list(integrity.corrupt_files(folder, manifest)) == [
    f"toy/1.0.0/{path.name}"
  ]
  found = Dataset(folder).split("train")
  message = r"00000-of-00003: record 0 is corrupt, or of another data set: its "
  with pytest.raises(InputError, match=message + r"checksum differs from the"):
    list(found)


@pytest.mark.parametrize("harm", ["missing", "cut", "flipped", "other"])
def test_rejects_a_corrupt_index_when_it_is_opened(folder, harm):
  path = folder / INDEX
  data = path.read_bytes()
  message = rf"{path.name} has .* bytes and had .*[Pp]repare"
  if harm == "missing":
    path.unlink()
    message = rf"{path.name}: No such file.*[Pp]repare"
  elif harm == "cut":
    os.truncate(path, len(data) - 1)
  else:  # another size of a record, of the same number of bytes
    place = -16 if harm == "flipped" else -32
    other = bytearray(data)
    other[place] ^= 1
    path.write_bytes(other)
    message = rf"{path.name} has another checksum.*[Pp]repare"
  with pytest.raises(InputError, match=message):
    Dataset(folder).split("train")


def array_file(array):
  path = "array.npy"
  np.save(path, array)
  with open(path, "rb") as file:
    return file.read()


@pytest.mark.parametrize(
  ("content", "message"),
  [
    (np.zeros(12, index.ENTRY), "is not the index of 11 records"),
    (np.zeros((11, 1), index.ENTRY), "is not the index of 11 records"),
    (np.zeros(11, np.int64), "is not the index of 11 records"),
    (np.array([{}] * 11), "cannot be read"),
    (b"no array", "cannot be read"),
    (b"", "cannot be read"),
    (b"\x93NUMPY\x01\x00", "cannot be read"),
  ],
)
def test_rejects_an_invalid_index(
  folder, tmp_path, monkeypatch, content, message
):
  """Its checksum is right, as if another program had written it."""
  monkeypatch.chdir(tmp_path)
  data = content if isinstance(content, bytes) else array_file(content)
  update_checksum(folder, INDEX, data)
  with pytest.raises(
    InputError, match=rf"index-train.npy {message}.*[Pp]repare"
  ):
    Dataset(folder).split("train")


def test_names_the_record_where_the_index_of_other_data_differs(folder):
  """The index has the right number of entries and its checksum is right."""
  entries = np.load(folder / INDEX)
  for name in index.ENTRY.names:
    other = entries.copy()
    other[name][4] += 1
    other[name][5] -= name == "bytes"  # else the shard would be too short
    index.save(folder / "other.npy", [other])
    data = (folder / "other.npy").read_bytes()
    update_checksum(folder, INDEX, data)
    found = Dataset(folder).split("train")
    if name == "target_words":  # the target has no trees
      list(found)
      continue
    with pytest.raises(InputError, match=r"00001-of-00003: record 1 is"):
      list(found)


def test_rejects_an_index_of_fewer_records_than_the_manifest(folder):
  manifest = manifests.read(folder)
  manifest["splits"]["train"]["examples"] += 1
  manifest["splits"]["train"]["shards"][0]["examples"] += 1
  manifests.write(folder, manifest)
  with pytest.raises(
    InputError, match=r"index-train.npy is not the index of 12 records"
  ):
    Dataset(folder).split("train")


def test_names_the_shard_with_fewer_records_than_in_the_manifest(folder):
  manifest = manifests.read(folder)
  shards = manifest["splits"]["train"]["shards"]
  shards[0]["examples"], shards[1]["examples"] = 4, 3
  manifests.write(folder, manifest)
  with pytest.raises(
    InputError, match=r"00000-of-00003: record 3 is truncated"
  ):
    list(Dataset(folder).split("train"))


def test_reads_more_than_a_block_in_several_shards(folder):
  """Blocks of 4,096 records, and shards that end within one."""
  assert datasets.BLOCK == 4096
  drawn = np.random.default_rng(0).integers(11, size=12_000)
  examples = [
    EXAMPLES[k] | {"line": np.int64(i + 1)} for i, k in enumerate(drawn)
  ]
  manifest = manifests.read(folder)
  facts, entries = manifest["splits"]["train"], []
  bounds = (0, 5000, 5001, 12_000)
  for number, (a, b) in enumerate(itertools.pairwise(bounds)):
    payloads = payloads_of(examples[a:b])
    write_shard(shard(folder, number), payloads)
    rows = Rows.of(examples[a:b], FEATURES)
    entries.append(index.entries(payloads, rows))
    data = shard(folder, number).read_bytes()
    facts["shards"][number] |= {"examples": b - a, "bytes": len(data)}
  facts["examples"] = 12_000
  index.save(folder / INDEX, entries)
  names = [f"toy/1.0.0/{one['file']}" for one in facts["shards"]]
  manifest["files"] |= checksums.file_checksums(folder, [*names, INDEX])
  facts["records_sha256"] = records_sha256(
    [one["sha256"] for one in facts["shards"]]
  )
  manifests.write(folder, manifest)
  found = Dataset(folder).split("train")
  assert np.diff(found.block_start).tolist() == [4096, 904, 1, 4096, 2903]
  rows, expected = (
    Rows.joined([*found.rows(FEATURES)]),
    Rows.of(examples, FEATURES),
  )
  for name in FEATURES:
    np.testing.assert_array_equal(rows.flat[name], expected.flat[name])
    np.testing.assert_array_equal(rows.start[name], expected.start[name])
    assert rows.flat[name].dtype == expected.flat[name].dtype
  for i in (0, 4095, 4096, 4999, 5000, 5001, 9096, 9097, 11_999):
    same(found[i], examples[i])


def test_index_rejects_sentences_that_are_too_long():
  long = EXAMPLES[1] | {"target_id": np.ones(2**16, np.int32)}
  with pytest.raises(
    InputError,
    match=r"65,536 target subwords; at most 65,535 .*max_subwords",
  ):
    index.entries([b"a", b"b"], Rows.of([EXAMPLES[0], long], FEATURES))
