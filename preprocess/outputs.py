"""Output files of preparation tasks, written atomically and with checksums.

A task is one step of the work, named STAGE/NUMBER. It writes one file of named
parts (bytes, arrays or JSON) and a result, a small JSON object. The file
appears atomically, in a folder named by a hash of the input. A task is done if
its file exists, and any process may run it again at any time.

The parts and the header of the file have checksums, so incomplete files of a
killed process or after a loss of power are never used.
"""

from __future__ import annotations

import dataclasses
import io
import json
import os
import pathlib
from collections.abc import Iterable, Mapping
from typing import IO, Any

import numpy as np

from jaxsyn.errors import InputError
from jaxsyn.storage import checksums, files, remote

# Part of the folder's name. Increase it when the content of output files changes, so
# that unfinished work of an older version is done again.
FORMAT = 3
_READ_AHEAD = 1 << 16  # bytes in a request to an object store
_DIGITS = 8  # hexadecimal digits of a length or of a CRC-32C
_TAIL = 1 << 12  # bytes that mostly hold the header
Result = dict[str, Any]


@dataclasses.dataclass(frozen=True)
class Header:
  """Metadata of a task's output file: its result, and offsets of its parts.

  Attributes:
    result: result of the task.
    messages: lines to print for the user.
    parts: name of a part -> offset, size and CRC-32C.
    files: name of each further file that the task wrote -> its size, and its
      CRC-32C or "".
  """

  result: Result
  messages: list[str]
  parts: dict[str, tuple[int, int, str]]
  files: dict[str, tuple[int, str]]


@dataclasses.dataclass(frozen=True)
class Outputs:
  """A folder of output files, one for each finished preparation task.

  Attributes:
    folder: path of the folder, maybe on another disk or on an object store.
  """

  folder: pathlib.Path

  def path(self, name: str) -> pathlib.Path:
    # A path on an object store would append another address to its own.
    return files.path_of(name) if remote.is_remote(name) else self.folder / name

  def read(self, task: str, part: str) -> bytes:
    """Returns the bytes of a named part in a finished task's output file.

    Raises:
      InputError: the file is corrupt; it is removed, and the next run repeats
        the task.
    """
    try:
      with files.open_read(self.path(task), _READ_AHEAD) as file:
        offset, size, crc = _read_header(file, task).parts[part]
        file.seek(offset)
        data = file.read(size)
    except (OSError, ValueError, LookupError):
      raise self._corrupt(task) from None
    if checksums.crc32c(data) != crc:
      raise self._corrupt(task)
    return data

  def read_json(self, task: str, part: str) -> Any:
    return json.loads(self.read(task, part))

  def read_arrays(self, task: str, part: str) -> dict[str, np.ndarray]:
    data = io.BytesIO(self.read(task, part))
    with np.load(data, allow_pickle=False) as arrays:
      return dict(arrays)

  def result(self, task: str) -> Result:
    """Returns the result of a finished task.

    Raises:
      InputError: The output file is missing or corrupt.
    """
    try:
      return self.header(task).result
    except (OSError, ValueError):
      raise self._corrupt(task) from None

  def finished(self, task: str, deep: bool = False) -> Header | None:
    """Returns the output file header of a task, None if the task must run.

    Args:
      task: name of the task.
      deep: whether to compare checksums of further files, not only sizes. If
        one differs, the output file is removed, so that the task runs again.
    """
    try:
      header = self.header(task)
      for name, (size, crc) in header.files.items():
        path = self.path(name)
        if files.size_of(path) != size:
          return None
        if deep and crc and checksums.crc_of(path) != crc:
          print(f"corrupt: {path} is made again", flush=True)
          files.remove(self.path(task))
          return None
    except (OSError, ValueError):  # absent or corrupt
      return None
    return header

  def all_finished(
    self, tasks: Iterable[str], deep: bool = False
  ) -> list[Header | None]:
    """Returns the output file header of each task, None if a task must run.

    Args:
      tasks: names of the tasks.
      deep: as of `finished`. An object store has checksums of its own.
    """
    if remote.is_remote(self.folder):
      return remote.each(self.finished, tasks)
    return [self.finished(task, deep) for task in tasks]

  def header(self, task: str) -> Header:
    """Reads the header of a task's output file.

    Raises:
      OSError: the file does not exist.
      ValueError: the file is corrupt.
    """
    with files.open_read(self.path(task), _READ_AHEAD) as file:
      return _read_header(file, task)

  def write_summary(self, stage: str, summary: Mapping[str, Any]) -> None:
    """Writes the summary of a stage, combined from the results of its tasks."""
    out = TaskOutput(self, _summary_task(stage))
    out.finish(dict(summary))

  def summary(self, stage: str) -> Result:
    """Returns the summary of a finished stage; raises the errors of `read`."""
    return self.result(_summary_task(stage))

  def _corrupt(self, task: str) -> InputError:
    files.remove(self.path(task))
    return InputError(
      f"{self.path(task)} changed while it was in use. Run the same command"
      " again: what is complete is used, the rest is made again."
    )


def _read_header(file: IO[bytes], task: str) -> Header:
  """Reads the header at the end of an output file.

  Raises:
    ValueError: the header is corrupt.
  """
  size = file.seek(0, os.SEEK_END)
  file.seek(max(0, size - _TAIL))
  tail = file.read()
  length, crc = int(tail[-2 * _DIGITS : -_DIGITS], 16), tail[-_DIGITS:]
  if length + 2 * _DIGITS > len(tail):
    file.seek(max(0, size - 2 * _DIGITS - length))
    tail = file.read()
  data = tail[-2 * _DIGITS - length : -2 * _DIGITS]
  if _header_crc(task, data) != crc:
    raise ValueError("the checksum of the header differs")
  return Header(**json.loads(data))


def _header_crc(task: str, data: bytes) -> bytes:
  # The task's name is included, to detect a complete file of another task.
  named = f"{checksums.crc32c(data)} {task}".encode()
  return checksums.crc32c(named).encode()


def _summary_task(stage: str) -> str:
  return f"summaries/{stage}"


class TaskOutput:
  """Writer of a task's output file, which collects its named parts first.

  Attributes:
    outputs: folder of the output file.
    messages: lines to print for the user.
  """

  def __init__(self, outputs: Outputs, task: str):
    self.outputs, self.messages = outputs, list[str]()
    self._task, self._size = task, 0
    self._parts: dict[str, bytes] = {}
    self._files: dict[str, tuple[int, str]] = {}

  def write(self, part: str, data: bytes) -> None:
    """Adds a named part to the output file."""
    self._parts[part] = data

  def write_arrays(self, part: str, arrays: Mapping[str, np.ndarray]) -> None:
    packed = io.BytesIO()
    np.savez(packed, **arrays)  # type: ignore[arg-type]  # their names
    self.write(part, packed.getvalue())

  def write_json(self, part: str, content: Any) -> None:
    self.write(part, json.dumps(content, ensure_ascii=False).encode())

  def add_file(self, path: str | os.PathLike[str], crc: str = "") -> None:
    """Adds a further file that must exist for the task to count as finished.

    Args:
      path: path of the file.
      crc: its CRC-32C; "" if whoever reads the file verifies it.
    """
    name = os.fspath(path)
    self._files[name] = files.size_of(self.outputs.path(name)), crc

  def finish(self, result: Result) -> None:
    """Writes the output file with all parts and the result of the task."""
    table, offset = {}, 0
    for name, data in self._parts.items():
      table[name] = (offset, len(data), checksums.crc32c(data))
      offset += len(data)
    header = Header(result, self.messages, table, self._files)
    data = json.dumps(dataclasses.asdict(header), ensure_ascii=False).encode()
    # No wait for the disk: the checksums detect lost data.
    with files.publish(self.outputs.path(self._task), flush=False) as file:
      for part in self._parts.values():
        file.write(part)
      file.write(data)
      file.write(f"{len(data):0{_DIGITS}x}".encode())
      file.write(_header_crc(self._task, data))
