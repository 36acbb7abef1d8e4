"""A local folder whose files are copied to an object store as they grow.

Before this file: `remote`. After it: `log` and `profile`, whose libraries append
to files, which no store can.
"""

from __future__ import annotations

import os
import pathlib
import tempfile

from jaxsyn.storage import lease, remote


class Mirror:
  """What is written to one folder here, and published there.

  Attributes:
    folder: the local one, empty at first; it goes with `close`.
  """

  def __init__(self, target: os.PathLike[str] | str):
    """
    Args:
      target: folder on an object store.
    """
    self._target = target
    self._temporary = tempfile.TemporaryDirectory(prefix="jaxsyn-")
    self.folder = pathlib.Path(self._temporary.name)
    self._sizes: dict[str, tuple[int, int]] = {}

  def publish(self) -> None:
    """Copies the files that changed since the last time.

    Raises:
      StoreError: the store refuses, or cannot be reached.
    """
    sizes = {}
    for file in self.folder.rglob("*"):
      if file.is_file():
        now = file.stat()
        name = file.relative_to(self.folder).as_posix()
        sizes[name] = (now.st_size, now.st_mtime_ns)
    changed = [n for n, state in sizes.items() if self._sizes.get(n) != state]
    if changed:
      lease.check(f"{self._target}/")
      remote.upload(self.folder, self._target, changed)
    self._sizes = sizes

  def close(self) -> None:
    """Publishes, and removes the local folder."""
    try:
      self.publish()
    finally:
      self._temporary.cleanup()
