"""A dataset directory is not replaced while a training or a comparison reads it."""

import os
import pathlib
import shutil
import signal
import socket
import subprocess
import sys
import time

import disks
import pytest
from raw_corpora import corpus, records_of

from jaxsyn.data.store import manifests
from jaxsyn.errors import InputError
from jaxsyn.preprocess import build
from jaxsyn.storage import lock

ROOT = pathlib.Path(__file__).resolve().parents[2]

READ = """
import sys, time
from jaxsyn.data.store import manifests
with manifests.in_use(sys.argv[1:]):
  print("reads", flush=True)
  time.sleep(60)
"""


def reader(folder):
  """A process that reads a dataset directory."""
  process = subprocess.Popen(
    [sys.executable, "-c", READ, str(folder)],
    stdout=subprocess.PIPE,
    stderr=subprocess.PIPE,
    text=True,
  )
  assert process.stdout.readline() == "reads\n"
  return process


def end(process):
  process.kill()
  process.communicate()


@pytest.fixture
def dataset(tmp_path):
  """A config whose data is prepared, and the same with another vocabulary."""
  config = corpus(tmp_path)
  build.run(config)
  other = config.copy_and_resolve_references()
  other.prepare.vocabulary.size += 1
  return config, other


def test_prepare_names_every_process_that_reads(dataset):
  config, other = dataset
  folder = config.data.directory
  before = records_of(folder)
  first, killed, last = reader(folder), reader(folder), reader(folder)
  end(killed)
  with pytest.raises(InputError) as error:
    build.run(other)
  assert records_of(folder) == before
  build.run(config)  # it is prepared already: nothing is written
  message = str(error.value)
  assert message.startswith(f"{folder} is in use by process {first.pid} on ")
  assert f"process {last.pid} on {socket.gethostname()} since 2" in message
  assert f"process {killed.pid} " not in message
  assert "set config.data.directory to another folder" in message
  end(first)
  with pytest.raises(InputError, match=f"in use by process {last.pid} on"):
    build.run(other)
  end(last)  # killed, and prepare works at once
  build.run(other)
  assert records_of(folder) != before


def test_lines_of_killed_processes_do_not_pile_up(dataset):
  folder = pathlib.Path(dataset[0].data.directory)
  for _ in range(3):
    with manifests.in_use([folder]), manifests.in_use([folder]):
      text = (folder / lock.FILE).read_text()
      assert text.count(f"process {os.getpid()} on ") == 2
      assert len(text.splitlines()) == 2


def test_a_directory_that_is_being_prepared_is_not_read(dataset):
  folder = dataset[0].data.directory
  code = READ.replace(
    "manifests.in_use(sys.argv[1:])", "lock.exclusive_lock(sys.argv[1])"
  )
  process = subprocess.Popen(
    [sys.executable, "-c", "from jaxsyn.storage import lock" + code, folder],
    stdout=subprocess.PIPE,
    text=True,
  )
  assert process.stdout.readline() == "reads\n"
  message = rf"{folder} is in use by process {process.pid} on .* Wait until"
  with pytest.raises(InputError, match=message), manifests.in_use([folder]):
    pass
  end(process)
  with manifests.in_use([folder]):
    pass


def test_read_only_directories_can_be_read(dataset, tmp_path):
  """With the lock file or, as older versions left them, without it."""
  with disks.disk(tmp_path / "disk", "4m") as disk:
    shutil.copytree(dataset[0].data.directory, disk / "with")
    shutil.copytree(dataset[0].data.directory, disk / "without")
    (disk / "without" / lock.FILE).unlink()
    disks.read_only(disk)
    both = disk / "with", disk / "without"
    with manifests.in_use(both), manifests.in_use(both):
      assert len(list((disk / "with").iterdir())) > 1


def test_a_folder_without_data_gets_no_lock_file(tmp_path):
  with manifests.in_use([tmp_path, tmp_path / "missing", "s3://bucket/data"]):
    assert list(tmp_path.iterdir()) == []


def train_command(directory, workdir):
  sizes = {
    "data.directory": directory,
    "model.width": 32,
    "model.transformer.encoder_layers": 1,
    "model.transformer.decoder_layers": 1,
    "model.transformer.feed_forward": 32,
    "batch.tokens": 1024,
    "batch.shapes": 1,
    "train.steps": 60,
    "train.evaluate_every": 60,
    "train.save_every": 20,
    "train.log_every": 1,
    "train.minutes": 0.0,
    "train.selection": "log_likelihood",
  }
  return [
    *(sys.executable, "-m", "jaxsyn.train"),
    *("--config", "configs/quickstart.py:pascal"),
    *("--workdir", str(workdir)),
    *(f"--config.{name}={value}" for name, value in sizes.items()),
  ]


def prepare(directory, raw, environment, size):
  """A process that prepares the data with another vocabulary."""
  return subprocess.run(
    [
      *(sys.executable, "-m", "jaxsyn.preprocess.build"),
      *("--config", "configs/quickstart.py:pascal"),
      f"--config.data.directory={directory}",
      f"--raw_dir={raw}",
      f"--config.prepare.parse.source.udpipe.model={raw}/quickstart.udpipe",
      f"--config.prepare.vocabulary.size={size}",
      "--config.prepare.workers=1",
    ],
    env=environment,
    cwd=ROOT,
    capture_output=True,
    text=True,
    check=False,
  )


def begin_training(directory, workdir, environment):
  """A process that trains, after its first steps."""
  process = subprocess.Popen(
    train_command(directory, workdir),
    env=environment,
    cwd=ROOT,
    stdout=subprocess.PIPE,
    stderr=subprocess.PIPE,
    text=True,
  )
  log = workdir / "log.jsonl"
  while not (log.is_file() and log.read_text().count("\n") > 3):
    assert process.poll() is None, process.communicate()
    time.sleep(0.01)
  return process


def test_prepare_leaves_the_data_of_a_running_training(
  prepared, tmp_path, environment
):
  raw, data = prepared.parent / "raw", tmp_path / "data"
  shutil.copytree(prepared, data)
  before = records_of(data)
  training = begin_training(data, tmp_path / "run", environment)
  training.send_signal(signal.SIGSTOP)  # however quick it is
  done = prepare(data, raw, environment, 310)
  assert done.returncode == 2
  assert f"error: {data} is in use by process {training.pid} on " in done.stderr
  assert "Traceback" not in done.stderr
  assert records_of(data) == before
  end(training)
