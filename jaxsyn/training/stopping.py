"""Reasons to stop training: the end of the run, signals, and other hosts."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from types import FrameType
from typing import Any

import jax

from jaxsyn.training import hosts
from jaxsyn.training.checkpoint_reader import Progress
from jaxsyn.training.options import TrainingConfig

_CHECK_EVERY = 8  # steps between two checks of several hosts


def finish_reason(config: TrainingConfig, step: int, progress: Progress) -> str:
  """Returns why training is complete, such as "steps"; "" to continue."""
  train = config.train
  if step >= train.steps:
    return "steps"
  if train.minutes and progress.minutes >= train.minutes:
    return "minutes"
  if train.patience and progress.bad >= train.patience:
    return "patience"
  return ""


class StopSignals:
  """Handler of SIGTERM and SIGINT in a `with` block.

  The first signal requests a checkpoint and a stop; a second one terminates
  immediately.

  Attributes:
    name: Name of the received signal, or "".
  """

  def __init__(self) -> None:
    self.name = ""
    self._old: dict[int, Any] = {}

  def __enter__(self) -> StopSignals:
    if threading.current_thread() is threading.main_thread():
      for signal_number in (signal.SIGTERM, signal.SIGINT):
        self._old[signal_number] = signal.signal(signal_number, self._on_signal)
    return self

  def __exit__(self, *_: object) -> None:
    for signal_number, handler in self._old.items():
      signal.signal(signal_number, handler)

  def _on_signal(self, signal_number: int, _: FrameType | None) -> None:
    self.name = signal.Signals(signal_number).name
    signal.signal(signal_number, self._old[signal_number])
    message = f"{self.name}: saving and stopping; a second one stops at once\n"
    with contextlib.suppress(OSError):  # print() may be what was interrupted
      os.write(2, message.encode())


def reason_on_all_hosts(
  step: int, local_reason: str, *, is_last: bool = False
) -> str:
  """Returns why all hosts must stop at this step; "" to continue.

  Signals and time limits reach each host at a different step, and the others would
  wait for a host that stops alone. Hosts communicate every few steps only, since
  communication waits for the devices.

  Args:
    step: Current step, equal on all hosts.
    local_reason: Reason of this host; "" without a reason.
    is_last: Whether this is the last step of the run.
  """
  if jax.process_count() == 1:
    return local_reason
  if step % _CHECK_EVERY and not is_last:
    return ""
  return hosts.first_reason_on_any_host(local_reason)
