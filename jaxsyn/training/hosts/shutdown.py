"""How several processes end: all of them, whatever happened to one.

Before this file: nothing. After it: `join`.
"""

from __future__ import annotations

import contextlib
import os
import sys
import time
import traceback
from collections.abc import Iterator

import jax

from jaxsyn import exits

# All together well below the half minute after which a scheduler kills.
SHUTDOWN_TIMEOUT = (
  15  # seconds that the first process to end waits for the others
)
ERROR_TIMEOUT = (
  3.0  # seconds that others have to say what the first has met, too
)


@contextlib.contextmanager
def shutdown_together(heartbeat: int) -> Iterator[None]:
  """Around a run: all end together, and none is left waiting.

  An exception in one of several ends it at once, without the good-bye for which it
  would wait; the others lose the connection, or the sign of life.

  Args:
    heartbeat: Seconds without a sign of life after which a process counts as
      lost.
  """
  try:
    yield
    # Here and not at the exit of Python, which would wait for compilers first.
    jax.distributed.shutdown()
  except BaseException as error:
    if jax.process_count() == 1:
      raise
    _exit(error, heartbeat)


def _exit(error: BaseException, heartbeat: int) -> None:
  process_index, status = jax.process_index(), 2
  if known := exits.error_message(error):
    message, status = known
    print_error(message)
  else:
    if _lost(error):
      print_error(
        f"error: process {process_index} lost another process of the run, which failed "
        f"or was killed; JAX names it within {heartbeat} s, its own log says "
        "why. Run the same command again: training goes on from the last "
        "checkpoint. It was told: "
        f"{str(error).splitlines()[0][:300]}"
      )
      time.sleep(heartbeat + 5)  # JAX ends this process sooner, with the name
    lines = "".join(traceback.format_exception(error))
    print_error(f"error in process {process_index}:\n{lines}")
  if process_index == 0:
    # With it goes what connects the others, who may have met the same: JAX would
    # end them with a page of C++ before they have said so.
    time.sleep(ERROR_TIMEOUT)
  os._exit(status)


def _lost(error: BaseException) -> bool:
  """Whether it is what JAX, Orbax, Gloo or NCCL say when another is gone."""
  words = ("Gloo", "NCCL", "UNAVAILABLE", "DEADLINE", "heartbeat", "barrier")
  return any(word in str(error) for word in words)


def print_error(text: str) -> None:
  """A line on standard error, at once."""
  with contextlib.suppress(OSError):
    sys.stdout.flush()
    print(f"{text}\n", end="", file=sys.stderr, flush=True)
