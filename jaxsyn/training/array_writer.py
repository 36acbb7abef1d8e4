"""Writing arrays with Orbax in the background, from all hosts to one directory."""

from __future__ import annotations

import pathlib
from collections.abc import Callable
from logging import LogRecord
from typing import Any

import jax
import numpy as np
import orbax.checkpoint as ocp
from absl import logging

from jaxsyn.storage import remote
from jaxsyn.training import hosts, sums

Tree = Any


class ArrayWriter:
  """Writes one tree of arrays at a time; each host writes its shards."""

  def __init__(self) -> None:
    self._orbax = ocp.AsyncCheckpointer(ocp.PyTreeCheckpointHandler())
    logging.get_absl_logger().addFilter(_is_not_orbax_traceback)

  def start(
    self, folder: pathlib.Path, name: str, tree: Tree
  ) -> Callable[[], sums.Sums]:
    """Starts writing; returns when the arrays may be changed again.

    Args:
      folder: Directory to create; the same on all hosts, local, on a shared file
        system, or on gs://.
      name: Subdirectory for the arrays.
      tree: Arrays.

    Returns:
      A function that waits until all is written, and returns the checksums of the
      arrays.
    """
    take_sums = sums.local_sums(tree)
    is_multi_host = jax.process_count() > 1
    all_sums = None
    if is_multi_host:
      # Not in the background: all hosts must communicate in one order.
      all_sums = sums.merged(hosts.all_gather_json(take_sums()))
    if jax.process_index() == 0 and not remote.is_remote(folder):
      folder.mkdir()
    if is_multi_host:
      hosts.all_gather_json("the folder is there")
    # Orbax stores numbers that are not arrays in another format.
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
    """Waits until all is written, and ends the threads."""
    self._orbax.close()
    logging.get_absl_logger().removeFilter(_is_not_orbax_traceback)


def _is_not_orbax_traceback(record: LogRecord) -> bool:
  """Drops the tracebacks that Orbax's threads log, 200 lines for a full disk.

  `ArrayWriter.start` and the function it returns raise the same exceptions.
  """
  return not (record.exc_info and "orbax" in record.pathname)
