"""Small disks of their own for tests: full ones, and such as are read-only."""

from __future__ import annotations

import contextlib
import pathlib
import subprocess
from collections.abc import Iterator

import pytest


@contextlib.contextmanager
def disk(path: pathlib.Path, size: str) -> Iterator[pathlib.Path]:
  """A file system in memory; a skip where mounting is not allowed.

  Args:
    path: folder where it is mounted; made.
    size: "64k", "1m".
  """
  path.mkdir()
  command = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(path)]
  try:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    output = done.stderr.strip()
  except FileNotFoundError as error:
    done, output = None, str(error)
  if done is None or done.returncode:
    pytest.skip(f"no disk can be mounted here: {output}")
  try:
    yield path
  finally:
    subprocess.run(["umount", "-l", str(path)], check=True)


def read_only(path: pathlib.Path) -> None:
  """Makes a mounted disk read-only, for root too."""
  change(path, "ro")


def change(path: pathlib.Path, option: str) -> None:
  """Mounts a disk again with another option: "ro", "rw", "size=64k"."""
  command = ["mount", "-o", f"remount,{option}", str(path)]
  subprocess.run(command, check=True)
