"""Writes the output files of preparation tasks atomically with checksums.

A task is one step of the work, named STAGE/NUMBER. It writes one file of named
parts (bytes, arrays or JSON) and a result, a small JSON object. The file
appears atomically, in a folder named by a hash of the input. A task is done if
its file exists, and any process may run it again at any time.

The file is a zip archive. Its member TASK/PART has the bytes of a part and
their CRC, so incomplete files of a killed process or after a loss of power, and
files of other tasks, are never used.
"""

from __future__ import annotations

import contextlib
import dataclasses
import io
import json
import os
import pathlib
import zipfile
import zlib
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from jaxsyn.errors import InputError
from jaxsyn.storage import checksums, files, remote

# Part of the folder's name. Increase it when the content of output files
# changes, so that unfinished work of an older version is done again.
FORMAT = 5
_READ_AHEAD = 1 << 16  # bytes in a request to an object store
_HEADER = "header"
# Errors of reading a file that is missing or corrupt.
_UNREADABLE = (
  OSError,
  EOFError,
  ValueError,
  LookupError,
  RuntimeError,
  zipfile.BadZipFile,
  zlib.error,
)

Result = dict[str, Any]
Counts = dict[str, dict[str, int]]  # numbers by group and name


@dataclasses.dataclass
class Header:
  """Header of an output file: the task's result, messages and other files.

  Attributes:
    result: Result of the task.
    messages: Lines to print for the user.
    files: Name of each other file -> its size, and its CRC-32C.
  """

  result: Result = dataclasses.field(default_factory=dict)
  messages: list[str] = dataclasses.field(default_factory=list)
  files: dict[str, tuple[int, str]] = dataclasses.field(default_factory=dict)


class TaskOutput:
  """Writer of a task's output file.

  Attributes:
    header: Result, messages and other files of the task.
  """

  def __init__(self, archive: zipfile.ZipFile, task: str):
    self.header = Header()
    self._archive, self._task = archive, task

  def write(self, part: str, data: bytes) -> None:
    """Adds a named part to the output file."""
    self._archive.writestr(zipfile.ZipInfo(f"{self._task}/{part}"), data)

  def write_array(self, part: str, array: np.ndarray) -> None:
    packed = io.BytesIO()
    np.save(packed, array, allow_pickle=False)
    self.write(part, packed.getvalue())

  def write_json(self, part: str, content: Any) -> None:
    self.write(part, json.dumps(content, ensure_ascii=False).encode())

  def add_message(self, message: str) -> None:
    """Adds a line to print for the user when the task is done."""
    self.header.messages.append(message)

  def add_file(self, path: str | os.PathLike[str], crc: str) -> None:
    """Registers another file that must exist for the task to count as finished.

    Args:
      path: Path of the file.
      crc: CRC-32C of the file.
    """
    self.header.files[os.fspath(path)] = files.size_of(path), crc


@dataclasses.dataclass(frozen=True)
class Outputs:
  """A folder of output files, one for each finished preparation task.

  Attributes:
    folder: Path of the folder, maybe on another disk or on an object store.
  """

  folder: pathlib.Path

  def path(self, task: str) -> pathlib.Path:
    return self.folder / task

  @contextlib.contextmanager
  def new(self, task: str) -> Iterator[TaskOutput]:
    """Opens a task's output file, published if the `with` block succeeds."""
    # No wait for the disk: the checksums detect lost data.
    with (
      files.publish(self.path(task), flush=False) as file,
      zipfile.ZipFile(file, "w") as archive,
    ):
      output = TaskOutput(archive, task)
      yield output
      output.write_json(_HEADER, vars(output.header))

  def read(self, task: str, part: str) -> bytes:
    """Returns the bytes of a named part of a finished task's output.

    Raises:
      InputError: The file is corrupt; it is removed, and the next run repeats
        the task.
    """
    try:
      return self._read(task, part)
    except _UNREADABLE:
      files.remove(self.path(task))
      raise InputError(
        f"{self.path(task)} changed while it was in use. Run the same command"
        " again: it keeps complete files and rebuilds the others."
      ) from None

  def _read(self, task: str, part: str) -> bytes:
    with (
      files.open_read(self.path(task), _READ_AHEAD) as file,
      zipfile.ZipFile(file) as archive,
    ):
      return archive.read(f"{task}/{part}")

  def read_json(self, task: str, part: str) -> Any:
    return json.loads(self.read(task, part))

  def read_array(self, task: str, part: str) -> np.ndarray:
    return np.load(io.BytesIO(self.read(task, part)), allow_pickle=False)

  def result(self, task: str) -> Result:
    """Returns the result of a finished task; InputError if it is corrupt."""
    return self.read_json(task, _HEADER)["result"]

  def finished(self, task: str, deep: bool = False) -> Header | None:
    """Returns the header of a task's output, or None if the task must run.

    Args:
      task: Name of the task.
      deep: Whether to compare checksums of other files, not only sizes. If one
        differs, the output file is removed, so that the task runs again.
    """
    try:
      header = Header(**json.loads(self._read(task, _HEADER)))
      for name, (size, crc) in header.files.items():
        path = files.path_of(name)
        if files.size_of(path) != size:
          return None
        if deep and checksums.crc_of(path) != crc:
          print(f"corrupt: {path}; rebuilding it", flush=True)
          files.remove(self.path(task))
          return None
    except _UNREADABLE:
      return None
    return header

  def all_finished(
    self, tasks: Iterable[str], deep: bool = False
  ) -> list[Header | None]:
    """Returns the header of each task's output; None for unfinished tasks.

    Args:
      tasks: Names of the tasks.
      deep: Whether to compare checksums, as in `finished`; without effect on
        object stores, which have checksums of their own.
    """
    if remote.is_remote(self.folder):
      return remote.each(self.finished, tasks)
    return [self.finished(task, deep) for task in tasks]

  def summary(self, stage: str) -> Result:
    """Returns the summary of a finished stage; InputError if it is corrupt."""
    return self.result(f"summaries/{stage}")


def add_counts(parts: Iterable[Mapping[str, Mapping[str, int]]]) -> Counts:
  """Adds up numbers by group and name, such as those of several chunks."""
  total: Counts = {}
  for part in parts:
    for group, numbers in part.items():
      of_group = total.setdefault(group, {})
      for name, number in numbers.items():
        of_group[name] = of_group.get(name, 0) + number
  return total
