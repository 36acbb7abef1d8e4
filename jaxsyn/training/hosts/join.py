"""How several processes find each other, before anything is done with JAX.

Before this file: `end`, for what JAX is told of it. After it: nothing here.
"""

from __future__ import annotations

import os
import socket
import threading
import time
from typing import Any

import jax
from absl import flags
from jax._src import clusters  # see `_cluster`

from jaxsyn.errors import InputError
from jaxsyn.training.hosts.shutdown import SHUTDOWN_TIMEOUT, print_error

flags.disclaim_key_flags()  # they show in the help of the command


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
  flags.DEFINE_integer(
    "heartbeat",
    10,
    "Seconds without a sign of life after which a process counts as lost, which "
    "ends the run. Raise it on a network that is interrupted for longer.",
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
  flag_values = {name: values[name].value for name in named}
  missing = [f"--{name}" for name in named if flag_values[name] is None]
  cluster = "the command line"
  if len(missing) == len(named):
    cluster, tasks = _cluster()
    if tasks == 1:
      return
    flag_values = {}
  elif missing:
    raise InputError(
      "--coordinator, --processes and --process go together; missing: "
      f"{', '.join(missing)}."
    )
  else:
    _check(flag_values, values.join_timeout)
  # It takes SIGTERM away from Python, and the loop, which agrees on a step for
  # it, would not hear of one that comes before the loop begins.
  jax.config.update("jax_enable_preemption_service", False)
  late = threading.Timer(values.join_timeout, _give_up, [values.join_timeout])
  late.daemon = True
  late.start()
  jax.distributed.initialize(
    flag_values.get("coordinator"),
    flag_values.get("processes"),
    flag_values.get("process"),
    initialization_timeout=2 * values.join_timeout,
    heartbeat_timeout_seconds=values.heartbeat,
    shutdown_timeout_seconds=SHUTDOWN_TIMEOUT,
  )
  late.cancel()
  if jax.process_index() == 0:
    process_count, devices = jax.process_count(), jax.device_count()
    print(
      f"{process_count} processes joined ({cluster}), of {devices} devices",
      flush=True,
    )
  else:
    print(
      f"process {jax.process_index()} joined ({cluster}); process 0 tells how "
      "the run goes",
      flush=True,
    )


def _give_up(seconds: int) -> None:
  """Before JAX does, with a page of C++."""
  print_error(
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
      "with JAX (jaxsyn train does), or start one task."
    )


def _check(flag_values: dict[str, Any], timeout: int) -> None:
  address, count, process_index = flag_values.values()
  host, colon, port = address.rpartition(":")
  if not colon or not host or not port.isdigit() or int(port) > 65535:
    raise InputError(
      f"--coordinator={address}: HOST:PORT is needed, as in 10.0.0.1:1234."
    )
  if not 0 <= process_index < count:
    raise InputError(
      f"--process={process_index}: of --processes={count} it is one from 0 to "
      f"{count - 1}."
    )
  # JAX aborts with a page of C++ where nobody listens there, and with a
  # segmentation fault where somebody else does.
  if process_index:
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
  """What started this process, by JAX's name, and how many tasks it has.

  JAX has no public name for what it detects. A test checks what is used of it.
  """
  for kind in clusters.ClusterEnv._cluster_types:
    if not kind.opt_in_only_method and kind.is_env_present():
      try:
        return kind.name, kind.get_process_count()
      except Exception as error:  # a notebook's TPU has no server to ask
        print_error(
          f"warning: this looks like {kind.name}, but does not say how many "
          f"processes there are ({error}); going on alone."
        )
  return "", 1
