"""Records by number and in order; the index; damaged folders."""

import json
import os
import pickle
import shutil

import numpy as np
import pytest
from toy_folders import example, prepare

from jaxsyn.data import manifest as manifests
from jaxsyn.data import records
from jaxsyn.errors import InputError

EXAMPLES = [example(i) for i in range(11)]


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
  return prepare(tmp_path_factory.mktemp("prepared"))


@pytest.fixture
def folder(prepared, tmp_path):
  """A copy that a test may damage."""
  return shutil.copytree(prepared, tmp_path / "copy")


def same(a, b):
  assert a.keys() == b.keys()
  for name in a:
    np.testing.assert_array_equal(a[name], b[name])
    assert a[name].dtype == b[name].dtype, name


def test_by_number_and_in_order(prepared):
  found = records.Records(prepared, "train")
  assert len(found) == 11
  for i, one in enumerate(found):
    same(one, EXAMPLES[i])
    same(found[i], EXAMPLES[i])
  for i in (10, 0, 5):
    same(found[i], EXAMPLES[i])
  assert len(records.Records(prepared, "test")) == 1
  assert list(records.Records(prepared, "none")) == []


def test_out_of_range(prepared):
  found = records.Records(prepared, "train")
  for i in (-1, 11):
    with pytest.raises(IndexError, match=rf"record {i} of 11"):
      found[i]


def test_index(prepared):
  index = records.Records(prepared, "train").index
  # 11 records in 3 shards: 3, 4, 4; source lengths 3 4 5 3 ..., EOS included.
  assert index.shard.tolist() == [0] * 3 + [1] * 4 + [2] * 4
  assert index.source_length.tolist() == [3 + i % 3 for i in range(11)]
  assert index.target_length.tolist() == [1 + i % 4 for i in range(11)]
  assert index.offset[0] == index.offset[3] == 0
  assert index.offset[1] == 12 + index.length[0] + 4


@pytest.mark.parametrize("damage", ["missing", "garbage", "cut", "other"])
def test_index_is_rebuilt(folder, damage):
  path = folder / "toy" / "1.0.0" / "index-train.npz"
  expected = records.Index.load(path)
  if damage == "missing":
    path.unlink()
  elif damage == "garbage":
    path.write_bytes(b"no index")
  elif damage == "cut":
    os.truncate(path, 200)
  else:  # of another data set
    records.Index.of([(0, 7, 7, 7, 7)], "other").save(path)
  for index in (
    records.Records(folder, "train").index,
    records.Index.load(path),
  ):
    assert index.fingerprint == expected.fingerprint
    for name in ("shard", "offset", "length", "source_length", "target_length"):
      np.testing.assert_array_equal(
        getattr(index, name), getattr(expected, name)
      )


def test_read_only_folder(folder, monkeypatch):
  (folder / "toy" / "1.0.0" / "index-train.npz").unlink()

  def refuse(*_):
    raise PermissionError

  monkeypatch.setattr(records.Index, "save", refuse)
  assert len(records.Records(folder, "train").index) == 11


def test_pickled(prepared):
  found = records.Records(prepared, "train")
  found[0]
  same(pickle.loads(pickle.dumps(found))[4], EXAMPLES[4])


def shard(folder, number):
  name = f"toy-train.tfrecord-{number:05d}-of-00003"
  return folder / "toy" / "1.0.0" / name


def test_missing_shard(folder):
  shard(folder, 1).unlink()
  with pytest.raises(InputError, match=r"00001-of-00003 is missing. Prepare"):
    records.Records(folder, "train")


def test_truncated_shard(folder):
  os.truncate(shard(folder, 2), shard(folder, 2).stat().st_size - 1)
  with pytest.raises(
    InputError, match=r"00002-of-00003: record 3 is truncated"
  ):
    records.Records(folder, "train")


def test_longer_shard(folder):
  with shard(folder, 0).open("ab") as file:
    file.write(b"more")
  with pytest.raises(InputError, match=r"00000-of-00003 has .* bytes, but the"):
    records.Records(folder, "train")


def test_flipped_bit(folder):
  path = shard(folder, 1)
  data = bytearray(path.read_bytes())
  data[-20] ^= 1  # in the payload of the last of its 4 records
  path.write_bytes(data)
  found = records.Records(folder, "train")
  same(found[5], EXAMPLES[5])
  with pytest.raises(InputError, match=r"00001-of-00003: record 3 is damaged"):
    found[6]
  with pytest.raises(InputError, match=r"record 3 is damaged"):
    list(found)


def test_fewer_records_than_the_manifest_says(folder):
  manifest = manifests.read(folder)
  manifest["splits"]["train"]["examples"] += 1
  manifest["splits"]["train"]["shards"][0]["examples"] += 1
  manifests.write(folder, manifest)
  with pytest.raises(InputError, match=r"holds 11 records.*says 12"):
    records.Records(folder, "train")


def test_no_such_split(prepared):
  with pytest.raises(
    InputError, match=r"no split 'trian'. Did you mean 'train'"
  ):
    records.Records(prepared, "trian")


def test_manifest_faults(folder):
  path = folder / "manifest.json"
  path.write_text(json.dumps({"format": 99}))
  with pytest.raises(InputError, match=r"has format 99; this version reads 2"):
    manifests.read(folder)
  path.write_text("{")
  with pytest.raises(InputError, match=r"manifest.json is damaged"):
    manifests.read(folder)
  path.unlink()
  with pytest.raises(
    InputError, match=r"is not a prepared folder.*again, if it"
  ):
    manifests.read(folder)
  with pytest.raises(InputError, match=r"nowhere is missing"):
    manifests.read(folder / "nowhere")
