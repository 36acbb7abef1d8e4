"""Configures JAX and the C library for a command; reports lack of memory."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import os
import pathlib
import sys
from collections.abc import Iterator

import jax

from jaxsyn.errors import InputError
from jaxsyn.storage import cache, remote

# Parameters of mallopt(3), with their numbers in glibc's malloc.h, and values.
_MALLOC_SETTINGS = {
  # The other arenas return blocks over 64 MiB whatever is set here. With two, the
  # thread that executes steps used the other one in a third of the runs, and
  # trained at 0.8 of the speed. In a single arena XLA's threads wait for each other
  # while they compile, which takes 1.2 to 1.4 times as long. The number cannot be
  # raised for compilation only: glibc reads it once.
  "M_ARENA_MAX": (-8, 1),
  "M_MMAP_MAX": (-4, 0),  # all blocks are on the heap,
  "M_TRIM_THRESHOLD": (-1, -1),  # and the heap never shrinks
}


def set_up_jax(shared: str = "") -> None:
  """Configures JAX, logging and memory for a command.

  Only entry points call it; importing jaxsyn changes no settings. It sets:

  - the persistent cache of compiled programs: JAX_COMPILATION_CACHE_DIR, or a
    directory in the user's cache. Cached programs are executed, so a directory
    that other users can write to is not used. With several processes, JAX lets
    only the first one write, so the cache is in a directory that all share.
  - XLA's log: off, unless TF_CPP_MIN_LOG_LEVEL is 0 or 2. Its errors are also
    raised as exceptions, and its alarm about slow compilation is not useful.
  - malloc, see `keep_freed_memory`.
  - fewer garbage collections, which took a fifth of the time of tracing.

  Args:
    shared: Directory that all processes of the run share; "" without one.
  """
  # The value "1" may be JAX's own, set when it is imported.
  if os.environ.get("TF_CPP_MIN_LOG_LEVEL", "1") == "1":
    level = jax.config.jax_logging_level  # type: ignore[attr-defined]  # JAX adds it at run time
    jax.config.update("jax_logging_level", "CRITICAL")
    # Python's loggers keep their level: JAX warns there, e.g. about a missing
    # GPU.
    jax.config.update("jax_logging_level", level)
  keep_freed_memory()
  gc.set_threshold(50_000, 20, 100)
  chosen = jax.config.jax_compilation_cache_dir  # type: ignore[attr-defined]  # JAX adds it at run time
  if chosen and remote.is_remote(chosen):
    return
  folder = None
  try:
    path = pathlib.Path(chosen or _default_program_cache(shared)).resolve()
    # With explicit modes, since a umask may allow a group to write.
    path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
    path.mkdir(mode=0o700, exist_ok=True)
    cache.check_private(path)
    folder = str(path)
  except OSError as error:
    if not jax.distributed.is_initialized() or jax.process_index() == 0:
      print(
        f"warning: compiled programs are neither kept nor reused: {error}. "
        "JAX_COMPILATION_CACHE_DIR names another folder.",
        file=sys.stderr,
      )
  jax.config.update("jax_compilation_cache_dir", folder)


def _default_program_cache(shared: str) -> pathlib.Path:
  is_multi_host = jax.distributed.is_initialized() and jax.process_count() > 1
  if is_multi_host and shared and not remote.is_remote(shared):
    return pathlib.Path(shared) / "programs"
  path = cache.user_folder() / "programs"
  if is_multi_host and jax.process_index() == 0:
    print(
      f"the first process caches compiled programs in {path}; processes that do "
      "not share this folder compile at each start. Set "
      "JAX_COMPILATION_CACHE_DIR to a folder that all processes share."
    )
  return path


def keep_freed_memory() -> bool:
  """Makes glibc's malloc keep freed memory for this process.

  XLA allocates and frees its buffers in every step, and by default glibc returns
  large ones to the system each time. Transformer-Tiny on Multi30k on two cores
  trains 1,813 tokens/s by default and 3,054 with these settings.

  Returns:
    Whether it was done: not for another C library, nor if environment variables
    of malloc are set.
  """
  is_set = any(name.startswith("MALLOC_") for name in os.environ)
  is_set = is_set or "malloc" in os.environ.get("GLIBC_TUNABLES", "")
  mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
  if is_set or mallopt is None:
    return False
  settings = _MALLOC_SETTINGS.values()
  return all(mallopt(name, value) == 1 for name, value in settings)


@contextlib.contextmanager
def enough_memory(doing: str, lower: str) -> Iterator[None]:
  """Turns out-of-memory errors of a `with` block into one error message.

  Args:
    doing: Description of the work in the `with` block, with its shapes.
    lower: Options to lower, such as "config.batch.tokens".

  Raises:
    InputError: The memory was not sufficient.
  """
  try:
    yield
  # XLA raises a ValueError for a constant that is made outside of a program.
  except (MemoryError, ValueError, jax.errors.JaxRuntimeError) as error:
    text = str(error)
    if not isinstance(error, MemoryError) and (
      "RESOURCE_EXHAUSTED" not in text and "out of memory" not in text.lower()
    ):
      raise
    detail = f" ({text.splitlines()[0][:200]})" if text else ""
    raise InputError(f"out of memory{detail} {doing}. Lower {lower}.") from None
