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


def start(kind, folder):
  """Starts a process that locks a dataset directory, as `in_use` or prepare."""
  code = "import sys, time; from jaxsyn.storage import lock\n"
  code += f"with lock.{kind}_lock(sys.argv[1]):\n"
  code += "  print('locked', flush=True); time.sleep(60)"
  process = subprocess.Popen(
    [sys.executable, "-c", code, str(folder)], stdout=subprocess.PIPE, text=True
  )
  assert process.stdout.readline() == "locked\n"
  return process


def end(process):
  process.kill()
  process.communicate()


@pytest.fixture(scope="module")
def prepared_config(tmp_path_factory):
  config = corpus(tmp_path_factory.mktemp("corpus"))
  build.run(config)
  return config


@pytest.fixture
def config(prepared_config, tmp_path):
  """The config of a copy of the dataset."""
  config = prepared_config.copy_and_resolve_references()
  old, config.data.directory = config.data.directory, str(tmp_path / "out")
  shutil.copytree(old, config.data.directory)
  return config


def test_prepare_names_every_process_that_reads(config):
  folder = config.data.directory
  before = records_of(folder)
  other = config.copy_and_resolve_references()
  other.prepare.vocabulary.size += 1
  first, killed, last = (start("shared", folder) for _ in range(3))
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
  end(last)
  build.run(other)
  assert records_of(folder) != before


def test_lock_files_do_not_grow(config):
  folder = pathlib.Path(config.data.directory)
  for _ in range(3):
    with manifests.in_use([folder]), manifests.in_use([folder]):
      text = (folder / lock.FILE).read_text()
      assert text.count(f"process {os.getpid()} on ") == 2
      assert len(text.splitlines()) == 2


def test_rejects_a_directory_during_preparation(config):
  folder = config.data.directory
  process = start("exclusive", folder)
  message = rf"{folder} is in use by process {process.pid} on .* Wait until"
  with pytest.raises(InputError, match=message), manifests.in_use([folder]):
    pass
  end(process)
  with manifests.in_use([folder]):
    pass


def test_read_only_directories_can_be_read(config, tmp_path):
  with disks.disk(tmp_path / "disk", "4m") as disk:
    shutil.copytree(config.data.directory, disk / "with")
    shutil.copytree(config.data.directory, disk / "without")
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
  # Other tests may read the same dataset at the same time.
  message = rf"in use by .*process {os.getpid()} on"

  def try_to_lock(batch):
    with (
      pytest.raises(InputError, match=message),
      lock.exclusive_lock(directory),
    ):
      pass
    attempts.append(directory)
    return batch

  train.run(config, tmp_path / "run", try_to_lock)
  assert attempts
