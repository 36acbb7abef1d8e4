"""CheckpointWriter: what is kept, what is refused, what is averaged."""

import re
import socket
import subprocess
import sys

import disks
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxsyn.errors import InputError
from jaxsyn.storage import files
from jaxsyn.training.checkpoint_reader import CheckpointReader
from jaxsyn.training.checkpoint_writer import CheckpointWriter, Progress


def state(value: float):
  return {
    "params": {"w": jnp.full((2, 3), float(value))},
    "step": jnp.array(int(value)),
  }


ABSTRACT = jax.eval_shape(lambda: state(0.0))


def score(value: float):
  """Content of the page of best parameters."""
  measured = {"score": value, "log_likelihood": -1.0}
  return {"selection": "bleu", "tokenizer": "13a", **measured}


@pytest.fixture
def kept(tmp_path):
  checkpoints = CheckpointWriter(tmp_path, keep=2)
  for step in (1, 2, 3):
    checkpoints.save(step, state(step), Progress(epoch=step, batch=7))
  checkpoints.save_best(2, state(2.0)["params"], score(30.0))
  checkpoints.wait()
  yield checkpoints
  checkpoints.close()


def test_restores_the_newest_checkpoint(kept):
  step, result, progress = kept.restore(ABSTRACT)
  assert step == 3 and progress == Progress(epoch=3, batch=7)
  np.testing.assert_array_equal(result["params"]["w"], np.full((2, 3), 3.0))
  assert kept.steps() == [2, 3]  # keep=2


def test_restores_the_requested_parameters(kept):
  def value(which):
    return float(
      kept.restore_params(which, ABSTRACT["params"], False).params["w"][0, 0]
    )

  assert (value("best"), value("last"), value("2")) == (2.0, 3.0, 2.0)
  for other in ("9", "02", "²", "9" * 5000):
    with pytest.raises(
      InputError, match=r"no checkpoint '.*'\. There are: 2, 3"
    ):
      value(other)


def test_averages_the_last_checkpoints(kept):
  mean = kept.average_params(2, ABSTRACT["params"], False)
  np.testing.assert_array_equal(mean.params["w"], np.full((2, 3), 2.5))
  assert (mean.steps, mean.corrupt) == ((2, 3), ())
  with pytest.raises(InputError, match="has only 2 intact checkpoints"):
    kept.average_params(3, ABSTRACT["params"], False)


def test_error_for_another_model_names_both_sides(kept):
  other = {
    "params": {"v": jax.ShapeDtypeStruct((2, 3), jnp.float32)},
    "step": ABSTRACT["step"],
  }
  with pytest.raises(
    InputError,
    match=r"Only in the checkpoint: params/w\. Only in the model: params/v\.",
  ):
    kept.restore(other)
  with pytest.raises(
    InputError, match=r"w is \(2, 3\) there and \(2, 4\) here"
  ):
    kept.restore_params(
      "best", {"w": jax.ShapeDtypeStruct((2, 4), jnp.float32)}, False
    )


def test_restores_nothing_without_checkpoints(tmp_path):
  checkpoints = CheckpointWriter(tmp_path)
  assert checkpoints.restore(ABSTRACT) is None
  with pytest.raises(InputError, match="none; train first"):
    checkpoints.restore_params("best", ABSTRACT["params"], False)
  checkpoints.close()


def test_reports_a_full_disk_before_writing(kept):
  # A view of one number: two exabytes by its shape, nothing in memory.
  vast = {"w": np.broadcast_to(np.float32(0), (2**29, 2**30))}
  with pytest.raises(InputError, match=r"disk full: a checkpoint in .* needs"):
    kept.save(4, vast, Progress())
  assert kept.steps() == [2, 3]


def test_a_full_disk_message_has_sizes_below_one_mebibyte(tmp_path):
  with disks.disk(tmp_path / "disk", "64k") as disk:
    checkpoints = CheckpointWriter(disk)
    with pytest.raises(InputError) as error:
      checkpoints.save(1, {"w": np.zeros(40_000, np.float32)}, Progress())
    checkpoints.close()
  message = r"needs 156\.2 KiB, and [1-6]\d\.0 KiB are free"
  assert re.search(message, str(error.value)), error.value


HOST = """
import sys
import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jaxsyn.training import hosts
from jaxsyn.training.checkpoint_writer import CheckpointWriter, Progress

folder, address, number = sys.argv[1:]
jax.distributed.initialize(address, 2, int(number))
mesh = Mesh(np.array(jax.devices()), ("data",))
places = {"cut": PartitionSpec("data"), "whole": PartitionSpec()}

def state(value):
  w = np.arange(32, dtype=jax.numpy.bfloat16).reshape(8, 4) + value
  return {
    name: jax.make_array_from_callback(
      w.shape, NamedSharding(mesh, place), lambda index: w[index]
    )
    for name, place in places.items()
  }

checkpoints = CheckpointWriter(folder, keep=2)
for step in (1, 2, 3):
  checkpoints.save(step, state(step), Progress(batch=step))
  checkpoints.wait()
hosts.barrier()
step, found, progress = checkpoints.restore(state(0))
for name, array in found.items():
  (part,) = array.addressable_shards
  (due,) = state(3)[name].addressable_shards
  np.testing.assert_array_equal(part.data, due.data)
stop = hosts.first_reason_on_any_host("SIGTERM" if number == "1" else "")
print(step, progress.batch, stop)
checkpoints.close()
"""


def test_several_processes_save_one_checkpoint(tmp_path, environment):
  """Each writes its part; process 0 is done last."""
  folder = str(tmp_path)
  with socket.socket() as unused:
    unused.bind(("127.0.0.1", 0))
    address = f"127.0.0.1:{unused.getsockname()[1]}"
  hosts = [
    subprocess.Popen(
      [sys.executable, "-c", HOST, folder, address, index],
      env=environment,
      stdout=subprocess.PIPE,
      stderr=subprocess.PIPE,
      text=True,
    )
    for index in "01"
  ]
  try:
    for output, error in [host.communicate(timeout=120) for host in hosts]:
      assert output.endswith("3 3 SIGTERM\n"), error
  finally:
    for host in hosts:
      host.kill()
  names = {name.split("/")[0] for name in files.names(f"{folder}/checkpoints")}
  assert names == {"2", "3"}
  # By this process, of which there is one, with one device.
  w = np.arange(32, dtype=jnp.bfloat16).reshape(8, 4) + 3
  read, _ = CheckpointReader(folder).last.read(3, {"cut": w, "whole": w})
  np.testing.assert_array_equal(read["cut"], w)
  np.testing.assert_array_equal(read["whole"], w)
