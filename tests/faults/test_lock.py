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
with lock.exclusive_lock(sys.argv[1]):
  print("mine", flush=True)
  time.sleep(60)
"""


@pytest.fixture
def holder(tmp_path):
  """A process that has locked a directory."""
  process = subprocess.Popen(
    [sys.executable, "-c", KEEP_LOCK, str(tmp_path / "run")],
    stdout=subprocess.PIPE,
    text=True,
  )
  assert process.stdout.readline() == "mine\n"
  yield process
  process.kill()
  process.communicate()


def test_error_names_the_process_with_the_lock(tmp_path, holder):
  message = (
    rf"run is in use by process {holder.pid} on {socket.gethostname()} since "
    r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\. Wait"
  )
  with (
    pytest.raises(InputError, match=message),
    lock.exclusive_lock(tmp_path / "run"),
  ):
    pass


def test_lock_ends_with_a_killed_process(tmp_path, holder):
  os.kill(holder.pid, signal.SIGKILL)
  holder.wait()
  with lock.exclusive_lock(tmp_path / "run"):
    pass


def test_waits_for_the_lock_on_request(tmp_path, holder):
  waiting = subprocess.Popen(
    [
      *(sys.executable, "-c"),
      KEEP_LOCK.replace("(sys.argv[1])", "(sys.argv[1], wait=True)"),
      str(tmp_path / "run"),
    ],
    stdout=subprocess.PIPE,
    text=True,
  )
  with pytest.raises(subprocess.TimeoutExpired):
    waiting.wait(1)
  holder.kill()
  assert waiting.stdout.readline() == "mine\n"
  waiting.kill()
  waiting.communicate()


def test_prints_a_message_before_waiting(tmp_path):
  words = f"lock.flock({str(tmp_path)!r}, fcntl.LOCK_EX, 'waiting for it')"
  code = f"import fcntl\nfrom jaxsyn.storage import lock\nwith {words}: print('mine')"
  with lock.flock(tmp_path, fcntl.LOCK_EX, "not said"):
    waiting = subprocess.Popen(
      [sys.executable, "-c", code],
      stdout=subprocess.PIPE,
      stderr=subprocess.PIPE,
      text=True,
    )
    assert waiting.stderr.readline() == "waiting for it\n"
    assert waiting.poll() is None
  assert waiting.communicate() == ("mine\n", "")


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
  for path in (tmp_path / "file", tmp_path / "file" / "run"):
    with (
      pytest.raises(InputError, match=r"is a file, or below one.*--workdir"),
      lock.exclusive_lock(path),
    ):
      pass
