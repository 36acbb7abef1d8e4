"""Checkpoints are saved atomically, verified when read, and replaced if corrupt."""

import errno
import gc
import os
import resource
import shutil
import sys

import jax
import jax.numpy as jnp
import numpy as np
import orbax.checkpoint as ocp
import pytest
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from jaxsyn.errors import InputError
from jaxsyn.storage import checksums, files
from jaxsyn.storage.checksums import CorruptFileError
from jaxsyn.training import checkpoint_folder
from jaxsyn.training.checkpoint_metadata import FILE as METADATA_FILE
from jaxsyn.training.checkpoint_reader import CheckpointReader
from jaxsyn.training.checkpoint_writer import CheckpointWriter, Progress


def state(step: int):
  """A state whose numbers differ in each step and do not compress."""
  rng = np.random.default_rng(step)
  return {
    "params": {
      "w": jnp.array(rng.standard_normal((8, 512)), jnp.float32),
      "v": jnp.array(rng.standard_normal(8), jnp.bfloat16),
    },
    "step": jnp.array(step),
  }


ABSTRACT = jax.eval_shape(lambda: state(0))
SCORE = {
  **{"selection": "bleu", "tokenizer": "13a"},
  **{"score": 30.0, "log_likelihood": -1.0},
}


def save(folder, steps=(1, 2), best=1, keep=3):
  writer = CheckpointWriter(folder, keep)
  for step in steps:
    progress = Progress(epoch=step, batch=7, best_step=best)
    writer.save(step, state(step), progress)
  for step in (0, best):  # only the last of the best parameters is kept
    writer.save_best(step, state(step)["params"], SCORE)
  writer.close()
  assert writer.best.steps() == [best]
  return folder


def restore(folder):
  writer = CheckpointWriter(folder)
  try:
    return writer.restore(ABSTRACT)
  finally:
    writer.close()


def read(folder, which):
  reader = CheckpointReader(folder)
  return reader.restore_params(which, ABSTRACT["params"], False)


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


def files_of(folder):
  return sorted(p for p in folder.rglob("*") if p.is_file())


def array_file(checkpoint):
  return max(files_of(checkpoint), key=lambda path: path.stat().st_size)


def snapshot(folder):
  """Everything that a writing process would change."""
  return {
    str(path): (path.lstat().st_mtime_ns, path.lstat().st_ino)
    for path in [folder, *folder.rglob("*")]
  }


def test_restores_the_newest_state_and_requested_parameters(tmp_path):
  assert restore(tmp_path) is None
  with pytest.raises(InputError, match="Train first"):
    read(tmp_path, "best")
  save(tmp_path, (1, 2, 3), best=2, keep=2)
  step, restored, progress = restore(tmp_path)
  assert step == 3 and is_of(restored["params"], 3)
  assert progress == Progress(epoch=3, batch=7, best_step=2)
  assert CheckpointReader(tmp_path).steps() == [2, 3]
  for which, step in {"best": 2, "last": 3, "2": 2}.items():
    parameters = read(tmp_path, which)
    assert is_of(parameters.params, step) and parameters.steps == (step,)
  assert read(tmp_path, "best").score == SCORE
  for which in ("9", "02", "²", "9" * 5000):
    with pytest.raises(InputError, match=r"no checkpoint '.*'\. There are: 2"):
      read(tmp_path, which)
  with ocp.CheckpointManager(tmp_path / "checkpoints") as manager:
    item = ocp.args.PyTreeRestore(ABSTRACT)
    restored = manager.restore(3, args=ocp.args.Composite(state=item))
  assert is_of(restored["state"]["params"], 3)  # Orbax reads it, too


def test_a_saved_state_is_not_kept_in_memory(tmp_path):
  writer = CheckpointWriter(tmp_path)
  writer.save(1, {"w": jnp.ones((7, 12345))}, Progress())
  writer.wait()
  gc.collect()
  assert not [x for x in jax.live_arrays() if x.shape == (7, 12345)]
  writer.close()


def test_averages_the_newest_checkpoints(tmp_path):
  save(tmp_path, (1, 2, 3))
  reader, params = CheckpointReader(tmp_path), ABSTRACT["params"]
  mean = reader.average_params(2, params, False)
  expected = (state(2)["params"]["w"] + state(3)["params"]["w"]) / 2
  np.testing.assert_array_equal(mean.params["w"], expected)
  assert mean.steps == (2, 3)
  with pytest.raises(InputError, match=r"=4, but .* has only 3 checkpoints"):
    reader.average_params(4, params, False)
  flip(array_file(tmp_path / "checkpoints/2"))
  with pytest.raises(CorruptFileError, match=r"checkpoints/2"):
    reader.average_params(2, params, False)


def test_error_for_another_model_names_both_sides(tmp_path):
  w, v = jax.ShapeDtypeStruct((8, 4), jnp.float32), ABSTRACT["params"]["v"]
  writer = CheckpointWriter(save(tmp_path))
  with pytest.raises(InputError) as error:
    writer.restore(ABSTRACT | {"params": {"w": w, "u": v}})
  writer.close()
  assert (
    "params/u is missing there and bfloat16 (8,) here; params/v is bfloat16 (8,) "
    "there and missing here; params/w is float32 (8, 512) there and float32 (8, 4)"
  ) in str(error.value)


# Files that only Orbax reads, and only to report them.
UNUSED = (
  "_CHECKPOINT_METADATA",
  "commit_success.txt",
  "metadata/commit_success.txt",
)
CORRUPTIONS = (
  flip,
  lambda path: os.truncate(path, path.stat().st_size // 2),
  lambda path: path.unlink(),
)


def test_corruption_of_any_file_never_changes_numbers(tmp_path):
  """Reading does not write files, next to a process that writes."""
  intact = save(tmp_path / "intact")
  unfinished = intact / "checkpoints" / "3.orbax-checkpoint-tmp" / "state"
  unfinished.mkdir(parents=True)
  (unfinished / "half").write_bytes(b"being written")
  newest = intact / "checkpoints" / "2"
  for index, file in enumerate(files_of(newest)):
    folder = tmp_path / str(index)
    shutil.copytree(intact, folder)
    CORRUPTIONS[index % 3](folder / file.relative_to(intact))
    before = snapshot(folder)
    if str(file.relative_to(newest)) in UNUSED:
      assert is_of(read(folder, "last").params, 2)
    else:
      with pytest.raises(CorruptFileError) as error:
        read(folder, "last")
      assert str(folder / newest.relative_to(intact)) in str(error.value)
    assert snapshot(folder) == before


def test_resuming_renames_a_corrupt_checkpoint(tmp_path, caplog):
  save(tmp_path, (1, 2, 3))
  flip(array_file(tmp_path / "checkpoints/3"))
  writer = CheckpointWriter(tmp_path)
  step, restored, progress = writer.restore(ABSTRACT)
  assert step == 2 and is_of(restored["params"], 2)
  (renamed,) = tmp_path.glob("corrupt-3-*")
  assert (renamed / METADATA_FILE).is_file()
  assert "has another checksum" in caplog.text
  assert writer.steps() == [1, 2]
  writer.save(3, state(3), progress)  # the step is saved again
  writer.close()
  assert is_of(restore(tmp_path)[1]["params"], 3)


def test_rejects_a_run_without_intact_checkpoints(tmp_path):
  save(tmp_path)
  for path in (tmp_path / "checkpoints").iterdir():
    flip(array_file(path))
  before = snapshot(tmp_path)
  for _ in range(2):  # nothing is renamed
    with pytest.raises(InputError, match=r"no checkpoint in .* is intact"):
      restore(tmp_path)
  assert snapshot(tmp_path) == before
  for which in ("last", "2"):
    with pytest.raises(CorruptFileError, match=r"checkpoints/2"):
      read(tmp_path, which)


def test_reads_a_newer_checkpoint_if_one_is_removed(tmp_path, caplog):
  reader, tries = CheckpointReader(save(tmp_path)), []

  def read_step(step):
    tries.append(step)
    if len(tries) == 1:  # meanwhile, the writer saves 3 and removes 1 and 2
      save(tmp_path, (3,))
      for old in (1, 2):
        files.remove_folder(tmp_path / "checkpoints" / str(old))
    return reader.last.read(step, ABSTRACT["params"], "params")[0]

  ((step, params),), corrupt = reader.last.newest(read_step)
  assert (tries, step, corrupt) == ([2, 1, 3], 3, {})
  assert is_of(params, 3) and caplog.text == ""


def test_errors_of_the_machine_are_not_corruption(tmp_path, monkeypatch):
  save(tmp_path)

  def too_many_files(path):
    raise OSError(errno.EMFILE, os.strerror(errno.EMFILE), str(path))

  def out_of_memory(*_):
    raise MemoryError

  with monkeypatch.context() as patch:
    patch.setattr(checksums, "crc_of", too_many_files)
    for action in (restore, lambda folder: read(folder, "best")):
      with pytest.raises(
        InputError, match=r"files. The checkpoint may .*ulimit"
      ):
        action(tmp_path)
  monkeypatch.setattr(checkpoint_folder, "_restore", out_of_memory)
  with pytest.raises(MemoryError):
    restore(tmp_path)
  assert CheckpointReader(tmp_path).steps() == [1, 2]


def test_a_full_disk_is_one_message_and_leaves_nothing(
  tmp_path, monkeypatch, caplog
):
  # Bytecode would be truncated too, and break the next processes.
  monkeypatch.setattr(sys, "dont_write_bytecode", True)
  writer = CheckpointWriter(save(tmp_path))
  limits = resource.getrlimit(resource.RLIMIT_FSIZE)
  resource.setrlimit(resource.RLIMIT_FSIZE, (5_000, limits[1]))
  try:
    writer.save(3, state(3), Progress())
    with pytest.raises(InputError, match="disk full while saving"):
      writer.wait()
  finally:
    resource.setrlimit(resource.RLIMIT_FSIZE, limits)
  assert caplog.text == ""  # no tracebacks of Orbax's threads
  assert writer.steps() == [1, 2]
  assert not list((tmp_path / "checkpoints").glob(".*"))
  writer.save(3, state(3), Progress())  # there is space again
  writer.close()
  parameters = read(tmp_path, "last")
  assert is_of(parameters.params, 3)


def test_late_writes_of_a_failed_save_leave_nothing(tmp_path, monkeypatch):
  remove, removed = shutil.rmtree, []

  def remove_before_a_late_write(path, **options):
    remove(path, **options)
    if not removed:
      (path / "state").mkdir(parents=True)
    removed.append(path)

  def full_disk(_):
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

  writer = CheckpointWriter(save(tmp_path))
  with monkeypatch.context() as patch:
    patch.setattr(shutil, "rmtree", remove_before_a_late_write)
    patch.setattr(files, "flush_tree", full_disk)
    writer.save(3, state(3), Progress())
    with pytest.raises(InputError, match="disk full while saving"):
      writer.wait()
  assert {path.name for path in writer.last.folder.iterdir()} == {"1", "2"}
  removed[0].mkdir()  # a write that is later still
  writer.save(3, state(3), Progress())
  writer.close()
  assert writer.steps() == [1, 2, 3]


def test_checkpoints_in_use_are_not_removed(tmp_path):
  writer = CheckpointWriter(save(tmp_path, (1, 2, 3)), keep=2)
  with CheckpointReader(tmp_path).last.in_use(1):
    writer.save(4, state(4), Progress())
    writer.wait()
    assert writer.steps() == [1, 3, 4]
  writer.save(5, state(5), Progress())
  writer.close()
  assert writer.steps() == [4, 5]


def on_devices(count: int):
  """The shapes of the state, cut over some devices."""
  mesh = Mesh(np.array(jax.devices()[:count]), ("fsdp",))

  def place(leaf):
    spec = PartitionSpec("fsdp") if leaf.shape else PartitionSpec()
    return jax.ShapeDtypeStruct(
      leaf.shape, leaf.dtype, sharding=NamedSharding(mesh, spec)
    )

  return jax.tree.map(place, ABSTRACT)


@pytest.mark.usefixtures("eight_devices")
def test_restores_on_another_number_of_devices(tmp_path):
  shardings = jax.tree.map(lambda leaf: leaf.sharding, on_devices(8))
  writer = CheckpointWriter(tmp_path)
  writer.save(1, jax.device_put(state(1), shardings), Progress())
  writer.wait()
  step, result, _ = writer.restore(on_devices(2))
  assert step == 1 and is_of(result["params"], 1)
  assert len(result["params"]["w"].sharding.device_set) == 2
  writer.close()
