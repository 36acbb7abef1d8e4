"""What several processes decide together, each knowing something else.

Before this file: nothing. After it: all that must be the same in all of them.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import socket
import time
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import jax
import numpy as np
from jax._src import distributed  # see `_coordinator`
from jax.experimental import multihost_utils

from jaxsyn import exits
from jaxsyn.errors import InputError, StoreError
from jaxsyn.storage import lock, remote

T = TypeVar("T")
_waits = itertools.count()  # the same in all processes

STOP_CHECK_SECONDS = (
  2.0  # seconds between two questions whether to end, if steps are quick
)
POLL_SECONDS = 0.05  # seconds between two questions whether all are ready
NETWORK_DELAY = (
  10.0  # seconds after which a network's folder shows what was written
)


def all_gather_json(content: Any) -> list[Any]:
  """What each process of the run says, in their order; plain JSON."""
  if jax.process_count() == 1:
    return [content]
  data = np.frombuffer(json.dumps(content).encode(), np.uint8)
  sizes = multihost_utils.process_allgather(np.array(data.size))
  padded = np.zeros(sizes.max(), np.uint8)
  padded[: data.size] = data
  rows = multihost_utils.process_allgather(padded)
  return [json.loads(row[:n].tobytes()) for row, n in zip(rows, sizes)]


def first_reason_on_any_host(reason: str) -> str:
  """The first reason that any process has, in all of them; "" for none."""
  return next(filter(None, all_gather_json(reason)), "")


def on_main_process(action: Callable[[], T]) -> T | None:
  """Process 0 does it while the others wait; what it returns, None in others.

  Raises:
    InputError: that of process 0, in all of them; also of the errors of the
      system and of stores.
  """
  result, reason = None, ""
  if jax.process_index() == 0:
    try:
      result = action()
    except (InputError, StoreError, OSError) as error:
      known = exits.error_message(error)
      if known is None:
        raise
      reason = known[0].removeprefix("error: ")
  barrier()  # it may take minutes
  if reason := first_reason_on_any_host(reason):
    raise InputError(reason)
  return result


def check_same(
  what: str,
  values: Mapping[str, Any],
  advice: str = "Start all with the same command.",
) -> None:
  """All processes were told the same.

  Args:
    what: it is, for the message.
    values: what this process was told; plain JSON.
    advice: what the message says to do.

  Raises:
    InputError: in all of them; it names the first that differs, and what in.
  """
  first, *other_values = all_gather_json(values)
  for index, other in enumerate(other_values, start=1):
    differing = [
      f"{name} is {other.get(name)!r} there and {first.get(name)!r} in process 0"
      for name in sorted(first | other)
      if first.get(name) != other.get(name)
    ]
    if differing:
      raise InputError(
        f"process {index} was given another {what} than process 0: "
        f"{'; '.join(differing[:5])}. {advice}"
      )


def check_shared(folder: os.PathLike[str] | str) -> None:
  """Checks that all processes see the directory that process 0 has locked.

  A directory on an object store is the same on all machines.

  Raises:
    InputError: On some machine it is another directory.
  """
  if jax.process_count() == 1 or remote.is_remote(folder):
    return

  def seen() -> str:
    try:
      return lock.lock_owner(folder)
    except OSError as error:
      return error.strerror or "nothing"

  holder = all_gather_json(seen())[0]
  end = time.monotonic() + NETWORK_DELAY
  while (owner := seen()) != holder and time.monotonic() < end:
    time.sleep(0.2)
  reason = (
    ""
    if owner == holder
    else (
      f"the lock in {folder} on {socket.gethostname()} (process "
      f"{jax.process_index()}) is not the one that process 0 made (here: "
      f"{owner!r}; there: {holder!r}). --workdir must be a folder that all "
      "processes share."
    )
  )
  if reason := first_reason_on_any_host(reason):
    raise InputError(reason)


def barrier(ready: Callable[[], bool] = lambda: True) -> None:
  """Waits, however long, until something is ready in all processes.

  Args:
    ready: as of `wait_for_all`.
  """
  wait_for_all(ready, lambda: "")


def wait_for_all(
  ready: Callable[[], bool], stop_reason: Callable[[], str]
) -> str:
  """Waits until something is ready in all processes, unless one is to end.

  Nothing of it goes over the devices: who is asked to end while another already
  computes could not tell it. Called by all in the same order.

  Args:
    ready: in this process; it waits for a moment itself.
    stop_reason: why this process is to end; "" as long as it is not.

  Returns: why all end, the same in all of them; "" where it is ready.
  """
  process_count = jax.process_count()
  key = f"jaxsyn/until/{next(_waits)}"
  client = _coordinator()
  outcome, is_counted = "", False
  while not outcome:
    if not is_counted and ready():
      is_counted = True
      if (
        process_count == 1
        or client.key_value_increment(f"{key}/ready", 1) == process_count
      ):
        outcome = "ready"
    elif reason := stop_reason():
      outcome = f"ended by {reason}"
    if process_count > 1:
      outcome = _first_outcome(client, key, outcome)
    if is_counted and not outcome:
      time.sleep(POLL_SECONDS)
  return outcome.removeprefix("ended by ") if outcome != "ready" else ""


def _coordinator() -> Any:
  """Returns JAX's connection to its coordinator; None in a process alone.

  JAX has no public name for it. A test checks what is used of it.
  """
  return distributed.global_state.client


def _first_outcome(client: Any, key: str, outcome: str) -> str:
  """What the first process said under a key, if any; else this one's."""
  if outcome:
    with contextlib.suppress(jax.errors.JaxRuntimeError):  # another was first
      client.key_value_set(key, outcome)
  try:
    return client.key_value_try_get(key)
  except jax.errors.JaxRuntimeError as error:
    if "NOT_FOUND" not in str(error):
      raise
    return ""


class StopCoordinator:
  """Whether to end, decided by all processes at the same step.

  Signals and clocks reach each at another step; where one ended alone, the others
  would wait for it. Asking waits for the devices, so it is not done at each step
  unless steps are slow.
  """

  def __init__(self, max_steps: int, start: int):
    """
    Args:
      max_steps: steps between two meetings at most.
      start: the step that is gone on from, where all meet.
    """
    self._most = max_steps
    self._next = self._at = start
    self._met = time.monotonic()

  def reason(self, step: int, local_reason: str, *, now: bool = False) -> str:
    """Why all end at this step; "" to go on.

    Args:
      step: the same in all processes.
      local_reason: why this one would.
      now: at this step all do meet, whatever was planned.
    """
    if jax.process_count() == 1:
      return local_reason
    if step < self._next and not now:
      return ""
    seconds = (time.monotonic() - self._met) / max(1, step - self._at)
    gathered = all_gather_json([local_reason, seconds])
    slowest = max(each for _, each in gathered)
    # The same number in all: it is made of what all were told.
    steps = int(STOP_CHECK_SECONDS / max(slowest, 1e-3))
    self._next = step + min(max(1, steps), self._most)
    self._met, self._at = time.monotonic(), step
    return next(filter(None, (reason for reason, _ in gathered)), "")
