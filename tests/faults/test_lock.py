"""Locks of directories: one process at a time, however the others end."""

import errno
import fcntl
import os
import signal
import socket
import subprocess
import sys

import pytest

from jaxsyn.errors import InputError
from jaxsyn.storage import lock

KEEP_LOCK = """
import sys, time
from jaxsyn.storage import lock
with lock.exclusive_lock(sys.argv[1], wait=len(sys.argv) > 2):
  print("locked", flush=True)
  time.sleep(60)
"""
WAIT_FOR_LOCK = """
import fcntl, sys
from jaxsyn.storage import lock
with lock.flock(sys.argv[1], fcntl.LOCK_EX, "waiting"):
  print("locked")
"""


def start(code, *arguments):
  return subprocess.Popen(
    [sys.executable, "-c", code, *map(str, arguments)],
    stdout=subprocess.PIPE,
    stderr=subprocess.PIPE,
    text=True,
  )


@pytest.fixture
def holder(tmp_path):
  """A process that has locked a directory."""
  process = start(KEEP_LOCK, tmp_path / "run")
  assert process.stdout.readline() == "locked\n"
  yield process
  process.kill()
  process.communicate()


def test_a_lock_ends_with_a_killed_process(tmp_path, holder):
  message = (
    rf"run is in use by process {holder.pid} on {socket.gethostname()} since "
    r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\. Wait"
  )
  with (
    pytest.raises(InputError, match=message),
    lock.exclusive_lock(tmp_path / "run"),
  ):
    pass
  waiting = start(KEEP_LOCK, tmp_path / "run", "wait")
  with pytest.raises(subprocess.TimeoutExpired):
    waiting.wait(1)
  for process in (holder, waiting):
    assert process is holder or process.stdout.readline() == "locked\n"
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
  with lock.exclusive_lock(tmp_path / "run"):
    pass


def test_prints_a_message_before_waiting(tmp_path):
  with lock.flock(tmp_path, fcntl.LOCK_EX, "not printed"):
    waiting = start(WAIT_FOR_LOCK, tmp_path)
    assert waiting.stderr.readline() == "waiting\n"
    assert waiting.poll() is None
  assert waiting.communicate() == ("locked\n", "")


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


@pytest.mark.parametrize("path", ["file", "file/run"])
def test_rejects_paths_that_are_not_directories(tmp_path, path):
  (tmp_path / "file").write_text("")
  with (
    pytest.raises(InputError, match=r"is a file, or below one.*--workdir"),
    lock.exclusive_lock(tmp_path / path),
  ):
    pass
