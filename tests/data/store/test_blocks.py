"""Columns: the same bytes always, and no damage gives other numbers."""

import dataclasses
import io

import numpy as np
import pyarrow as pa
import pytest
from toy_folders import example

from jaxsyn.data import schema
from jaxsyn.data.store import blocks
from jaxsyn.data.store.blocks import BlockReader, write_blocks
from jaxsyn.data.store.lengths import Lengths, read_lengths, write_lengths
from jaxsyn.data.store.rows import Rows
from jaxsyn.errors import InputError

NAMES = tuple(schema.features(("source",)))
PLAIN = ("line", "source_id", "target_id")


def shared_piece():
  """Four words in one subword, as "という" may be: three have none."""
  values = {
    "line": 12,
    "source_id": [9, 3],
    "source_word": [0, -1],
    "source_head": [1, 2, 3, 3],
    "source_relation": [0] * 4,
    "source_parent_mid": [0.0, 1.0],
    "source_tree_distance": [1] * 16,
    "source_parsed": 1,
    "target_id": [3],
  }
  return {k: np.asarray(v, schema.FEATURES[k].dtype) for k, v in values.items()}


def nothing():
  """An empty line: EOS alone, no word."""
  return {
    name: np.asarray(
      3 if name.endswith("id") else -1 if name.endswith("word") else 0,
      schema.FEATURES[name].dtype,
    ).reshape([-1] if schema.FEATURES[name].axes in "ST" else [])
    if schema.FEATURES[name].axes not in ("W", "WW")
    else np.zeros(0, schema.FEATURES[name].dtype)
    for name in NAMES
  }


EXAMPLES = [*map(example, range(8)), shared_piece(), nothing()]


def written(examples, features=NAMES, cuts=()):
  file = io.BytesIO()
  parts = np.split(np.arange(len(examples)), cuts)
  rows = (Rows.of([examples[i] for i in item], features) for item in parts)
  of = write_blocks(file, features, rows)
  return file.getvalue(), of


def read(data, of, features=NAMES):
  reader = BlockReader(io.BytesIO(data), features, name="train.arrow")
  return [one for block in of for one in reader.read(block).examples()]


def same(found, examples, features):
  for one, expected in zip(found, examples, strict=True):
    assert list(one) == list(features)
    for name in features:
      assert one[name].dtype == expected[name].dtype, name
      np.testing.assert_array_equal(one[name], expected[name])


@pytest.fixture(params=[4096, 4])
def longest(request, monkeypatch):
  monkeypatch.setattr(blocks, "LONGEST", request.param)
  return request.param


@pytest.mark.parametrize(
  "features", [NAMES, PLAIN, ("source_tree_distance", "source_id")]
)
def test_what_is_read_is_what_was_written(longest, features):
  loaded = PLAIN if features == PLAIN else NAMES
  data, of = written(EXAMPLES, loaded)
  sizes = [len(block.lengths.source) for block in of]
  assert sizes == ([10] if longest > 10 else [4, 4, 2])
  same(read(data, of, features), EXAMPLES, features)
  words = [0, 0] if loaded == PLAIN else [4, 0]
  lengths = np.concatenate([np.stack(block.lengths, 1) for block in of])
  assert lengths[8:].tolist() == [[2, 1, words[0], 0], [1, 1, words[1], 0]]


@pytest.mark.parametrize("cuts", [range(1, 10), (3, 3, 9), (4,)])
def test_the_bytes_do_not_depend_on_how_they_come(longest, cuts):
  data, of = written(EXAMPLES)
  again, rest = written(EXAMPLES, cuts=cuts)
  assert data == again
  assert [b.columns for b in of] == [b.columns for b in rest]


def test_arrow_reads_the_same(longest):
  data, of = written(EXAMPLES)
  table = pa.ipc.open_file(io.BytesIO(data)).read_all()
  assert table.schema.field("source_id").type.value_type == pa.int32()
  result = read(data, of)
  for name in NAMES:
    column = table[name].to_pylist()
    assert column == [one[name].tolist() for one in result]


@pytest.mark.parametrize("cuts", [(), range(1, 10), (5,)])
def test_a_block_has_no_more_values_than_can_be_held(monkeypatch, cuts):
  monkeypatch.setattr(blocks, "MAX_BLOCK", 20)
  # Distances: 4, 9, 16 | 4, 9 | 16, 4 | 9 | 16 | 0 by sums of at most 20.
  data, of = written(EXAMPLES, cuts=cuts)
  sizes = [len(block.lengths.source) for block in of]
  assert sizes == [2, 2, 1, 2, 1, 2]
  same(read(data, of), EXAMPLES, NAMES)
  monkeypatch.setattr(blocks, "MAX_BLOCK", 3)  # one alone has more
  data, of = written(EXAMPLES, cuts=cuts)
  assert len(of) == 10
  same(read(data, of), EXAMPLES, NAMES)


def test_nothing_can_be_written():
  data, of = written([])
  assert of == [] and read(data, of) == []


def test_no_flip_and_no_cut_gives_other_numbers():
  data, of = written(EXAMPLES)
  rejected = 0
  for place in range(0, len(data), 5):
    for harmed in (
      data[:place] + bytes([data[place] ^ 1 << place % 8]) + data[place + 1 :],
      data[:place],
    ):
      try:
        result = read(harmed, of)
      except InputError as error:
        assert "train.arrow:" in str(error) and "Prepare the" in str(error)
        rejected += 1
      else:  # padding, or what nobody reads
        same(result, EXAMPLES, NAMES)
  assert rejected > len(data) / 8


def test_a_block_of_other_data_is_refused():
  data, of = written(EXAMPLES)
  _, rest = written(EXAMPLES[1:] + EXAMPLES[:1])
  with pytest.raises(InputError, match=r"arrow: line is damaged, .* checksum"):
    read(data, rest)
  with pytest.raises(InputError, match=r"source_brackets is .* is not there"):
    read(data, of, ("source_id", "source_brackets"))
  with pytest.raises(InputError, match=r"source_id is damaged.* the file ends"):
    read(b"no arrow", of, ["source_id"])


LIES = {
  "more values": lambda at: {"values": 2**62},
  "less than none": lambda at: {"values": -1},
  "before the file": lambda at: {"offset": -8},
  "beyond the file": lambda at: {"offset": 2**70},
  "another place": lambda at: {"offset": at.offset + 8},
}


@pytest.mark.parametrize("name", ["source_id", "source_parsed", "line"])
@pytest.mark.parametrize("lie", LIES)
def test_places_that_lie_are_refused(name, lie):
  """All checksums are right, as if somebody had written them so."""
  data, (block,) = written(EXAMPLES)
  at = block.columns[name]
  at = at._replace(**LIES[lie](at))
  lying = dataclasses.replace(block, columns={name: at})
  with pytest.raises(InputError, match=f"train.arrow: {name} is damaged"):
    read(data, [lying], [name])


@pytest.mark.parametrize(
  "lie", [lambda x: x[::-1], lambda x: x[1:], lambda x: -x, lambda x: x[:0]]
)
def test_lengths_that_lie_are_refused(lie):
  data, (block,) = written(EXAMPLES)
  lying = dataclasses.replace(block, lengths=Lengths(*map(lie, block.lengths)))
  with pytest.raises(InputError, match=r"train.arrow: source_id is damaged"):
    read(data, [lying], ["source_id"])


def test_lengths_of_a_split(longest):
  shards = [written(EXAMPLES[:6]), written(EXAMPLES[6:])]
  file = io.BytesIO()
  write_lengths(file, (of for _, of in shards))
  loaded = list(
    read_lengths(io.BytesIO(file.getvalue()), "train.lengths.arrow")
  )
  shard = [block.shard for block in loaded]
  assert shard == ([0, 1] if longest > 10 else [0, 0, 1])
  for shard, (data, _) in enumerate(shards):
    expected = [block for block in loaded if block.shard == shard]
    same(read(data, expected), EXAMPLES[6 * shard :][: (6, 4)[shard]], NAMES)
  for wrong in (b"", file.getvalue()[:-20], shards[0][0]):
    with pytest.raises(InputError, match=r"train.lengths.arrow is no file of"):
      list(read_lengths(io.BytesIO(wrong), "train.lengths.arrow"))
