"""Memory on a CPU: what a step frees, the next one gets at once.

XLA gets and frees its buffers in every step. By default glibc gives large ones
back to the system each time and has them anew page by page, which can cost as
much as the arithmetic. Transformer-Tiny on Multi30k, two cores of a virtual
machine: 1,813 tokens/s as glibc comes, 3,054 with these settings.

And what is said, on any device, where there is too little of it.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
from collections.abc import Iterator

import jax

from jaxsyn.errors import InputError

# Parameters of mallopt(3), from glibc's malloc.h, and what they are set to.
SETTINGS = {
  "M_ARENA_MAX": (-8, 1),  # the arenas of threads give large ones back anyway
  "M_MMAP_MAX": (-4, 0),  # nothing outside of the heap,
  "M_TRIM_THRESHOLD": (-1, -1),  # and the heap is never cut
}


def keep_memory() -> bool:
  """Sets glibc's malloc to keep what is freed; for the whole process.

  Whoever sets malloc's environment variables knows better, and other C
  libraries are left alone.

  Returns: whether it was done.
  """
  is_set = any(name.startswith("MALLOC_") for name in os.environ)
  is_set = is_set or "malloc" in os.environ.get("GLIBC_TUNABLES", "")
  mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
  if is_set or mallopt is None:
    return False
  return all(mallopt(name, value) == 1 for name, value in SETTINGS.values())


@contextlib.contextmanager
def enough_memory(doing: str, lower: str) -> Iterator[None]:
  """Turns running out of memory, the host's or a device's, into one message.

  Args:
    doing: what the block does, with its shapes.
    lower: what to lower, as in "config.batch.tokens".

  Raises:
    InputError: there was too little.
  """
  try:
    yield
  except (MemoryError, ValueError, jax.errors.JaxRuntimeError) as error:
    # XLA's code for it, a ValueError where a constant is made outside of a
    # program; what Python and C++ lack is a MemoryError.
    text = str(error)
    if not isinstance(error, MemoryError) and (
      "RESOURCE_EXHAUSTED" not in text and "out of memory" not in text.lower()
    ):
      raise
    detail = f" ({text.splitlines()[0][:200]})" if text else ""
    raise InputError(f"out of memory{detail} {doing}. Lower {lower}.") from None
