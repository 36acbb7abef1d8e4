"""Damage is found, and reading changes nothing."""

import errno
import os
import resource
import shutil
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from jaxsyn.errors import InputError
from jaxsyn.storage import checksums, files
from jaxsyn.training import array_checksums
from jaxsyn.training.checkpoint_folder import (
  METADATA_FILE,
)
from jaxsyn.training.checkpoint_reader import CheckpointReader
from jaxsyn.training.checkpoint_writer import CheckpointWriter, Progress

SIZE = 8


def state(step: int):
  """Numbers that do not compress to nothing, others in each step."""
  draw = np.random.default_rng(step)
  return {
    "params": {
      "w": jnp.array(draw.standard_normal((SIZE, 512)), jnp.float32),
      "v": jnp.array(draw.standard_normal(SIZE), jnp.bfloat16),
    },
    "step": jnp.array(step),
  }


ABSTRACT = jax.eval_shape(lambda: state(0))


def score(value: float):
  """Content of the page of best parameters."""
  measured = {"score": value, "log_likelihood": -1.0}
  return {"selection": "bleu", "tokenizer": "13a", **measured}


def saved(folder, steps=(1, 2), best=1):
  checkpoints = CheckpointWriter(folder, keep=3)
  for step in steps:
    checkpoints.save(step, state(step), Progress(batch=step, best_step=best))
  checkpoints.save_best(best, state(best)["params"], score(30.0))
  checkpoints.close()
  return folder


def is_of(params, step):
  expected = state(step)["params"]
  return all(
    np.array_equal(params[name], expected[name], equal_nan=True)
    for name in expected
  )


def flip(path):
  data = bytearray(path.read_bytes())
  data[len(data) // 2] ^= 0x10
  path.write_bytes(data)


DAMAGES = {
  "flipped": flip,
  "cut": lambda path: os.truncate(path, path.stat().st_size // 2),
  "removed": lambda path: path.unlink(),
  "emptied": lambda path: os.truncate(path, 0),
}


def files_of(folder):
  return sorted(p for p in folder.rglob("*") if p.is_file())


def arrays_of(checkpoint):
  """The largest file: where the numbers are."""
  return max(files_of(checkpoint), key=lambda path: path.stat().st_size)


def flip_unseen(checkpoint):
  """Other numbers in files whose sums fit, as if saving had gone wrong."""
  flip(arrays_of(checkpoint))
  document = checksums.verify_checksum(
    files.read_json(checkpoint / METADATA_FILE)
  )
  document["files"] = checksums.file_checksums(
    checkpoint, list(document["files"])
  )
  files.write_json(checkpoint / METADATA_FILE, checksums.add_checksum(document))


def seen(folder):
  """Everything that a writing process would change."""
  return {
    str(path): (path.lstat().st_mtime_ns, path.lstat().st_ino)
    for path in [folder, *folder.rglob("*")]
  }


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("which", ["last", "best"])
def test_corruption_never_changes_numbers(tmp_path, which, damage):
  """Every file of a checkpoint in turn; what is read is of a step, to the bit."""
  complete = saved(tmp_path / "whole")
  newest = complete / ("checkpoints/2" if which == "last" else "best/1")
  other = 1 if which == "last" else 2
  if which == "best":  # so that the nearest is another
    shutil.rmtree(complete / "checkpoints/1")
  for index, file in enumerate(files_of(newest)):
    folder = tmp_path / str(index)
    shutil.copytree(complete, folder)
    DAMAGES[damage](folder / file.relative_to(complete))
    chosen = CheckpointReader(folder).restore_params(
      which, ABSTRACT["params"], False
    )
    assert is_of(chosen.params, other), (file, damage)
    assert (chosen.steps, chosen.score) == ((other,), None)
    (message,) = chosen.corrupt
    assert "corrupt" in message
    assert str(folder / newest.relative_to(complete)) in message


def test_the_writer_moves_corrupt_checkpoints_away(tmp_path, caplog):
  saved(tmp_path, (1, 2, 3))
  (tmp_path / "corrupt-3").write_text("of an earlier time")
  flip(arrays_of(tmp_path / "checkpoints/3"))
  flip(arrays_of(tmp_path / "best/1"))
  checkpoints = CheckpointWriter(tmp_path)
  step, result, progress = checkpoints.restore(ABSTRACT)
  checkpoints.close()
  assert step == 2 and progress.batch == 2 and is_of(result["params"], 2)
  assert (tmp_path / "corrupt-3").read_text() == "of an earlier time"
  assert (tmp_path / "corrupt-3.1" / "metadata.json").is_file()
  assert (tmp_path / "corrupt-best-1" / "metadata.json").is_file()
  assert "has another checksum" in caplog.text
  assert CheckpointReader(tmp_path).steps() == [1, 2]
  assert CheckpointReader(tmp_path).best.steps() == []
  # Then the nearest stands in for the best, which is said.
  chosen = CheckpointReader(tmp_path).restore_params(
    "best", ABSTRACT["params"], False
  )
  assert is_of(chosen.params, 1)
  (message,) = chosen.corrupt
  assert "the best checkpoint, of step 1, is corrupt or missing" in message


def test_an_older_best_checkpoint_replaces_a_corrupt_one(tmp_path):
  """Both are there where somebody read the older one meanwhile."""
  checkpoints = CheckpointWriter(saved(tmp_path))
  with CheckpointReader(tmp_path).best.in_use(1):
    checkpoints.save_best(2, state(2)["params"], score(31.0))
    checkpoints.close()
  flip(arrays_of(tmp_path / "best/2"))
  chosen = CheckpointReader(tmp_path).restore_params(
    "best", ABSTRACT["params"], False
  )
  assert is_of(chosen.params, 1) and chosen.score == score(30.0)
  (message,) = chosen.corrupt
  assert "of step 2 is corrupt" in message and "best/2" in message


def test_rejects_a_run_without_intact_checkpoints(tmp_path):
  saved(tmp_path)
  for path in (tmp_path / "checkpoints").iterdir():
    flip(arrays_of(path))
  before = seen(tmp_path)
  for _ in range(2):  # the same the second time: nothing is set aside
    checkpoints = CheckpointWriter(tmp_path)
    with pytest.raises(
      InputError, match=r"no checkpoint in .* is intact .*copy"
    ):
      checkpoints.restore(ABSTRACT)
    checkpoints.close()
  assert seen(tmp_path) == before
  flip(arrays_of(tmp_path / "best/1"))
  for which in ("best", "last"):
    with pytest.raises(InputError, match=r"no checkpoint in .* is intact"):
      CheckpointReader(tmp_path).restore_params(
        which, ABSTRACT["params"], False
      )
  with pytest.raises(InputError, match=r"checkpoint 2 is corrupt.*another: 1"):
    CheckpointReader(tmp_path).restore_params("2", ABSTRACT["params"], False)


def test_averages_skip_corrupt_checkpoints(tmp_path):
  saved(tmp_path, (1, 2, 3))
  flip(arrays_of(tmp_path / "checkpoints/2"))
  mean = CheckpointReader(tmp_path).average_params(2, ABSTRACT["params"], False)
  expected = (state(1)["params"]["w"] + state(3)["params"]["w"]) / 2
  np.testing.assert_array_equal(mean.params["w"], expected)
  assert mean.steps == (1, 3)
  (message,) = mean.corrupt
  assert "checkpoints/2" in message
  with pytest.raises(
    InputError, match=r"only 2 intact checkpoints .*checkpoints/2"
  ):
    CheckpointReader(tmp_path).average_params(3, ABSTRACT["params"], False)


def test_reading_writes_nothing(tmp_path):
  saved(tmp_path)
  saving = tmp_path / "checkpoints" / f".3{files.PARTIAL}" / "state"
  saving.mkdir(parents=True)
  (saving / "half").write_bytes(b"of a process that saves just now")
  flip(arrays_of(tmp_path / "checkpoints/2"))
  before = seen(tmp_path)
  reader = CheckpointReader(tmp_path)
  for which in ("last", "best"):
    chosen = reader.restore_params(which, ABSTRACT["params"], False)
    assert is_of(chosen.params, 1)
  empty = tmp_path / "no" / "run"
  with pytest.raises(InputError, match="train first"):
    CheckpointReader(empty).restore_params("best", ABSTRACT["params"], False)
  assert not empty.parent.exists()
  assert seen(tmp_path) == before


def test_reads_a_newer_checkpoint_if_one_is_removed(tmp_path, caplog):
  saved(tmp_path, (1, 2))
  reader, tries = CheckpointReader(tmp_path), []

  def read(step):
    tries.append(step)
    if len(tries) == 1:  # the writer is quicker: 3 comes, and 1 and 2 go
      saved(tmp_path, (3,))
      for old in (1, 2):
        files.remove_folder(tmp_path / "checkpoints" / str(old))
    return reader.last.read(step, ABSTRACT["params"], "params")[0]

  ((step, params),), bad = reader.last.newest(read)
  assert (tries, step, bad) == ([2, 1, 3], 3, {})
  assert is_of(params, 3) and caplog.text == ""


def test_out_of_memory_is_not_corruption(tmp_path, monkeypatch):
  saved(tmp_path)

  def no_memory(*_):
    raise MemoryError

  monkeypatch.setattr(array_checksums, "first_difference", no_memory)
  checkpoints = CheckpointWriter(tmp_path)
  with pytest.raises(MemoryError):
    checkpoints.restore(ABSTRACT)
  checkpoints.close()
  assert checkpoints.steps() == [1, 2]


@pytest.mark.parametrize("code", [errno.EMFILE, errno.EACCES, errno.ENOMEM])
def test_errors_of_the_machine_are_not_corruption(tmp_path, monkeypatch, code):
  checkpoints = CheckpointWriter(saved(tmp_path))

  def refused(path):
    raise OSError(code, os.strerror(code), str(path))

  monkeypatch.setattr(checksums, "crc_of", refused)
  with pytest.raises(
    InputError, match=f"{os.strerror(code)}. The checkpoint may"
  ):
    checkpoints.restore(ABSTRACT)
  with pytest.raises(InputError, match="ulimit -n"):
    checkpoints.restore_params("best", ABSTRACT["params"], False)
  checkpoints.close()
  assert checkpoints.steps() == [1, 2] and not list(tmp_path.glob("corrupt-*"))


def test_a_full_disk_is_said_and_leaves_nothing(tmp_path, monkeypatch):
  checkpoints = CheckpointWriter(saved(tmp_path))

  def full(*_):
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

  with monkeypatch.context() as patch:
    patch.setattr(files, "flush_tree", full)
    checkpoints.save(3, state(3), Progress())
    with pytest.raises(InputError, match="disk full while saving"):
      checkpoints.wait()
  assert checkpoints.steps() == [1, 2]
  assert not list((tmp_path / "checkpoints").glob(".*"))
  checkpoints.save(3, state(3), Progress())  # there is room again
  checkpoints.close()
  chosen = CheckpointReader(tmp_path).restore_params(
    "last", ABSTRACT["params"], False
  )
  assert is_of(chosen.params, 3) and chosen.corrupt == ()


def test_a_file_size_limit_is_one_message(tmp_path, caplog, monkeypatch):
  """ulimit -f, which shows while it is written; Orbax logs it by the page."""
  # Bytecode would be truncated too, and break the next processes.
  monkeypatch.setattr(sys, "dont_write_bytecode", True)
  checkpoints = CheckpointWriter(saved(tmp_path))
  limits = resource.getrlimit(resource.RLIMIT_FSIZE)
  checkpoints.wait()
  resource.setrlimit(resource.RLIMIT_FSIZE, (5_000, limits[1]))
  try:
    checkpoints.save(3, state(3), Progress())
    with pytest.raises(InputError, match="disk full while saving"):
      checkpoints.wait()
  finally:
    resource.setrlimit(resource.RLIMIT_FSIZE, limits)
  assert caplog.text == ""
  checkpoints.close()
  assert checkpoints.steps() == [1, 2]
  assert not list((tmp_path / "checkpoints").glob(".*"))


def on(devices: int):
  """The state's shapes, cut over some devices."""
  mesh = Mesh(np.array(jax.devices()[:devices]), ("fsdp",))

  def placed(leaf):
    spec = PartitionSpec("fsdp") if leaf.shape else PartitionSpec()
    return jax.ShapeDtypeStruct(
      leaf.shape, leaf.dtype, sharding=NamedSharding(mesh, spec)
    )

  return jax.tree.map(placed, ABSTRACT)


@pytest.mark.usefixtures("eight_devices")
@pytest.mark.parametrize("there, here", [(8, 1), (2, 8)])
def test_sums_are_checked_on_another_number_of_devices(tmp_path, there, here):
  shardings = jax.tree.map(lambda leaf: leaf.sharding, on(there))
  checkpoints = CheckpointWriter(tmp_path)
  checkpoints.save(1, jax.device_put(state(1), shardings), Progress())
  checkpoints.wait()
  step, result, _ = checkpoints.restore(on(here))
  assert step == 1 and is_of(result["params"], 1)
  assert len(result["params"]["w"].sharding.device_set) == here
  flip_unseen(tmp_path / "checkpoints/1")
  with pytest.raises(InputError, match=r"params/w has another checksum than"):
    checkpoints.restore(on(here))
  checkpoints.close()


def test_checkpoints_in_use_are_not_removed(tmp_path):
  checkpoints = CheckpointWriter(saved(tmp_path, (1, 2, 3)), keep=2)
  with CheckpointReader(tmp_path).last.in_use(1):
    checkpoints.save(4, state(4), Progress())
    checkpoints.wait()
    assert checkpoints.steps() == [1, 3, 4]
  checkpoints.save(5, state(5), Progress())
  checkpoints.close()
  assert checkpoints.steps() == [4, 5]


def test_regions_of_an_array(tmp_path):
  """What several processes enter, each its part, is checked wherever seen."""
  w = np.arange(64, dtype=np.float32).reshape(8, 8)
  parts = {"0:4,0:8": w[:4], "4:8,0:8": w[4:]}

  entry = {"shape": [8, 8], "dtype": "float32"}
  each = [
    {"w": entry | {"crc32c": {region: checksums.crc32c(data)}}}
    for region, data in parts.items()
  ]
  merged = array_checksums.merge(each)
  assert set(merged["w"]["crc32c"]) == set(parts)
  cut = jax.device_put(w, on(8)["params"]["w"].sharding)
  assert array_checksums.first_difference({"w": cut}, merged) == ""
  w[5, 3] = -w[5, 3]
  assert "w has another checksum" in array_checksums.first_difference(
    {"w": w}, merged
  )
