"""Small disks for tests, which can be full or read-only."""

from __future__ import annotations

import contextlib
import pathlib
import subprocess
from collections.abc import Iterator

import pytest


@contextlib.contextmanager
def disk(path: pathlib.Path, size: str) -> Iterator[pathlib.Path]:
  """Mounts a file system in memory, or skips the test if this is not allowed.

  Args:
    path: Mount point, which is created.
    size: Size, such as "64k" or "1m".
  """
  path.mkdir()
  command = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(path)]
  try:
    subprocess.run(command, capture_output=True, check=True)
  except (FileNotFoundError, subprocess.CalledProcessError) as error:
    pytest.skip(f"no disk can be mounted here: {error}")
  try:
    yield path
  finally:
    subprocess.run(["umount", "-l", str(path)], check=True)


def change(path: pathlib.Path, option: str) -> None:
  """Changes an option of a mounted disk: "ro" (also for root) or "size=64k"."""
  command = ["mount", "-o", f"remount,{option}", str(path)]
  subprocess.run(command, check=True)
