"""The processes of one run: started, waited for, ended by signals."""

from __future__ import annotations

import contextlib
import os
import pathlib
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from jaxsyn.errors import InputError

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
DEVICES = 4
PATIENCE = 300.0  # seconds after which a run that does not end is killed

COMMAND = """
import runpy
runpy.run_module("jaxsyn.train", run_name="__main__", alter_sys=True)
"""
# Before it: this process has a fault of its own after some batches.
FAULTY = """
from jaxsyn.data.loader import loader

apply, calls = loader.apply_batch_transform, 0

def faulty(batch, transform):
  global calls
  calls += 1
  if calls > 60:
    raise RuntimeError("a fault of this process alone")
  return apply(batch, transform)

loader.apply_batch_transform = faulty
"""


class ProcessResults(NamedTuple):
  """How the processes of a run ended.

  Attributes:
    seconds: from the signal, or the end of the first, until all were gone.
    statuses: of each.
    told: what each printed.
  """

  seconds: float
  statuses: list[int]
  outputs: list[str]


class Processes:
  """The processes of one run of `jaxsyn.train`, on simulated devices."""

  def __init__(
    self,
    words: Sequence[str],
    workdir: pathlib.Path,
    options: Mapping[str, object],
    *,
    processes: int = 1,
    devices: int = DEVICES,
    code: Mapping[int, str] | None = None,
    own: Mapping[int, Sequence[str]] | None = None,
    environment: Mapping[str, str] | None = None,
  ):
    """Starts them.

    Args:
      words: --config FILE, and what of it is another than there.
      workdir: of the run.
      options: others of the config, without "config.".
      processes: how many, each with as many of the devices.
      devices: of all.
      code: Python that some processes run before the command.
      own: further words of some processes.
      environment: None: this process's own.
    """
    arguments = [*words, "--workdir", str(workdir)]
    arguments += [f"--config.{name}={value}" for name, value in options.items()]
    if processes > 1:
      arguments += [f"--coordinator=127.0.0.1:{free_port()}"]
      arguments += [f"--processes={processes}"]
    # A thread pool of few cores would dead-lock in collectives.
    simulated = {
      "JAX_PLATFORMS": "cpu",
      "JAX_NUM_CPU_DEVICES": str(devices // processes),
      "PJRT_NPROC": "64",
    }
    self._open = contextlib.ExitStack()
    self._files = [
      self._open.enter_context(tempfile.TemporaryFile("w+"))  # noqa: SIM115  # end() closes it
      for _ in range(processes)
    ]
    self.processes = [
      subprocess.Popen(
        [
          sys.executable,
          *_program((code or {}).get(i, "")),
          *arguments,
          *([f"--process={i}"] if processes > 1 else []),
          *(own or {}).get(i, []),
        ],
        cwd=ROOT,
        env={**(environment or os.environ), **simulated},
        stdout=file,
        stderr=subprocess.STDOUT,
      )
      for i, file in enumerate(self._files)
    ]

  def wait_for(self, text: str, process: int = 0) -> None:
    """Returns when a process has printed what matches, or ended."""
    while self.processes[process].poll() is None:
      if re.search(text, self.output(process)):
        return
      time.sleep(0.05)

  @property
  def alive(self) -> bool:
    """Whether all of them still run."""
    return all(process.poll() is None for process in self.processes)

  def output(self, process: int) -> str:
    """What it has printed so far."""
    file = self._files[process].fileno()
    return os.pread(file, os.fstat(file).st_size, 0).decode(errors="replace")

  def end(
    self, signals: Mapping[int, signal.Signals] | None = None
  ) -> ProcessResults:
    """Waits until all are gone.

    Args:
      signals: that are sent to some before.
    """
    began = time.monotonic()
    for i, number in (signals or {}).items():
      self.processes[i].send_signal(number)
    last = began + PATIENCE
    since = began if signals else None
    try:
      while None in (now := [each.poll() for each in self.processes]):
        if since is None and now.count(None) < len(now):
          since = time.monotonic()
        if time.monotonic() > last:
          break
        time.sleep(0.02)
    finally:
      for process in self.processes:
        process.kill()
    seconds = time.monotonic() - (since or time.monotonic())
    statuses = [process.wait() for process in self.processes]
    told = [self.output(i) for i in range(len(self.processes))]
    self._open.close()
    return ProcessResults(seconds, statuses, told)


def _program(code: str) -> list[str]:
  return ["-c", code + COMMAND] if code else ["-m", "jaxsyn.train"]


def free_port() -> int:
  """One that nobody listens at."""
  with socket.socket() as probe:
    probe.bind(("127.0.0.1", 0))
    return probe.getsockname()[1]


def finish(run: Processes) -> None:
  """Waits for the end; InputError if it is not a good one."""
  ended = run.end()
  if any(ended.statuses):
    raise InputError(
      f"a run ended with {ended.statuses}:\n" + "\n".join(ended.outputs)
    )
