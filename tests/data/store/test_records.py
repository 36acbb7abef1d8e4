"""Records by number and in order; the index; damaged folders."""

import json
import os
import shutil

import numpy as np
import pytest
from tensorflow_datasets.proto import tf_example_pb2
from toy_folders import example, prepare, same

from benchmarks.faults import mutants
from jaxsyn.data import schema
from jaxsyn.data.store import decoding, layout, manifests, records, tfrecord
from jaxsyn.data.store.example_check import Check
from jaxsyn.data.store.index import Index
from jaxsyn.data.store.manifest_format import records_sha256
from jaxsyn.errors import InputError
from jaxsyn.storage import checksums, files

EXAMPLES = [example(i) for i in range(11)]


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
  return prepare(tmp_path_factory.mktemp("prepared"))


@pytest.fixture
def folder(prepared, tmp_path):
  """A copy that a test may damage."""
  return shutil.copytree(
    prepared, tmp_path / "copy", ignore=shutil.ignore_patterns("derived")
  )


def test_index(prepared):
  index = records.Records(prepared, "train").index
  # 11 records in 3 shards: 3, 4, 4.
  assert index.shard.tolist() == [0] * 3 + [1] * 4 + [2] * 4
  assert index.offset[0] == index.offset[3] == 0
  assert index.offset[1] == 12 + index.length[0] + 4


@pytest.mark.parametrize("damage", ["missing", "garbage", "cut", "other"])
@pytest.mark.parametrize("may_write", [True, False])
def test_index_is_made_again(folder, monkeypatch, damage, may_write):
  path = folder / "toy" / "1.0.0" / "index-train.arrow"
  original = path.read_bytes()
  if damage == "missing":
    path.unlink()
  elif damage == "garbage":
    path.write_bytes(b"no index")
  elif damage == "cut":
    os.truncate(path, 200)
  else:  # whole, of as many records
    Index.of([[7] * 11], "other").save(path)
  if not may_write:
    monkeypatch.setattr(files, "publish", unwritable)
  result = records.Records(folder, "train")
  same(result[6], EXAMPLES[6])
  if may_write:
    assert path.read_bytes() == original


def unwritable(*_):
  raise PermissionError


def shard(folder, index):
  name = f"toy-train.tfrecord-{index:05d}-of-00003"
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
  result = records.Records(folder, "train")
  same(result[5], EXAMPLES[5])
  for read in (lambda: result[6], lambda: list(result)):
    with pytest.raises(InputError, match=r"01-of-00003: record 3 is damaged"):
      read()


def test_fewer_records_than_the_manifest_says(folder):
  manifest = manifests.read(folder)
  manifest["splits"]["train"]["examples"] += 1
  manifest["splits"]["train"]["shards"][0]["examples"] += 1
  manifests.write(folder, manifest)
  with pytest.raises(
    InputError, match=r"00000-of-00003 holds 3 records.*says 4"
  ):
    list(records.Records(folder, "train"))


def test_manifest_faults(folder):
  path = folder / "manifest.json"
  path.write_text(json.dumps({"format": 99}))
  with pytest.raises(InputError, match=r"has format 99; this version reads 4"):
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


def shards_again(folder, payloads):
  """Writes payloads as the training split, checksums and sums all right."""
  manifest = manifests.read(folder)
  facts = manifest["splits"]["train"]
  where = layout.tfds_folder("", manifest)
  payloads = iter(payloads)
  for shard in facts["shards"]:
    name = f"{where}/{shard['file']}"
    with tfrecord.writer(folder / name) as writer:
      for _ in range(shard["examples"]):
        writer.write(next(payloads))
    shard |= {"bytes": writer.size, "sha256": writer.digest.hexdigest()}
    manifest["files"] |= checksums.file_checksums(folder, [name])
  facts["records_sha256"] = records_sha256(
    [shard["sha256"] for shard in facts["shards"]]
  )
  manifests.write(folder, manifest)


def payloads_of(folder):
  paths = [shard(folder, i) for i in range(3)]
  return [payload for path in paths for payload in tfrecord.scan(path)]


def changed(payload, edit):
  example = tf_example_pb2.Example.FromString(payload)
  edit(example.features.feature)
  return example.SerializeToString()


def integers(name, *values):
  def change(feature):
    feature[name].int64_list.value[:] = values

  return change


def floats(name, *values):
  def change(feature):
    feature[name].float_list.value[:] = values

  return change


# Of record 5, whose source has four words and EOS: what is wrong, and its name.
WRONG = [
  (lambda feature: feature.pop("source_head"), "its features are not"),
  (lambda feature: feature["more"].int64_list.value.append(1), "features are"),
  (lambda feature: feature["line"].ClearField("int64_list"), "line must have"),
  (integers("line", 1, 2), "line must have one value"),
  (integers("line", -1), "line is no line number"),
  (floats("source_head", 0.0), "source_head has values of another type"),
  (integers("source_parent_mid", 0), "source_parent_mid has values of another"),
  (integers("source_id"), "source_id is empty"),
  (integers("source_id", 10, 11, 12, 13, 14), "source_id does not end in EOS"),
  (integers("source_id", 10, 1000, 12, 13, 3), "source_id has an unknown id"),
  (integers("source_id", 10, -1, 12, 13, 3), "source_id has an unknown id"),
  (integers("source_id", 10, 2**40, 12, 13, 3), "source_id: .*out of bounds"),
  (integers("source_id", 10, 3), "source_word has another number of values"),
  (integers("target_id", 2**31 - 1, 3), "target_id has an unknown id"),
  (integers("source_word", 0, 1, 2, 4, -1), "source_word has a word that is"),
  (integers("source_word", 0, 1, -2, 3, -1), "source_word has a word that is"),
  (integers("source_word", *[2**31 - 1] * 5), "source_word has a word that"),
  (integers("source_head", 0, 0, 0, 4), "source_head has a word that is not"),
  (integers("source_head", 0, 0, 0, -1), "source_head has a word that is not"),
  (integers("source_head", 0, 2, 3, 1), "source_head has a cycle"),
  (integers("source_head", 0, 0, 0), "source_relation has another number"),
  (integers("source_relation", 0, 1, 2, 9), "source_relation has an unknown"),
  (floats("source_parent_mid", 0, 0, 0, 0, 4.5), "place that is not in"),
  (floats("source_parent_mid", *[float("nan")] * 5), "place that is not in"),
  (floats("source_parent_mid", -0.5, 0, 0, 0, 4), "place that is not in"),
  (integers("source_parsed", 2), "source_parsed is neither 0 nor 1"),
  (integers("source_parsed", 256), "source_parsed: .*out of bounds"),
  (
    lambda feature: feature[
      "source_tree_distance"
    ].bytes_list.value.__setitem__(0, b"123"),
    "source_tree_distance has another number",
  ),
  (
    lambda feature: feature["source_tree_distance"].bytes_list.value.append(
      b""
    ),
    "source_tree_distance must have one value",
  ),
]


@pytest.mark.parametrize(("change", "message"), WRONG)
def test_whole_records_that_are_no_examples(folder, change, message):
  """All checksums are right, as if somebody had written other data so."""
  payloads = payloads_of(folder)
  payloads[5] = changed(payloads[5], change)
  shards_again(folder, payloads)
  message = rf"00001-of-00003: record 2 is no example.*{message}.*Prepare the"
  with pytest.raises(InputError, match=message):
    list(records.Records(folder, "train"))


def test_an_example_as_large_as_may_be(folder):
  payloads = payloads_of(folder)
  payloads[5] = changed(payloads[5], integers("source_id", 999, 0, 1, 2, 3))
  shards_again(folder, payloads)
  result = list(records.Records(folder, "train"))
  assert result[5]["source_id"].tolist() == [999, 0, 1, 2, 3]


def test_hundreds_of_payloads_give_examples_or_a_reason(folder):
  manifest, payloads = manifests.read(folder), payloads_of(folder)
  decode = decoding.decoder(manifests.features(manifest))
  check, rejected = Check(manifest), 0
  for seed in range(400):
    rng = np.random.default_rng(seed)
    i, batch = int(rng.integers(11)), list(payloads)
    batch[i] = mutants.harmed(batch[i], rng)
    try:
      rows = decode(batch)
      check(rows)
    except decoding.InvalidExampleError as error:
      assert error.number == i
      rejected += 1
    else:
      result = rows.examples()[i]
      words, pieces = len(result["source_head"]), len(result["source_id"])
      assert max(result["source_id"]) < 1000 > max(result["target_id"])
      assert len(result["source_word"]) == pieces
      assert (
        -1 <= min(result["source_word"]) <= max(result["source_word"]) < words
      )
      assert len(result["source_tree_distance"]) == words**2
  assert rejected > 300


def test_records_of_other_data_of_the_same_size(folder):
  """As when a file is copied from another preparation: whole, and not ours."""
  payloads = payloads_of(folder)
  payloads[3] = changed(payloads[3], integers("source_id", 11, 10, schema.EOS))
  path = shard(folder, 1)
  size = path.stat().st_size
  with tfrecord.writer(path) as writer:
    for payload in payloads[3:7]:
      writer.write(payload)
  assert path.stat().st_size == size
  result = records.Records(folder, "train")
  with pytest.raises(InputError, match=r"00001-of-00003 has another checksum"):
    list(result)


def test_an_unreadable_shard_is_named(folder):
  path = shard(folder, 0)
  size = path.stat().st_size
  path.unlink()
  path.mkdir()
  with pytest.raises(InputError, match=r"00000-of-00003"):
    records.Records(folder, "train")
  path.rmdir()
  path.write_bytes(bytes(size))
  with pytest.raises(InputError, match=r"00000-of-00003: record 0 is damaged"):
    list(records.Records(folder, "train"))
