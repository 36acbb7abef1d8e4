"""Writing arrays to a local folder, with Orbax, in the background.

Several processes write into one folder, each its part, where all of them see it.
Where they do not, since the files go to an object store, the first takes the
arrays from the devices of all, one by one, and writes alone.

Before this file: `sums`, `hosts`. After it: `checkpoint`.
"""

from __future__ import annotations

import pathlib
from collections.abc import Callable
from logging import LogRecord
from typing import Any

import jax
import numpy as np
import orbax.checkpoint as ocp
from absl import logging
from jax.experimental import multihost_utils

from jaxsyn.training import hosts, sums

Tree = Any


class ArrayWriter:
  """Writes one tree of arrays after the other.

  Attributes:
    alone: whether the first of several processes writes for all.
  """

  def __init__(self, shared: bool):
    """
    Args:
      shared: all processes see the folders that are written to.
    """
    several = jax.process_count() > 1
    self.alone = several and not shared
    self._together = several and shared
    self._orbax = _orbax(self.alone)
    logging.get_absl_logger().addFilter(_is_news)

  def taken(self, tree: Tree) -> Tree | None:
    """What this process is to write of a tree; None where that is nothing.

    Called by all processes in the same order.
    """
    return _on_the_first(tree) if self.alone else tree

  def begin(
    self, folder: pathlib.Path, name: str, tree: Tree
  ) -> Callable[[], sums.Sums]:
    """Starts to write; returns when the arrays may be changed again.

    Args:
      folder: is made; where several processes write, the same in all of them.
      name: of what Orbax writes there.
      tree: of `taken`.

    Returns:
      a function that returns when all is in the folder, the sums of the arrays.
    """
    take_sums = sums.held(tree)
    together = None
    if self._together:
      # Not in the background: all processes must speak in one order.
      together = sums.merged(hosts.everyone(take_sums()))
    if jax.process_index() == 0:
      folder.mkdir()
    if self._together:
      hosts.everyone("the folder is there")
    # Orbax has another form for numbers that are no arrays.
    arrays = jax.tree.map(
      lambda x: x if isinstance(x, jax.Array) else np.asarray(x), tree
    )
    self._orbax.save(folder / name, args=ocp.args.PyTreeSave(arrays))

    def finish() -> sums.Sums:
      found = together or take_sums()
      self._orbax.wait_until_finished()
      return found

    return finish

  def close(self) -> None:
    """Waits, and gives the threads back."""
    self._orbax.close()
    logging.get_absl_logger().removeFilter(_is_news)


def _orbax(alone: bool) -> ocp.AsyncCheckpointer:
  if not alone:
    return ocp.AsyncCheckpointer(ocp.PyTreeCheckpointHandler())
  me = jax.process_index()
  options = ocp.options.MultiprocessingOptions(
    primary_host=me, active_processes={me}
  )
  kinds = ocp.type_handlers
  registry = kinds.create_type_handler_registry(
    # What was taken is this process's own: no second copy of it.
    (np.ndarray, kinds.NumpyHandler(deepcopy_host_arrays=False)),
    (jax.Array, kinds.ArrayHandler()),  # there are none, but Orbax would warn
  )
  handler = ocp.PyTreeCheckpointHandler(
    multiprocessing_options=options, type_handler_registry=registry
  )
  return ocp.AsyncCheckpointer(handler, multiprocessing_options=options)


def _on_the_first(tree: Tree) -> Tree | None:
  """The arrays, whole, in the memory of process 0; None in all others.

  At no time is more than one that is cut whole on a device, or in the memory of
  another process.
  """
  is_first = jax.process_index() == 0
  leaves, structure = jax.tree.flatten(tree)
  # Those that every device has: copied while others are brought together.
  whole = {
    number: leaf.addressable_data(0)
    for number, leaf in enumerate(leaves)
    if is_first and leaf.is_fully_replicated
  }
  for leaf in whole.values():
    leaf.copy_to_host_async()
  taken = []
  for number, leaf in enumerate(leaves):
    if leaf.is_fully_replicated:
      data = np.asarray(whole.pop(number)) if is_first else None
    else:
      data = multihost_utils.process_allgather(leaf, tiled=True)
    taken.append(data if is_first else None)
  return jax.tree.unflatten(structure, taken) if is_first else None


def _is_news(record: LogRecord) -> bool:
  """Not the tracebacks, 200 lines for a full disk, that Orbax's threads log:
  `ArrayWriter.begin`'s function raises the same."""
  return not (record.exc_info and "orbax" in record.pathname)
