"""Several processes train one model: joining, stopping, failures, resuming.

Processes, signals and the object store are real; devices are simulated.
"""

import functools
import re
import signal
import socket
import subprocess
import sys
import time

import jax
import object_store
import pytest
from absl import flags
from host_processes import FAULTY, Processes, largest_difference
from object_store import free_port

from jaxsyn.errors import InputError
from jaxsyn.storage import remote
from jaxsyn.training import hosts, log
from jaxsyn.training.checkpoint_reader import CheckpointReader

OPTIONS = {
  "model.width": 16,
  "model.transformer.encoder_layers": 1,
  "model.transformer.decoder_layers": 1,
  "model.transformer.feed_forward": 16,
  "model.transformer.heads": 2,
  "batch.tokens": 600,
  "batch.shapes": 1,
  "train.log_every": 1,
  "train.save_every": 5,
  "train.evaluate_every": 100_000,
  "train.steps": 100_000,
  "train.validation_sentences": 3,
}


@pytest.fixture
def start(prepared, environment):
  """A function that starts a run in a folder; see `Processes`."""
  words = ["--config", "configs/quickstart.py:pascal"]
  words += [f"--config.data.directory={prepared}"]
  return functools.partial(Processes, words, environment=environment)


def join(*words):
  values = flags.FlagValues()
  hosts.define_flags(values)
  values(["train", *words])
  hosts.join(values)


JOINING = """
import sys, time
import jax
from absl import flags
from jaxsyn.training import hosts
from jaxsyn.training.runtime import set_up_jax

hosts.define_flags()
hosts.join(flags.FLAGS(sys.argv) and flags.FLAGS)
set_up_jax("/shared/run")
hosts.wait_for_all()
print("joined", jax.config.jax_compilation_cache_dir, flush=True)
time.sleep(100)
"""


def start_joining(index, *words, **options):
  """Starts a process that joins another one, and waits."""
  command = [sys.executable, "-c", JOINING, "--processes=2", *words]
  return subprocess.Popen(
    [*command, f"--process={index}"],
    stdout=subprocess.PIPE,
    stderr=subprocess.PIPE,
    text=True,
    **options,
  )


def test_loses_a_silent_process_after_the_heartbeat(environment):
  words = [f"--coordinator=127.0.0.1:{free_port()}", "--heartbeat=3"]
  no_cache = environment | {"JAX_COMPILATION_CACHE_DIR": ""}
  first, second = (
    start_joining(index, *words, env=no_cache) for index in range(2)
  )
  try:
    for process in (first, second):
      output = [process.stdout.readline() for _ in range(2)]
      assert output[1] == "joined /shared/run/programs\n", output
    second.send_signal(signal.SIGSTOP)
    began = time.monotonic()
    assert first.wait(timeout=60) != 0
    assert time.monotonic() - began < 9  # the default is 10 seconds
  finally:
    for process in (first, second):
      process.kill()
      process.communicate()


def test_reports_the_address_of_a_missing_coordinator(environment):
  address = f"127.0.0.1:{free_port()}"
  words = [f"--coordinator={address}", "--join_timeout=1"]
  process = start_joining(1, *words, env=environment)
  _, message = process.communicate()
  assert process.returncode == 2
  assert message.startswith("error: not all processes have joined within 1")
  assert address in message and message.count("\n") == 1


@pytest.mark.parametrize(
  ("address", "index", "message"),
  [
    (None, 0, "go together; missing: --coordinator"),
    ("localhost", 0, "--coordinator=localhost: HOST:PORT is needed"),
    ("a:99999", 0, "HOST:PORT is needed"),
    ("a:1", 2, r"--process=2 must be from 0 to 1 \(--processes=2\)"),
    ("a:BUSY", 0, "process 0 cannot listen on port BUSY of this machine"),
  ],
)
def test_rejects_inconsistent_flags(address, index, message):
  with socket.socket() as other:  # BUSY is its port
    other.bind(("127.0.0.1", 0))
    other.listen()
    port = str(other.getsockname()[1])
    words = ["--processes=2", f"--process={index}"]
    if address:
      words.append(f"--coordinator={address.replace('BUSY', port)}")
    with pytest.raises(InputError, match=message.replace("BUSY", port)):
      join(*words)
  assert not jax.distributed.is_initialized()


def test_rejects_a_cluster_task_that_has_not_joined(monkeypatch):
  for name in ("JOB_ID", "STEP_NODELIST", "PROCID", "LOCALID"):
    monkeypatch.setenv(f"SLURM_{name}", "0")
  monkeypatch.setenv("SLURM_NTASKS", "1")
  hosts.check_joined()
  monkeypatch.setenv("SLURM_NTASKS", "2")
  with pytest.raises(InputError, match=r"slurm started 2 processes.*joined"):
    hosts.check_joined()


def test_rejects_different_configs(start, tmp_path):
  rate = ["--config.optimiser.learning_rate=0.1"]
  run = start(tmp_path, OPTIONS, processes=2, devices=2, extra={1: rate})
  ended = run.end()
  assert ended.statuses == [2, 2], ended.outputs
  for output in ended.outputs:
    assert (
      "process 1 was given another config than process 0: "
      "config.optimiser.learning_rate is 0.1 there and" in output
    )
    assert "Traceback" not in output and "Check failure" not in output
  assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
  "layout",
  [
    {},
    {"train.mesh.fsdp": 4},
    {"train.mesh.tensor": 2},
    {"train.parallelism": "pmap"},
  ],
)
@pytest.mark.slow
def test_layouts_over_processes_equal_one_process(start, tmp_path, layout):
  options = OPTIONS | {"train.steps": 20, "train.evaluate_every": 10} | layout
  options |= {"model.transformer.heads": 4, "model.width": 32}
  for processes in (1, 2, 4):
    ended = start(tmp_path / str(processes), options, processes=processes).end()
    assert not any(ended.statuses), ended.outputs
  for processes in ("2", "4"):
    assert largest_difference(tmp_path / "1", tmp_path / processes) < 1e-6


# JAX may exit before the message is printed.
LOST = "process {} lost another process of the run|leader task was .*died"


def test_an_error_of_one_process_stops_all(start, tmp_path):
  run = start(tmp_path, OPTIONS, processes=2, devices=2, code={1: FAULTY})
  ended = run.end()
  assert ended.seconds < 30
  assert 0 not in ended.statuses
  assert "a fault of this process alone" in ended.outputs[1]
  assert re.search(LOST.format(0), ended.outputs[0]), ended.outputs[0]


# Process 0 stops before it writes the metadata of the second checkpoint.
STOP_BEFORE_METADATA = """
import time
from jaxsyn.storage import files

write_json = files.write_json

def stop(path, content):
  if "/checkpoints/10/" not in str(path):
    return write_json(path, content)
  print("the arrays are written", flush=True)
  time.sleep(100)

files.write_json = stop
"""


def test_resumes_on_gs_after_a_kill_while_saving_and_sigterm(
  start, environment, google_bucket, tmp_path
):
  """Two processes, then one; equals an uninterrupted local run."""
  folder = f"{google_bucket}/run"
  stored = {"environment": environment | object_store.variables("gs")}
  options = OPTIONS | {"train.selection": "log_likelihood"}
  cut = {"train.mesh.fsdp": 2}  # each process has half of the arrays
  two = stored | {"options": options | cut, "processes": 2, "devices": 2}
  run = start(folder, **two, code={0: STOP_BEFORE_METADATA})
  run.wait_for("the arrays are written")
  ended = run.end({1: signal.SIGKILL})
  assert ended.seconds < 30
  assert 0 not in ended.statuses, ended.outputs
  names = remote.sizes(f"{folder}/checkpoints")
  for process in range(2):  # each has written its shards
    assert any(f"10/state/ocdbt.process_{process}/" in name for name in names)
  assert CheckpointReader(folder).steps() == [5]

  run = start(folder, **two)
  run.wait_for("train +step 12 ")
  ended = run.end({1: signal.SIGTERM})
  assert ended.statuses == [0, 0], ended.outputs
  assert ended.seconds < 30
  assert "resuming from step 5\n" in ended.outputs[0]
  assert "step" not in ended.outputs[1]  # only process 0 prints
  last = CheckpointReader(folder).steps()[-1]
  assert f"stopped at step {last} (SIGTERM)" in ended.outputs[0]

  # On another number of devices, with another mesh.
  goal = {"train.steps": last + 4, "train.evaluate_every": last + 4}
  runs = (
    start(folder, options | goal, devices=1, **stored),
    start(tmp_path, options | goal | cut, devices=2),
  )
  for ended in [run.end() for run in runs]:
    assert ended.statuses == [0], ended.outputs
  one, other = (
    [
      (record["loss"], record["grad_norm"])
      for record in log.records(place)[0]
      if record["kind"] == "train"
    ]
    for place in (folder, tmp_path)
  )
  assert len(one) == last + 4 and one[:last] == other[:last]
  assert largest_difference(folder, tmp_path) < 1e-6
