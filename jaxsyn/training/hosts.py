"""Several processes at work on one thing: they join, agree and end together.

JAX connects them and moves the arrays (`jax.distributed`, GSPMD, Orbax). What is left
to a program: to join before anything else is done with JAX, to decide together
what each finds out at another time (a signal, the clock), and to go at once where
one is gone, since the others wait for it.

Before this file: nothing. After it: everything that asks which process this is.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import pathlib
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

# What JAX detects, and the words that its coordinator keeps, have no public name.
from jax._src import clusters, distributed
from jax.experimental import multihost_utils

from jaxsyn import exits, lock
from jaxsyn.errors import InputError

flags.disclaim_key_flags()  # they show in the help of the command

T = TypeVar("T")
_waits = itertools.count()  # the same in all processes

# All together well below the half minute after which a scheduler kills.
HEARTBEAT = 10  # seconds without a sign of life, after which a process is dead
GOOD_BYE = 15  # seconds that the first process to end waits for the others
MEET = 2.0  # seconds between two questions whether to end, if steps are quick
POLL = 0.05  # seconds between two questions whether all are ready
LAST_WORDS = 3.0  # seconds that others have to say what the first has met, too
LATE = 10.0  # seconds after which a network's folder shows what was written


def define_flags(values: flags.FlagValues = flags.FLAGS) -> None:
  """Flags for processes that no cluster starts."""
  flags.DEFINE_string(
    "coordinator",
    None,
    "HOST:PORT of process 0, a free port, where several processes work "
    "together that no cluster starts; --processes and --process with it.",
    flag_values=values,
  )
  flags.DEFINE_integer(
    "processes", None, "How many there are.", 1, flag_values=values
  )
  flags.DEFINE_integer(
    "process", None, "Which one this is, from 0.", 0, flag_values=values
  )
  flags.DEFINE_integer(
    "join_timeout",
    300,
    "Seconds to wait for the others at the start.",
    1,
    flag_values=values,
  )


def join(values: flags.FlagValues) -> None:
  """Joins the other processes of a run, if there are any.

  Those of Slurm, Open MPI, Cloud TPU and Kubernetes are found by JAX, others are
  named by flags. Nothing may have been computed with JAX before.

  Raises:
    InputError: the flags do not fit together, or nobody answers.
  """
  named = ("coordinator", "processes", "process")
  given = {name: values[name].value for name in named}
  missing = [f"--{name}" for name in named if given[name] is None]
  cluster = "the command line"
  if len(missing) == len(named):
    cluster, tasks = _cluster()
    if tasks == 1:
      return
    given = {}
  elif missing:
    raise InputError(
      "--coordinator, --processes and --process go together; missing: "
      f"{', '.join(missing)}."
    )
  else:
    _check(given, values.join_timeout)
  # It takes SIGTERM away from Python, and the loop, which agrees on a step for
  # it, would not hear of one that comes before the loop begins.
  jax.config.update("jax_enable_preemption_service", False)
  late = threading.Timer(values.join_timeout, _give_up, [values.join_timeout])
  late.daemon = True
  late.start()
  jax.distributed.initialize(
    given.get("coordinator"),
    given.get("processes"),
    given.get("process"),
    initialization_timeout=2 * values.join_timeout,
    heartbeat_timeout_seconds=HEARTBEAT,
    shutdown_timeout_seconds=GOOD_BYE,
  )
  late.cancel()
  if jax.process_index() == 0:
    number, devices = jax.process_count(), jax.device_count()
    print(
      f"{number} processes joined ({cluster}), of {devices} devices", flush=True
    )


def _give_up(seconds: int) -> None:
  """Before JAX does, with a page of C++."""
  _say(
    f"error: not all processes have joined within {seconds} s. Start as many as "
    "there are to be, with one address and each with its own --process; "
    "--join_timeout waits longer."
  )
  os._exit(2)


def check_joined() -> None:
  """Refuses to train alone as one of several that a cluster started.

  Raises:
    InputError: each would train a model of its own, into one folder.
  """
  if jax.distributed.is_initialized():
    return
  cluster, tasks = _cluster()
  if tasks > 1:
    raise InputError(
      f"{cluster} started {tasks} processes, and this one has not joined the "
      "others: call jax.distributed.initialize() before anything else is done "
      "with JAX (python -m jaxsyn.train does), or start one task."
    )


def _check(given: dict[str, Any], timeout: int) -> None:
  address, count, number = given.values()
  host, colon, port = address.rpartition(":")
  if not colon or not host or not port.isdigit() or int(port) > 65535:
    raise InputError(
      f"--coordinator={address}: HOST:PORT is needed, as in 10.0.0.1:1234."
    )
  if not 0 <= number < count:
    raise InputError(
      f"--process={number}: of --processes={count} it is one from 0 to "
      f"{count - 1}."
    )
  # JAX aborts with a page of C++ where nobody listens there, and with a
  # segmentation fault where somebody else does.
  if number:
    _wait_for(host, int(port), timeout)
  else:
    _check_free(int(port))


def _check_free(port: int) -> None:
  with socket.socket() as probe:
    probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
      probe.bind(("", port))
    except (OSError, OverflowError) as error:
      raise InputError(
        f"--coordinator: port {port} of this machine, which process 0 listens "
        f"at, cannot be had ({error}). Name another one, to all processes."
      ) from None


def _wait_for(host: str, port: int, timeout: int) -> None:
  end = time.monotonic() + timeout
  while True:
    try:
      with socket.create_connection((host, port), timeout=5):
        return
    except OSError as error:
      if time.monotonic() > end:
        raise InputError(
          f"--coordinator={host}:{port}: process 0 did not answer there for "
          f"{timeout} s ({error}). Start it with the same address, and look at "
          "the firewall."
        ) from None
    time.sleep(0.5)


def _cluster() -> tuple[str, int]:
  """What started this process, by JAX's name, and how many tasks it has."""
  for kind in clusters.ClusterEnv._cluster_types:
    if not kind.opt_in_only_method and kind.is_env_present():
      try:
        return kind.name, kind.get_process_count()
      except Exception as error:  # a notebook's TPU has no server to ask
        _say(
          f"warning: this looks like {kind.name}, but does not say how many "
          f"processes there are ({error}); going on alone."
        )
  return "", 1


def everyone(content: Any) -> list[Any]:
  """What each process of the run says, in their order; plain JSON."""
  if jax.process_count() == 1:
    return [content]
  data = np.frombuffer(json.dumps(content).encode(), np.uint8)
  sizes = multihost_utils.process_allgather(np.array(data.size))
  padded = np.zeros(sizes.max(), np.uint8)
  padded[: data.size] = data
  rows = multihost_utils.process_allgather(padded)
  return [json.loads(row[:n].tobytes()) for row, n in zip(rows, sizes)]


def agreed(reason: str) -> str:
  """The first reason that any process has, in all of them; "" for none."""
  return next(filter(None, everyone(reason)), "")


def by_the_first(action: Callable[[], T]) -> T | None:
  """Process 0 does it while the others wait; what it returns, None in others.

  Raises:
    InputError: that of process 0, in all of them; also of the system's errors.
  """
  result, reason = None, ""
  if jax.process_index() == 0:
    try:
      result = action()
    except (InputError, OSError) as error:
      known = exits.told(error)
      if known is None:
        raise
      reason = known[0].removeprefix("error: ")
  if reason := agreed(reason):
    raise InputError(reason)
  return result


def check_same(what: str, own: Mapping[str, Any]) -> None:
  """All processes were told the same.

  Args:
    what: it is, for the message.
    own: what this process was told; plain JSON.

  Raises:
    InputError: in all of them; it names the first that differs, and what in.
  """
  first, *others = everyone(own)
  for number, other in enumerate(others, start=1):
    differing = [
      f"{name} is {other.get(name)!r} there and {first.get(name)!r} in process 0"
      for name in sorted(first | other)
      if first.get(name) != other.get(name)
    ]
    if differing:
      raise InputError(
        f"process {number} was given another {what} than process 0: "
        f"{'; '.join(differing[:5])}. Start all with the same command."
      )


def check_shared(folder: os.PathLike[str] | str) -> None:
  """All processes see the folder that process 0 has locked.

  Raises:
    InputError: on some of their machines it is another one.
  """
  if jax.process_count() == 1:
    return
  file = pathlib.Path(folder) / lock.FILE

  def seen() -> str:
    try:
      return file.read_text(encoding="utf-8")
    except OSError as error:
      return error.strerror or "nothing"

  holder = everyone(seen())[0]
  end = time.monotonic() + LATE
  while (told := seen()) != holder and time.monotonic() < end:
    time.sleep(0.2)
  reason = (
    ""
    if told == holder
    else (
      f"{file} on {socket.gethostname()} (process {jax.process_index()}) is not "
      f"the file that process 0 wrote (here: {told.strip()!r}; there: "
      f"{holder.strip()!r}). --workdir must be a folder that all processes share."
    )
  )
  if reason := agreed(reason):
    raise InputError(reason)


def until(ready: Callable[[], bool], asked: Callable[[], str]) -> str:
  """Waits until something is ready in all processes, unless one is to end.

  Nothing of it goes over the devices: who is asked to end while another already
  computes could not tell it. Called by all in the same order.

  Args:
    ready: in this process; it waits for a moment itself.
    asked: why this process is to end; "" as long as it is not.

  Returns: why all end, the same in all of them; "" where it is ready.
  """
  number = jax.process_count()
  key = f"jaxsyn/until/{next(_waits)}"
  client: Any = distributed.global_state.client  # None in one process alone
  told, counted = "", False
  while not told:
    if not counted and ready():
      counted = True
      if number == 1 or client.key_value_increment(f"{key}/ready", 1) == number:
        told = "ready"
    elif reason := asked():
      told = f"ended by {reason}"
    if number > 1:
      told = _first_said(client, key, told)
    if counted and not told:
      time.sleep(POLL)
  return told.removeprefix("ended by ") if told != "ready" else ""


def _first_said(client: Any, key: str, told: str) -> str:
  """What the first process said under a key, if any; else this one's."""
  if told:
    with contextlib.suppress(jax.errors.JaxRuntimeError):  # another was first
      client.key_value_set(key, told)
  try:
    return client.key_value_try_get(key)
  except jax.errors.JaxRuntimeError as error:
    if "NOT_FOUND" not in str(error):
      raise
    return ""


class Meetings:
  """Whether to end, decided by all processes at the same step.

  Signals and clocks reach each at another step; where one ended alone, the others
  would wait for it. Asking waits for the devices, so it is not done at each step
  unless steps are slow.
  """

  def __init__(self, most: int, start: int):
    """
    Args:
      most: steps between two meetings at most.
      start: the step that is gone on from, where all meet.
    """
    self._most = most
    self._next = self._at = start
    self._met = time.monotonic()

  def reason(self, step: int, own: str, *, now: bool = False) -> str:
    """Why all end at this step; "" to go on.

    Args:
      step: the same in all processes.
      own: why this one would.
      now: at this step all do meet, whatever was planned.
    """
    if jax.process_count() == 1:
      return own
    if step < self._next and not now:
      return ""
    seconds = (time.monotonic() - self._met) / max(1, step - self._at)
    told = everyone([own, seconds])
    slowest = max(each for _, each in told)
    # The same number in all: it is made of what all were told.
    steps = int(MEET / max(slowest, 1e-3))
    self._next = step + min(max(1, steps), self._most)
    self._met, self._at = time.monotonic(), step
    return next(filter(None, (reason for reason, _ in told)), "")


@contextlib.contextmanager
def together() -> Iterator[None]:
  """Around a run: all end together, and none is left waiting.

  An exception in one of several ends it at once, without the good-bye for which it
  would wait; the others lose the connection, or the sign of life.
  """
  try:
    yield
    # Here and not at the exit of Python, which would wait for compilers first.
    jax.distributed.shutdown()
  except BaseException as error:
    if jax.process_count() == 1:
      raise
    _leave(error)


def _leave(error: BaseException) -> None:
  number, status = jax.process_index(), 2
  if known := exits.told(error):
    message, status = known
    _say(message)
  else:
    if _lost(error):
      _say(
        f"error: process {number} lost another process of the run, which failed "
        f"or was killed; JAX names it within {HEARTBEAT} s, its own log says "
        "why. Run the same command again: training goes on from the last "
        "checkpoint. It was told: "
        f"{str(error).splitlines()[0][:300]}"
      )
      time.sleep(HEARTBEAT + 5)  # JAX ends this process sooner, with the name
    lines = "".join(traceback.format_exception(error))
    _say(f"error in process {number}:\n{lines}")
  if number == 0:
    # With it goes what connects the others, who may have met the same: JAX would
    # end them with a page of C++ before they have said so.
    time.sleep(LAST_WORDS)
  os._exit(status)


def _lost(error: BaseException) -> bool:
  """Whether it is what JAX, Orbax, Gloo or NCCL say when another is gone."""
  words = ("Gloo", "NCCL", "UNAVAILABLE", "DEADLINE", "heartbeat", "barrier")
  return any(word in str(error) for word in words)


def _say(text: str) -> None:
  with contextlib.suppress(OSError):
    sys.stdout.flush()
    print(text, file=sys.stderr, flush=True)
