"""Metadata of a checkpoint: its content, its arrays, and checksums of their files.

Orbax does not notice when a bit of an array changes in a file. It therefore writes
the metadata as one more item of a checkpoint, once the arrays are complete.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Annotated, Any

import orbax.checkpoint as ocp
from etils import epath

from jaxsyn.data.store.manifests import File
from jaxsyn.models.contract import arrays_by_name
from jaxsyn.options.bounds import TextPattern
from jaxsyn.storage import checksums, files, remote

ITEM, NAME = "metadata", "metadata.json"
FILE = f"{ITEM}/{NAME}"  # below the directory of a checkpoint
_FilePath = Annotated[
  str,
  TextPattern(
    r"[\w.-]*[\w-][\w.-]*(/[\w.-]*[\w-][\w.-]*)*", "a file of the checkpoint"
  ),
]


@dataclasses.dataclass(frozen=True)
class Metadata:
  """Content of metadata.json.

  Attributes:
    content: Progress of the run, or the scores of the best parameters.
    arrays: Name of an array -> its type and shape, such as "float32 (8, 512)".
    files: Path of a file of the arrays -> its size and checksum.
  """

  content: dict[str, Any]
  arrays: dict[str, str]
  files: dict[_FilePath, File]


def array_formats(tree: Any) -> dict[str, str]:
  """Returns the type and shape of each array, such as "float32 (8, 512)"."""
  return {
    name: f"{leaf.dtype} {tuple(leaf.shape)}"
    for name, leaf in arrays_by_name(tree).items()
  }


class MetadataHandler(ocp.AsyncCheckpointHandler):  # type: ignore[misc]  # no types
  """Orbax handler that writes the metadata.

  It must be registered after the handler of the arrays, whose files it reads.
  """

  _args: Any = None  # of the checkpoint that is being written

  async def async_save(self, directory: epath.Path, args: MetadataSave) -> None:
    """Keeps the arguments until `finalize`, when all arrays are written."""
    self._args = args

  def save(self, directory: epath.Path, args: MetadataSave) -> None:
    """Does the same as `async_save`."""
    self._args = args

  def restore(self, directory: epath.Path, args: Any = None) -> Any:
    """Returns the metadata without checking it."""
    return files.read_json(directory.parent / FILE)

  def finalize(self, directory: epath.Path) -> None:
    """Writes the metadata, and flushes the checkpoint to the disk.

    Orbax calls it in the main process when all processes have written their arrays,
    before it gives the checkpoint its final name.
    """
    checkpoint, item = directory.parent, self._args.item
    names = [f"{item}/{name}" for name in files.names(checkpoint / item)]
    metadata = {
      "content": self._args.content,
      "arrays": self._args.arrays,
      "files": checksums.file_checksums(checkpoint, names),
    }
    files.write_json(directory / NAME, checksums.add_checksum(metadata))
    if not remote.is_remote(checkpoint):
      files.flush_tree(checkpoint)


@ocp.args.register_with_handler(MetadataHandler, for_save=True)
@dataclasses.dataclass
class MetadataSave(ocp.args.CheckpointArgs):  # type: ignore[misc]  # no types
  """Arguments of `MetadataHandler`.

  Attributes:
    item: Name of the arrays in the checkpoint.
    content: Content of the metadata, see `Metadata`.
    arrays: Types and shapes of the arrays, see `Metadata`.
  """

  item: str
  content: Mapping[str, Any]
  arrays: Mapping[str, str]
