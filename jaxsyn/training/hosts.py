"""Coordinates several processes: joining, synchronization and shutdown.

JAX connects the processes and moves arrays (`jax.distributed`). This module does
what is left to a program: joining before any other use of JAX, common decisions
about events that only one process sees (a signal, the clock), and a prompt exit
if another process has failed.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import json
import os
import re
import socket
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar

import jax
import numpy as np
from absl import flags

# JAX has no public names for the detected cluster and for the client of its
# coordinator. Tests check the functions that are used.
from jax._src import clusters, distributed
from jax.experimental import multihost_utils

from jaxsyn.errors import InputError, StoreError
from jaxsyn.storage import lock, remote
from jaxsyn.utils import exits

T = TypeVar("T")

POLL_SECONDS = 0.05  # between two polls of a condition
_SHARED_FOLDER_SECONDS = 10.0  # delay after which network file systems agree
_SHUTDOWN_SECONDS = 15  # below the 30 s after which most schedulers kill
_ERROR_SECONDS = 3.0  # in which the other processes can print the same error

# Words in the errors of JAX, Orbax, Gloo and NCCL after the loss of a process.
_CONNECTION_ERRORS = re.compile(
  "Gloo|NCCL|UNAVAILABLE|DEADLINE|heartbeat|barrier"
)
_wait_ids = itertools.count()  # equal in all processes

flags.disclaim_key_flags()  # the command that defines the flags shows them


def define_flags(values: flags.FlagValues = flags.FLAGS) -> None:
  """Defines flags that connect processes started without a cluster manager."""
  flags.DEFINE_string(
    "coordinator",
    None,
    "HOST:PORT of process 0 (a free port), for several processes not started "
    "by a cluster manager. Needs --processes and --process.",
    flag_values=values,
  )
  integer = functools.partial(flags.DEFINE_integer, flag_values=values)
  integer("processes", None, "Number of processes.", 1)
  integer("process", None, "Index of this process, from 0.", 0)
  integer("join_timeout", 300, "Seconds to wait for the other processes.", 1)
  integer(
    "heartbeat",
    10,
    "Seconds without a response after which a process is considered dead.",
    1,
  )


def join(values: flags.FlagValues) -> None:
  """Connects this process to the others of a distributed run, if any.

  JAX detects Slurm, Open MPI, Cloud TPU and Kubernetes; otherwise the flags name
  the processes. No JAX computation may come before.

  Raises:
    InputError: The flags are inconsistent, or process 0 cannot be reached.
  """
  names = ("coordinator", "processes", "process")
  requested: list[Any] = [values[name].value for name in names]
  address, count, index = requested
  missing = [f"--{n}" for n, v in zip(names, requested) if v is None]
  source = "the command line"
  if len(missing) == len(names):
    source, tasks = _cluster()
    if tasks == 1:
      return
  elif missing:
    raise InputError(
      "--coordinator, --processes and --process go together; missing: "
      f"{', '.join(missing)}."
    )
  else:
    _check_address(address, count, index)
  # JAX's preemption service would take SIGTERM away from the training loop.
  jax.config.update("jax_enable_preemption_service", False)
  timer = threading.Timer(values.join_timeout, _exit_unjoined, [values])
  timer.daemon = True
  timer.start()
  jax.distributed.initialize(
    address,
    count,
    index,
    initialization_timeout=2 * values.join_timeout,
    heartbeat_timeout_seconds=values.heartbeat,
    shutdown_timeout_seconds=_SHUTDOWN_SECONDS,
  )
  timer.cancel()
  print(
    f"process {jax.process_index()} of {jax.process_count()} joined ({source}), "
    f"{jax.device_count()} devices",
    flush=True,
  )


def check_joined() -> None:
  """Raises InputError if this process has not joined the others of its job.

  Raises:
    InputError: Each task would train its own model into the same directory.
  """
  if jax.distributed.is_initialized():
    return
  cluster, tasks = _cluster()
  if tasks > 1:
    raise InputError(
      f"{cluster} started {tasks} processes, and this one has not joined the "
      "others: call jax.distributed.initialize() before any other use of JAX "
      "(jaxsyn train does), or start one task."
    )


def all_gather_json(content: Any) -> list[Any]:
  """Gathers a JSON value from every process, in order of process index."""
  if jax.process_count() == 1:
    return [content]
  data = np.frombuffer(json.dumps(content).encode(), np.uint8)
  sizes = multihost_utils.process_allgather(np.array(data.size))
  padded = np.zeros(sizes.max(), np.uint8)
  padded[: data.size] = data
  rows = multihost_utils.process_allgather(padded)
  return [json.loads(row[:n].tobytes()) for row, n in zip(rows, sizes)]


def first_reason_on_any_host(reason: str) -> str:
  """Gathers failure reasons of all processes; returns the first, or ""."""
  return next(filter(None, all_gather_json(reason)), "")


def on_main_process(action: Callable[[], T]) -> T | None:
  """Runs `action` on process 0 while the others wait.

  Returns:
    Its result on process 0, None elsewhere.

  Raises:
    InputError: On all processes, for an error of the input, of the system or of
      an object store on process 0.
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
  wait_for_all()  # it may take minutes, longer than a collective may wait
  if reason := first_reason_on_any_host(reason):
    raise InputError(reason)
  return result


def check_same(
  what: str,
  values: Mapping[str, Any],
  advice: str = "Start all with the same command.",
) -> None:
  """Raises InputError unless all processes have equal values.

  Args:
    what: Name of the values in the error message.
    values: JSON values of this process, by name.
    advice: Remedy in the error message.

  Raises:
    InputError: On all processes; the message names the values that differ.
  """
  first, *other_values = all_gather_json(values)
  for index, other in enumerate(other_values, start=1):
    differences = [
      f"{name} is {other.get(name)!r} there and {first.get(name)!r} in process 0"
      for name in sorted(first | other)
      if first.get(name) != other.get(name)
    ]
    if differences:
      raise InputError(
        f"process {index} was given another {what} than process 0: "
        f"{'; '.join(differences[:5])}. {advice}"
      )


def check_shared(folder: os.PathLike[str] | str) -> None:
  """Checks that all processes see the directory that process 0 has locked.

  Raises:
    InputError: On some machine, the path is another directory.
  """
  if jax.process_count() == 1 or remote.is_remote(folder):
    return

  is_main, owner, reason = jax.process_index() == 0, "", ""
  (expected, *_) = all_gather_json(is_main and lock.lock_owner(folder))
  end = time.monotonic() + _SHARED_FOLDER_SECONDS
  while owner != expected and time.monotonic() < end:
    with contextlib.suppress(OSError):
      owner = lock.lock_owner(folder)
    time.sleep(0 if owner == expected else 0.2)
  if owner != expected:
    reason = (
      f"{folder} on {socket.gethostname()} (process {jax.process_index()}) is not "
      f"the directory that process 0 has locked ({expected}). --workdir must be "
      "a directory that all processes share."
    )
  if reason := first_reason_on_any_host(reason):
    raise InputError(reason)


def wait_for_all(
  ready: Callable[[], bool] = lambda: True,
  stop_reason: Callable[[], str] = lambda: "",
) -> str:
  """Waits until all processes are ready, or until one has a reason to stop.

  There is no time limit. It communicates through the coordinator, not through
  devices: a process that waits in a collective could not react to the stop
  reason of another. All processes must call it in the same order.

  Args:
    ready: Function that waits briefly and returns whether this process is ready.
    stop_reason: Function that returns why this process stops; "" to continue.

  Returns:
    The reason why all stop, equal on all processes; "" if all are ready.
  """
  process_count = jax.process_count()
  key = f"jaxsyn/wait/{next(_wait_ids)}"
  client: Any = distributed.global_state.client  # None for a single process
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
      outcome = f"stop {reason}"
    if process_count > 1:
      outcome = _first_outcome(client, key, outcome)
    if is_counted and not outcome:
      time.sleep(POLL_SECONDS)
  return "" if outcome == "ready" else outcome.removeprefix("stop ")


@contextlib.contextmanager
def shutdown_together(heartbeat: int) -> Iterator[None]:
  """Ends all processes soon after the `with` block fails in one process.

  After an exception, a process exits at once, without JAX's shutdown barrier, in
  which it would wait for the others. These notice the lost connection or the
  missing heartbeat.

  Args:
    heartbeat: Seconds after which a process is considered lost.
  """
  try:
    yield
    # Not at the exit of Python, which waits for compiler threads first.
    jax.distributed.shutdown()
  except BaseException as error:
    if jax.process_count() == 1:
      raise
    _exit(error, heartbeat)


def print_error(text: str) -> None:
  """Prints a line on standard error immediately, as a single write."""
  with contextlib.suppress(OSError):
    sys.stdout.flush()
    print(f"{text}\n", end="", file=sys.stderr, flush=True)


def _exit(error: BaseException, heartbeat: int) -> None:
  process_index, status = jax.process_index(), 2
  if known := exits.error_message(error):
    message, status = known
    print_error(message)
  else:
    if _CONNECTION_ERRORS.search(str(error)):
      print_error(
        f"error: process {process_index} lost another process of the run, whose "
        "log has the cause. Run the same command again to resume from the last "
        f"checkpoint. ({str(error).splitlines()[0][:300]})"
      )
      time.sleep(heartbeat + 5)  # JAX exits sooner, with the name
    lines = "".join(traceback.format_exception(error))
    print_error(f"error in process {process_index}:\n{lines}")
  if process_index == 0:
    # The coordinator ends with process 0, and JAX then aborts the others before
    # they can print an error that they have in common.
    time.sleep(_ERROR_SECONDS)
  os._exit(status)


def _exit_unjoined(values: flags.FlagValues) -> None:
  """Ends a process whose peers have not joined in time, with a message."""
  print_error(
    f"error: not all processes have joined within {values.join_timeout} s. Start "
    "--processes of them, each with its own --process and with the same "
    f"--coordinator ({values.coordinator}), and check the firewall."
  )
  os._exit(2)


def _first_outcome(client: Any, key: str, outcome: str) -> str:
  """Publishes a process's outcome; returns the first of any process, or "".

  "" stands for no outcome so far, of this process or of any.
  """
  if outcome:
    with contextlib.suppress(jax.errors.JaxRuntimeError):  # exists already
      client.key_value_set(key, outcome)
  try:
    return client.key_value_try_get(key)
  except jax.errors.JaxRuntimeError as error:
    if "NOT_FOUND" not in str(error):
      raise
    return ""


def _check_address(address: str, count: int, index: int) -> None:
  host, colon, port = address.rpartition(":")
  if not colon or not host or not port.isdigit() or int(port) > 65535:
    raise InputError(
      f"--coordinator={address}: HOST:PORT is needed, as in 10.0.0.1:1234."
    )
  if not 0 <= index < count:
    raise InputError(
      f"--process={index} must be from 0 to {count - 1} (--processes={count})."
    )
  if index:
    return
  # JAX would crash if the port of process 0 is in use.
  with socket.socket() as probe:
    probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
      probe.bind(("", int(port)))
    except OSError as error:
      raise InputError(
        f"--coordinator: process 0 cannot listen on port {port} of this machine "
        f"({error}). Pass another port to all processes."
      ) from None


def _cluster() -> tuple[str, int]:
  """Returns the cluster manager that started this process, and the task count."""
  for kind in clusters.ClusterEnv._cluster_types:
    if not kind.opt_in_only_method and kind.is_env_present():
      try:
        return kind.name, kind.get_process_count()
      except Exception as error:  # the TPU of a notebook has no server
        print_error(
          f"warning: this looks like {kind.name}, but the number of processes "
          f"is unknown ({error}); continuing with one process."
        )
  return "", 1
