"""The folder of an exported model: a run without its training.

  model.safetensors    the parameters to translate with
  model.json           which these are, and the sum of each; sealed
  config.json, manifest.json, vocabularies, parser    as in the run's folder
  README.md            a model card

Who opens it as a run (`workdir.open_run`) translates as with the run.
Before this file: `jaxsyn.training.array_checksums`. After it: `parameters`, which reads it,
and `jaxsyn.exporting`, which writes it. The library safetensors (extra "hub") is
imported at the first call.
"""

from __future__ import annotations

import dataclasses
import pathlib
from typing import Annotated, Any

import jax
import numpy as np
from flax import traverse_util

from jaxsyn.data.store.manifests import Number
from jaxsyn.errors import InputError
from jaxsyn.options import CHECKPOINT_MODE, ConfigPath, from_config
from jaxsyn.options.bounds import TextPattern
from jaxsyn.storage import checksums, files
from jaxsyn.training import array_checksums
from jaxsyn.training.checkpoint_reader import Parameters, Score

RECORD_FILE = "model.json"
ARRAYS = "model.safetensors"
_FORMAT = 1


@dataclasses.dataclass(frozen=True)
class _ExportRecord:
  """Types of the JSON file."""

  format: int
  title: Annotated[str, TextPattern(".+", "a text")]
  steps: tuple[Number, ...]
  arrays: dict[str, array_checksums.ArrayChecksums]
  score: Score | None


def is_exported(folder: pathlib.Path) -> bool:
  """Whether a folder is one of an exported model."""
  return files.is_file(folder / RECORD_FILE)


def write(folder: pathlib.Path, parameters: Parameters, title: str) -> str:
  """Writes parameters; returns the SHA-256 of their file.

  Args:
    folder: a local one.
    parameters: the parameters.
    title: which they are, in words.
  """
  arrays = jax.device_get(array_checksums.arrays_by_name(parameters.params))
  data = library().save(
    {name: np.ascontiguousarray(x) for name, x in arrays.items()},
    metadata={"format": "jaxsyn"},  # of several the order would be random
  )
  with files.publish(folder / ARRAYS) as file:
    file.write(data)
  record = {
    "format": _FORMAT,
    "title": title,
    "steps": list(parameters.steps),
    "score": parameters.score,
    "arrays": array_checksums.start_checksums(parameters.params)(),
  }
  files.write_json(folder / RECORD_FILE, checksums.add_checksum(record))
  return checksums.sha256_of(folder / ARRAYS)


def read(folder: pathlib.Path, abstract: Any, checkpoint: str) -> Parameters:
  """The parameters of an exported model.

  Args:
    folder: of it, here or on a store.
    abstract: shapes of the model's parameters.
    checkpoint: that was asked for, by name or step; "": what there is.

  Raises:
    InputError: it is corrupt, of another version or model, or has not that
      checkpoint.
  """
  numpy = library()
  record_file, array_file = folder / RECORD_FILE, folder / ARRAYS
  try:
    record = checksums.verify_checksum(files.read_json(record_file))
    if record.get("format") != _FORMAT:
      raise ValueError(
        f"its format is {record.get('format')!r:.80}; this version reads {_FORMAT}"
      )
    from_config(_ExportRecord, record, ConfigPath(RECORD_FILE), CHECKPOINT_MODE)
    if not record["steps"]:
      raise ValueError("steps is empty")
  except (OSError, ValueError) as error:
    raise _corrupt_error(record_file, str(error)) from None
  try:
    arrays = numpy.load(files.read_bytes(array_file))
  except OSError as error:
    raise _corrupt_error(array_file, str(error)) from None
  except Exception as error:
    # SafetensorError is derived from Exception alone, and not public.
    if not type(error).__module__.startswith("safetensors"):
      raise
    raise _corrupt_error(array_file, str(error)) from None
  steps = [str(step) for step in record["steps"]]
  if checkpoint and [checkpoint] != steps:
    raise InputError(
      f"{folder} is an exported model and holds {record['title']}; no other "
      f"checkpoint ({checkpoint!r}) can be chosen."
    )
  wanted = {
    name: x.shape
    for name, x in array_checksums.arrays_by_name(abstract).items()
  }
  if {name: x.shape for name, x in arrays.items()} != wanted:
    raise _corrupt_error(array_file, "it is of another model than config.json")
  if set(record["arrays"]) != set(arrays):
    raise _corrupt_error(array_file, f"{RECORD_FILE} lists other arrays")
  tree = traverse_util.unflatten_dict(arrays, sep="/")
  if difference := array_checksums.first_difference(tree, record["arrays"]):
    raise _corrupt_error(array_file, difference)
  params = jax.device_put(tree, jax.local_devices()[0])
  return Parameters(
    params, tuple(record["steps"]), score=record["score"], title=record["title"]
  )


def _corrupt_error(path: pathlib.Path, why: str) -> InputError:
  return InputError(
    f"{path} is corrupt ({why.rstrip('.')}). Fetch it, or export the run, again."
  )


def library() -> Any:
  try:
    from safetensors import numpy
  except ImportError:
    raise InputError(
      "for safetensors the package of that name is needed: pip install "
      "-e '.[hub]'."
    ) from None
  return numpy
