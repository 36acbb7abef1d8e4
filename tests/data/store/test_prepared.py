"""A split by its columns: the examples of its records, or one message."""

import os
import shutil

import numpy as np
import pytest
from toy_folders import example, prepare, same

from jaxsyn.data.store import blocks, manifests
from jaxsyn.data.store.prepared import PreparedSplit
from jaxsyn.data.store.records import Records
from jaxsyn.errors import InputError
from jaxsyn.storage import checksums

EXAMPLES = [example(i) for i in range(11)]


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
  with pytest.MonkeyPatch.context() as patch:
    patch.setattr(blocks, "LONGEST", 2)
    return prepare(tmp_path_factory.mktemp("prepared"))


@pytest.fixture
def folder(prepared, tmp_path):
  """A copy that a test may damage."""
  return shutil.copytree(prepared, tmp_path / "copy")


@pytest.mark.parametrize("opened", [PreparedSplit, Records])
def test_by_number_and_in_order(prepared, opened):
  loaded = opened(prepared, "train")
  assert len(loaded) == 11
  for one, expected in zip(loaded, EXAMPLES, strict=True):
    same(one, expected)
  for i in (10, 0, 5):
    same(loaded[i], EXAMPLES[i])
  for i in (-1, 11):
    with pytest.raises(IndexError, match=rf" {i} of 11"):
      loaded[i]
  assert len(opened(prepared, "test")) == 1
  assert list(opened(prepared, "none")) == []
  with pytest.raises(InputError, match=r"no split 'trian'. Did you mean 'tr"):
    opened(prepared, "trian")


def test_shards_are_cut_into_blocks(prepared):
  columns = PreparedSplit(prepared, "train").columns
  assert np.diff(columns.start).tolist() == [2, 1, 2, 2, 2, 2]


def test_lengths_are_as_short_as_they_can_be(prepared):
  result = PreparedSplit(prepared, "train").columns.lengths
  assert [side.dtype for side in result] == [np.uint8] * 4
  assert result.source.tolist() == [3 + i % 3 for i in range(11)]
  assert result.target.tolist() == [1 + i % 4 for i in range(11)]
  assert result.source_words.tolist() == [2 + i % 3 for i in range(11)]
  assert not result.target_words.any()


def columns(folder, shard):
  return folder / "columns" / f"train-{shard:05d}-of-00003.arrow"


def test_a_file_that_is_missing_or_cut_is_told_at_once(folder):
  original = columns(folder, 1).read_bytes()
  os.truncate(columns(folder, 1), len(original) - 1)
  with pytest.raises(InputError, match=r"train-00001-.* bytes and had .*Prep"):
    PreparedSplit(folder, "train")
  columns(folder, 1).unlink()
  with pytest.raises(InputError, match=r"00001-of-00003.arrow: No such file"):
    PreparedSplit(folder, "train")
  columns(folder, 1).write_bytes(original)
  result = PreparedSplit(folder, "train")
  columns(folder, 1).unlink()  # after it was opened
  with pytest.raises(InputError, match=r"00001-of-00003.arrow cannot be read"):
    list(result)


@pytest.mark.parametrize("name", ["source_id", "source_tree_distance", "line"])
def test_a_flip_is_told_when_it_is_read(folder, name):
  place = PreparedSplit(folder, "train").columns.blocks[2][1][name].offset
  data = bytearray(columns(folder, 1).read_bytes())
  data[place + (name != "line") * 16 + 5] ^= 1  # after the starts
  columns(folder, 1).write_bytes(data)
  result = PreparedSplit(folder, "train")
  same(result[10], EXAMPLES[10])
  with pytest.raises(InputError, match=rf"00001-of-00003.arrow: {name} is dam"):
    result[3]


def test_columns_of_other_data_of_the_same_size(folder):
  """As when a file is copied from another preparation: whole, and not ours."""
  path = columns(folder, 0)
  table = [example(i) for i in (9, 1, 2)]  # of the same lengths
  features = PreparedSplit(folder, "train").features
  with (
    path.open("wb") as file,
    pytest.MonkeyPatch.context() as patch,
  ):
    patch.setattr(blocks, "LONGEST", 2)
    blocks.write_blocks(file, features, [blocks.Rows.of(table, features)])
  with pytest.raises(InputError, match=r"of another data set|is damaged"):
    list(PreparedSplit(folder, "train"))


def resealed(folder, name, data):
  """Another file, of which the manifest has the sum."""
  (folder / name).write_bytes(data)
  manifest = manifests.read(folder)
  manifest["files"] |= checksums.file_checksums(folder, [name])
  manifests.write(folder, manifest)


def test_lengths_of_other_data(folder):
  name = "columns/train.lengths.arrow"
  original = (folder / name).read_bytes()
  (folder / name).write_bytes(original[:-9] + b"x" + original[-8:])
  with pytest.raises(InputError, match=r"train.lengths.arrow has another chec"):
    PreparedSplit(folder, "train")
  for other, message in (
    ("test.lengths.arrow", "is not of these 11 examples"),
    ("train-00000-of-00003.arrow", "is no file of lengths"),
  ):
    resealed(folder, name, (folder / "columns" / other).read_bytes())
    with pytest.raises(InputError, match=message):
      PreparedSplit(folder, "train")
