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
    is_multi_host = jax.process_count() > 1
    self.alone = is_multi_host and not shared
    self._together = is_multi_host and shared
    self._orbax = _orbax(self.alone)
    logging.get_absl_logger().addFilter(_is_new)

  def copied(self, tree: Tree) -> Tree | None:
    """What this process is to write of a tree; None where that is nothing.

    Called by all processes in the same order.
    """
    return _gather_on_first_host(tree) if self.alone else tree

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
    take_sums = sums.local_sums(tree)
    all_sums = None
    if self._together:
      # Not in the background: all processes must speak in one order.
      all_sums = sums.merged(hosts.all_gather_json(take_sums()))
    if jax.process_index() == 0:
      folder.mkdir()
    if self._together:
      hosts.all_gather_json("the folder is there")
    # Orbax has another form for numbers that are no arrays.
    arrays = jax.tree.map(
      lambda x: x if isinstance(x, jax.Array) else np.asarray(x), tree
    )
    self._orbax.save(folder / name, args=ocp.args.PyTreeSave(arrays))

    def finish() -> sums.Sums:
      merged_sums = all_sums or take_sums()
      self._orbax.wait_until_finished()
      return merged_sums

    return finish

  def close(self) -> None:
    """Waits, and gives the threads back."""
    self._orbax.close()
    logging.get_absl_logger().removeFilter(_is_new)


def _orbax(single_host: bool) -> ocp.AsyncCheckpointer:
  if not single_host:
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


def _gather_on_first_host(tree: Tree) -> Tree | None:
  """The arrays, whole, in the memory of process 0; None in all others.

  At no time is more than one that is cut whole on a device, or in the memory of
  another process.
  """
  is_first = jax.process_index() == 0
  leaves, structure = jax.tree.flatten(tree)
  # Those that every device has: copied while others are brought together.
  full_arrays = {
    index: leaf.addressable_data(0)
    for index, leaf in enumerate(leaves)
    if is_first and leaf.is_fully_replicated
  }
  for leaf in full_arrays.values():
    leaf.copy_to_host_async()
  leaves_taken = []
  for index, leaf in enumerate(leaves):
    if leaf.is_fully_replicated:
      data = np.asarray(full_arrays.pop(index)) if is_first else None
    else:
      data = multihost_utils.process_allgather(leaf, tiled=True)
    leaves_taken.append(data if is_first else None)
  return jax.tree.unflatten(structure, leaves_taken) if is_first else None


def _is_new(record: LogRecord) -> bool:
  """Not the tracebacks, 200 lines for a full disk, that Orbax's threads log:
  `ArrayWriter.begin`'s function raises the same."""
  return not (record.exc_info and "orbax" in record.pathname)
