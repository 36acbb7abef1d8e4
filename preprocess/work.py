"""Pieces of a preparation on their way: files that are whole or are not there.

Each stage of `preprocess.stages` leaves what it makes of a chunk here, under the
key of the input: pieces, then a page of facts that names them. A piece has a
checksum in it and a name of its own, so that what a killed process left, what
another one has written twice, and what a loss of power cut is never taken.
"""

from __future__ import annotations

import dataclasses
import io
import json
import os
import pathlib
import zipfile
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from jaxsyn.errors import InputError
from jaxsyn.storage import checksums, files, remote

_READ_AHEAD = 1 << 16  # bytes that are asked of a store where less is read
_SUM = 8  # hexadecimal digits of a CRC-32C
Facts = dict[str, Any]


@dataclasses.dataclass(frozen=True)
class Work:
  """A folder of pieces.

  Attributes:
    folder: may be on another disk, and seen by other machines.
  """

  folder: pathlib.Path

  def path(self, name: str) -> pathlib.Path:
    # Names of stores, whose paths take them for parts of their own.
    return files.path_of(name) if remote.is_remote(name) else self.folder / name

  def write(self, name: str, data: bytes) -> None:
    """Writes a piece; not at once to the disk, for its checksum would tell."""
    with files.publish(self.path(name), flush=False) as file:
      file.write(data)
      file.write(_sum(name, data))

  def read(self, name: str) -> bytes:
    """A piece.

    Raises:
      InputError: it is not as it was written; it is gone then, and a new run
        makes it anew.
    """
    try:
      data = files.read_bytes(self.path(name))
    except FileNotFoundError:
      data = b""
    return self._verified(name, data)

  def _verified(self, name: str, data: bytes) -> bytes:
    data, stored_sum = data[:-_SUM], data[-_SUM:]
    if stored_sum != _sum(name, data):
      files.remove(self.path(name))
      raise self._changed_error(name)
    return data

  def write_arrays(self, name: str, arrays: Mapping[str, np.ndarray]) -> None:
    self.write(name, _packed(arrays))

  def read_arrays(self, name: str) -> dict[str, np.ndarray]:
    with np.load(io.BytesIO(self.read(name)), allow_pickle=False) as arrays:
      return dict(arrays)

  def write_json(self, name: str, content: Any) -> None:
    """Writes what JSON can say."""
    self.write(name, json.dumps(content, ensure_ascii=False).encode())

  def read_json(self, name: str) -> Any:
    return json.loads(self.read(name))

  def read_array(self, name: str, key: str) -> np.ndarray:
    """One of the arrays of a piece, the others not read; as `read_arrays`."""
    try:
      with (
        files.open_read(self.path(name), _READ_AHEAD) as file,
        np.load(file, allow_pickle=False) as arrays,
      ):
        return arrays[key]
    except (OSError, ValueError, KeyError, zipfile.BadZipFile):
      files.remove(self.path(name))
      raise self._changed_error(name) from None

  def facts(
    self, task: str, sizes: Mapping[str, int] | None = None
  ) -> Facts | None:
    """What a task has told: "facts" and what was "said" to the user.

    Args:
      task: STAGE/NUMBER.
      sizes: bytes of all pieces of its stage, where they are known; else each
        of its pieces is asked for.

    Returns:
      None where it is not done, or a piece of it is missing.
    """
    name = f"{task}.facts"
    if sizes is not None and name not in sizes:
      return None
    try:
      data = files.read_bytes(self.path(name))
      result = json.loads(self._verified(name, data))
    except (FileNotFoundError, InputError):
      return None
    for piece, size in result["pieces"].items():
      try:
        actual_size = (sizes or {}).get(piece) or files.size_of(
          self.path(piece)
        )
      except FileNotFoundError:
        return None
      if actual_size != size:
        return None
    return result

  def all_facts(self, stage: str, numbers: Iterable[int]) -> list[Facts | None]:
    """The `facts` of numbers of a stage."""
    tasks = (f"{stage}/{index}" for index in numbers)
    if remote.is_remote(self.folder):
      # One request a thousand pieces, not one a piece.
      sizes = remote.sizes(self.folder, f"{stage}/")
      return remote.each(lambda task: self.facts(task, sizes), tasks)
    return [self.facts(task) for task in tasks]

  def _changed_error(self, name: str) -> InputError:
    return InputError(
      f"{self.path(name)} changed while it was in use. Run the same command"
      " again: what is whole is used, the rest is made anew."
    )


class Output:
  """What one task makes: pieces, then its facts.

  Attributes:
    work: where to.
    said: lines for the user.
  """

  def __init__(self, work: Work, task: str):
    """Begins a task, of which nothing counts before `finish`."""
    self.work, self._task = work, task
    self._pieces: dict[str, int] = {}
    self.said: list[str] = []

  def write(self, kind: str, data: bytes) -> None:
    """Writes the piece TASK.KIND."""
    name = f"{self._task}.{kind}"
    self.work.write(name, data)
    self._pieces[name] = len(data) + _SUM

  def write_arrays(self, kind: str, arrays: Mapping[str, np.ndarray]) -> None:
    self.write(kind, _packed(arrays))

  def write_json(self, kind: str, content: Any) -> None:
    self.write(kind, json.dumps(content, ensure_ascii=False).encode())

  def add(self, path: str | os.PathLike[str]) -> None:
    """Counts a file that is written among the pieces of the task."""
    name = os.fspath(path)
    self._pieces[name] = files.size_of(self.work.path(name))

  def finish(self, facts: Facts) -> None:
    """Writes the facts: what JSON can say."""
    result = {"facts": facts, "said": self.said, "pieces": self._pieces}
    self.work.write_json(f"{self._task}.facts", result)


def _packed(arrays: Mapping[str, np.ndarray]) -> bytes:
  packed = io.BytesIO()
  np.savez(packed, **arrays)  # type: ignore[arg-type]  # their names
  return packed.getvalue()


def _sum(name: str, data: bytes) -> bytes:
  # With the name: a whole piece may be another's.
  return checksums.crc32c(f"{checksums.crc32c(data)} {name}".encode()).encode()
