"""Locks of directories, however processes end, and of datasets that are read."""

import errno
import fcntl
import os
import pathlib
import shutil
import socket
import subprocess
import sys

import disks
import pytest
from raw_corpora import check_rejected, corpus, records_of

from jaxsyn import train
from jaxsyn.data.store import manifests
from jaxsyn.errors import InputError
from jaxsyn.preprocess import build
from jaxsyn.storage import lock

HOST = socket.gethostname()


@pytest.fixture
def start():
  """Starts a process that locks a directory and keeps the lock."""
  processes = []

  def run(call, folder):
    code = (
      "import fcntl, sys, time; from jaxsyn.storage import lock\n"
      f"with lock.{call}:\n  print('locked', flush=True); time.sleep(60)"
    )
    process = subprocess.Popen(
      [sys.executable, "-c", code, str(folder)],
      stdout=subprocess.PIPE,
      stderr=subprocess.PIPE,
      text=True,
    )
    processes.append(process)
    return process

  yield run
  for process in processes:
    end(process)


EXCLUSIVE, SHARED = "exclusive_lock(sys.argv[1])", "shared_lock(sys.argv[1])"
WAITING = "exclusive_lock(sys.argv[1], wait=True)"
FLOCK = "flock(sys.argv[1], fcntl.LOCK_EX, 'waiting')"


def has_locked(process):
  return process.stdout.readline() == "locked\n"


def end(process):
  process.kill()
  process.communicate()


def check_locked(folder, message, how=lock.exclusive_lock):
  with pytest.raises(InputError, match=message), how(folder):
    pass


def test_a_lock_ends_with_a_killed_process(tmp_path, start):
  run = tmp_path / "run"
  holder = start(EXCLUSIVE, run)
  assert has_locked(holder)
  time = r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\. Wait"
  owner = f"process {holder.pid} on {HOST} since {time}"
  check_locked(run, f"run is in use by {owner}")
  waiting = start(WAITING, run)
  with pytest.raises(subprocess.TimeoutExpired):
    waiting.wait(1)
  end(holder)
  assert has_locked(waiting)
  end(waiting)
  with lock.exclusive_lock(run):
    pass


def test_prints_a_message_before_waiting(tmp_path, start):
  with lock.flock(tmp_path, fcntl.LOCK_EX, "not printed"):
    waiting = start(FLOCK, tmp_path)
    assert waiting.stderr.readline() == "waiting\n"
    assert waiting.poll() is None
  assert has_locked(waiting)


def test_a_process_can_lock_a_directory_twice(tmp_path):
  with lock.exclusive_lock(tmp_path), lock.exclusive_lock(f"{tmp_path}/."):
    pass
  with lock.exclusive_lock(tmp_path):  # it was released once, at the end
    pass


def test_warns_about_a_file_system_without_locks(tmp_path, monkeypatch, caplog):
  def no_locks(*_):
    raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

  monkeypatch.setattr(fcntl, "flock", no_locks)
  with lock.exclusive_lock(tmp_path):
    assert f"file system of {tmp_path} has no locks" in caplog.text


def test_rejects_paths_that_are_not_directories(tmp_path):
  (tmp_path / "file").write_text("")
  for path in ("file", "file/run"):
    check_locked(tmp_path / path, r"is a file, or below one.*--workdir")


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


def test_a_dataset_is_not_replaced_while_processes_read_it(config, start):
  folder = config.data.directory
  before = records_of(folder)
  other = config.copy_and_resolve_references()
  other.prepare.vocabulary.size += 1
  first, last = (start(SHARED, folder) for _ in range(2))
  assert has_locked(first) and has_locked(last)
  with pytest.raises(InputError) as error:
    build.run(other)
  assert records_of(folder) == before
  build.run(config)  # nothing is written
  message = str(error.value)
  assert message.startswith(f"{folder} is in use by processes that read it")
  assert "set config.data.directory to another folder" in message
  end(first)
  check_rejected(other, "in use by processes that read it")
  end(last)
  build.run(other)
  assert records_of(folder) != before


def in_use(folder):
  return manifests.in_use([folder])


def test_a_dataset_is_not_read_during_preparation(config, start):
  folder = pathlib.Path(config.data.directory)
  process = start(EXCLUSIVE, folder)
  assert has_locked(process)
  message = rf"{folder} is in use by process {process.pid} on .* Wait until"
  check_locked(folder, message, in_use)
  end(process)
  with in_use(folder), in_use(folder):
    pass


def test_reads_directories_that_cannot_be_locked(config, tmp_path):
  with disks.disk(tmp_path / "disk", "4m") as disk:
    shutil.copytree(config.data.directory, disk / "with")
    shutil.copytree(config.data.directory, disk / "without")
    (disk / "without" / lock.FILE).unlink()
    disks.change(disk, "ro")
    both = disk / "with", disk / "without"
    with manifests.in_use(both), manifests.in_use(both):
      assert len(list((disk / "with").iterdir())) > 1
  empty = tmp_path / "empty"
  empty.mkdir()  # a folder without data gets no lock file
  with manifests.in_use([empty, empty / "missing", "s3://bucket/data"]):
    assert list(empty.iterdir()) == []


def test_training_locks_its_dataset(tiny, tmp_path):
  config = tiny("transformer")
  config.batch.shapes = 1
  config.train.update(steps=1, evaluate_every=9, selection="log_likelihood")
  directory, attempts = config.data.directory, []

  def try_to_lock(batch):
    # Other tests may read the same dataset at the same time.
    check_locked(directory, "in use by processes that read it, such as train")
    attempts.append(directory)
    return batch

  train.run(config, tmp_path / "run", try_to_lock)
  assert attempts
