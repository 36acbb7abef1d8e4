"""Tests results, errors and the end of worker processes."""

import functools
import os
import pathlib
import signal
import subprocess
import sys
import time

import pytest

from jaxsyn.errors import InputError
from jaxsyn.utils.workers import Workers

ROOT = pathlib.Path(__file__).resolve().parent.parent


def add(made, index):
  if index < 0:
    raise InputError(f"{index} is too small.")
  return made + index


def process_facts(made):
  return os.getpid(), set(sys.modules)


def sleep(made, path):
  pathlib.Path(path).touch()
  time.sleep(60)


def wait_for(is_true):
  deadline = time.monotonic() + 20
  while not is_true():
    assert time.monotonic() < deadline
    time.sleep(0.01)


def has_ended(pid):
  try:
    stat = pathlib.Path(f"/proc/{pid}/stat").read_text()
  except FileNotFoundError:
    return True
  return stat.rsplit(") ")[1][0] == "Z"


def check_ended(*pids):
  for pid in pids:
    wait_for(lambda: has_ended(pid))  # noqa: B023


def test_all_workers_share_the_object_of_the_first():
  with Workers(functools.partial(int, "40"), 2, died="died") as workers:
    sums = [workers.submit(add, i) for i in range(-1, 100)]
    assert [s.result() for s in sums[1:]] == list(range(40, 140))
    with pytest.raises(InputError, match=r"^-1 is too small\.$"):
      sums[0].result()
    seen = [workers.submit(process_facts).result() for _ in range(4)]
    pids = {pid for pid, _ in seen}
    assert len(pids) == 2 and os.getpid() not in pids
    for _, loaded in seen:  # neither the main module nor large libraries
      assert not loaded & {"jax", "numpy", "absl"}
  check_ended(*pids)


def test_each_call_raises_the_error_of_creating_the_object():
  with Workers(functools.partial(int, "forty"), 2, died="died") as workers:
    for _ in range(3):
      with pytest.raises(ValueError, match="'forty'"):
        workers.submit(add, 1).result()


@pytest.mark.parametrize("number", [0, 1])
def test_a_killed_worker_fails_its_call(number, tmp_path):
  with Workers(functools.partial(int, "0"), 2, died="one died.") as workers:
    pids = set()
    while len(pids) < 2:
      pids.add(workers.submit(process_facts).result()[0])
    calls = [workers.submit(sleep, tmp_path / str(i)) for i in range(2)]
    wait_for(lambda: len([*tmp_path.iterdir()]) == 2)
    os.kill(sorted(pids)[number], signal.SIGKILL)
    wait_for(lambda: any(call.done() for call in calls))
    (dead,) = (call for call in calls if call.done())
    with pytest.raises(InputError, match=r"^one died\.$"):
      dead.result()
  check_ended(*pids)


def test_closing_does_not_wait_for_calls(tmp_path):
  workers = Workers(functools.partial(int, "0"), 1, died="died")
  first, second = (
    workers.submit(sleep, tmp_path / name) for name in ("first", "second")
  )
  wait_for((tmp_path / "first").exists)
  began = time.monotonic()
  workers.close()
  assert time.monotonic() - began < 10
  assert isinstance(first.exception(), InputError) and second.cancelled()
  assert not (tmp_path / "second").exists()


def test_workers_end_with_their_parent(tmp_path):
  code = (
    "import functools, sys\n"
    "from jaxsyn.utils.workers import Workers\n"
    "from tests.test_workers import process_facts, sleep\n"
    "workers = Workers(functools.partial(int, '0'), 2, died='died')\n"
    "print(workers.submit(process_facts).result()[0], flush=True)\n"
    "workers.submit(sleep, sys.argv[1]).result()\n"
  )
  process = subprocess.Popen(
    [sys.executable, "-c", code, str(tmp_path / "begun")],
    stdout=subprocess.PIPE,
    stderr=subprocess.PIPE,
    cwd=ROOT,
    text=True,
  )
  pid = int(process.stdout.readline())
  wait_for((tmp_path / "begun").exists)
  process.kill()
  # Standard error is open until the last process has ended.
  assert process.communicate(timeout=20)[1] == ""
  check_ended(pid)
