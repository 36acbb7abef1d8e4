"""Training runs of several processes, on simulated devices of one machine."""

from __future__ import annotations

import contextlib
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import object_store

from jaxsyn.training import log

ROOT = pathlib.Path(__file__).resolve().parent.parent
TIMEOUT = 300.0  # seconds

COMMAND = """
import runpy
runpy.run_module("jaxsyn.train", run_name="__main__", alter_sys=True)
"""
# Code that runs before the command, in a process that shall fail.
FAULTY = """
from jaxsyn.data.loader import loader

apply, calls = loader.apply_batch_transform, 0

def faulty(batch, transform):
  global calls
  calls += 1
  if calls > 20:
    raise RuntimeError("a fault of this process alone")
  return apply(batch, transform)

loader.apply_batch_transform = faulty
"""
TIMES = ("time", "tokens_per_s", "waiting", "flops", "minutes", "seconds")


class ProcessResults(NamedTuple):
  """The end of a run: exit statuses and outputs of the processes.

  The seconds are those from the signals, or from the end of the first process,
  until all processes had ended.
  """

  seconds: float
  statuses: list[int]
  outputs: list[str]


class Processes:
  """The processes of one run of `jaxsyn.train`."""

  def __init__(
    self,
    words: Sequence[str],
    workdir: pathlib.Path | str,
    options: Mapping[str, object],
    *,
    environment: Mapping[str, str],
    processes: int = 1,
    devices: int = 4,
    code: Mapping[int, str] | None = None,
    extra: Mapping[int, Sequence[str]] | None = None,
  ):
    """Starts the processes.

    Args:
      words: Arguments of the command.
      workdir: Run directory.
      options: Config options, without "config.".
      environment: Environment.
      processes: Number of processes.
      devices: Number of devices of all processes together.
      code: Python code to run before the command, by process.
      extra: Further arguments, by process.
    """
    arguments = [*words, "--workdir", str(workdir)]
    arguments += [f"--config.{name}={value}" for name, value in options.items()]
    if processes > 1:
      port = object_store.free_port()
      arguments += [f"--coordinator=127.0.0.1:{port}"]
      arguments += [f"--processes={processes}"]
    simulated = {
      "JAX_PLATFORMS": "cpu",
      "JAX_NUM_CPU_DEVICES": str(devices // processes),
      # A thread pool of few cores would deadlock in collectives.
      "PJRT_NPROC": "64",
    }
    self._open = contextlib.ExitStack()
    self._files, self.processes = [], []
    for i in range(processes):
      file = self._open.enter_context(tempfile.TemporaryFile("w+"))  # noqa: SIM115
      before = (code or {}).get(i, "")
      program = ["-c", before + COMMAND] if before else ["-m", "jaxsyn.train"]
      last = [f"--process={i}"] if processes > 1 else []
      last += (extra or {}).get(i, [])
      process = subprocess.Popen(
        [sys.executable, *program, *arguments, *last],
        cwd=ROOT,
        env={**environment, **simulated},
        stdout=file,
        stderr=subprocess.STDOUT,
      )
      self._files.append(file)
      self.processes.append(process)

  def wait_for(self, pattern: str, process: int = 0) -> None:
    """Returns when the output of a process matches, or the process has ended."""
    while self.processes[process].poll() is None:
      if re.search(pattern, self.output(process)):
        return
      time.sleep(0.05)

  def output(self, process: int) -> str:
    """Returns the output of a process so far."""
    file = self._files[process].fileno()
    return os.pread(file, os.fstat(file).st_size, 0).decode(errors="replace")

  def end(
    self, signals: Mapping[int, signal.Signals] | None = None
  ) -> ProcessResults:
    """Sends signals to processes and waits until all have ended."""
    start = time.monotonic()
    for i, number in (signals or {}).items():
      self.processes[i].send_signal(number)
    since = start if signals else None
    try:
      while None in (status := [each.poll() for each in self.processes]):
        if since is None and status.count(None) < len(status):
          since = time.monotonic()
        if time.monotonic() > start + TIMEOUT:
          break
        time.sleep(0.02)
    finally:
      for process in self.processes:
        process.kill()
    seconds = time.monotonic() - (since or time.monotonic())
    statuses = [process.wait() for process in self.processes]
    outputs = [self.output(i) for i in range(len(self.processes))]
    self._open.close()
    return ProcessResults(seconds, statuses, outputs)


def largest_difference(one: pathlib.Path, other: pathlib.Path) -> float:
  """Returns the largest relative difference of losses and metrics in two logs.

  Norms of gradients are left out: they jump where a rounding error moves a unit
  across the kink of its ReLU.
  """
  first, second = (
    {(line["kind"], line["step"]): line for line in log.records(workdir)[0]}
    for workdir in (one, other)
  )
  assert first.keys() == second.keys() and first
  largest = 0.0
  for key, line in first.items():
    for name, value in line.items():
      if not isinstance(value, float) or name.endswith((*TIMES, "grad_norm")):
        continue
      scale = max(abs(value), abs(second[key][name]), 1e-30)
      largest = max(largest, abs(value - second[key][name]) / scale)
  return largest
