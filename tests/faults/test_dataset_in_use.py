"""A dataset directory is not replaced while a training or a comparison reads it."""

import os
import pathlib
import shutil
import socket
import subprocess
import sys

import disks
import pytest
from raw_corpora import corpus, records_of

from jaxsyn import train
from jaxsyn.data.store import manifests
from jaxsyn.errors import InputError
from jaxsyn.preprocess import build
from jaxsyn.storage import lock

READ = """
import sys, time
from jaxsyn.data.store import manifests
with manifests.in_use(sys.argv[1:]):
  print("reads", flush=True)
  time.sleep(60)
"""


def reader(folder):
  """Starts a process that reads a dataset directory."""
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
  build.run(config)  # nothing is written
  message = str(error.value)
  assert message.startswith(f"{folder} is in use by process {first.pid} on ")
  assert f"process {last.pid} on {socket.gethostname()} since 2" in message
  assert f"process {killed.pid} " not in message
  assert "set config.data.directory to another folder" in message
  end(first)
  with pytest.raises(InputError, match=rf"in use by .*process {last.pid} on"):
    build.run(other)
  end(last)  # killed, and prepare works at once
  build.run(other)
  assert records_of(folder) != before


def test_lock_files_do_not_grow(dataset):
  folder = pathlib.Path(dataset[0].data.directory)
  for _ in range(3):
    with manifests.in_use([folder]), manifests.in_use([folder]):
      text = (folder / lock.FILE).read_text()
      assert text.count(f"process {os.getpid()} on ") == 2
      assert len(text.splitlines()) == 2


def test_rejects_a_directory_during_preparation(dataset):
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


def test_training_locks_its_dataset(tiny, tmp_path):
  config = tiny("transformer")
  config.batch.shapes = 1
  config.train.update(steps=1, evaluate_every=9, selection="log_likelihood")
  directory, attempts = config.data.directory, []

  def try_to_lock(batch):
    with (
      # Other tests may read the same dataset at the same time.
      pytest.raises(InputError, match=rf"in use by .*process {os.getpid()} on"),
      lock.exclusive_lock(directory),
    ):
      pass
    attempts.append(directory)
    return batch

  train.run(config, tmp_path / "run", try_to_lock)
  assert attempts
