"""Directory of an exported model: a run without checkpoints and logs.

  model.safetensors    the parameters
  model.json           description of the checkpoint, SHA-256 of the parameters
  config.json, manifest.json, vocabularies, parser    as in the run directory
  README.md            a model card

It is opened like a run directory, and translates like the run. The library
safetensors (extra "hub") is imported at the first call.
"""

from __future__ import annotations

import dataclasses
import hashlib
import pathlib
from typing import Annotated, Any

import jax
import numpy as np
from flax import traverse_util

from jaxsyn.data.store.manifests import Number
from jaxsyn.errors import InputError
from jaxsyn.models.contract import arrays_by_name
from jaxsyn.options import CHECKPOINT_MODE, ConfigPath, from_config
from jaxsyn.options.bounds import TextPattern
from jaxsyn.scoring import selection
from jaxsyn.session import workdir
from jaxsyn.storage import files
from jaxsyn.training.checkpoint_reader import Parameters, Score

RECORD_FILE = "model.json"
ARRAYS = "model.safetensors"
_FORMAT = 2
_REMEDY = "Fetch it, or export the run, again."


@dataclasses.dataclass(frozen=True)
class _ExportRecord:
  """Content of model.json, which describes an exported checkpoint."""

  format: int
  title: Annotated[str, TextPattern(".+", "a text")]
  steps: tuple[Number, ...]
  sha256: str
  score: Score | None


def is_exported(folder: pathlib.Path) -> bool:
  """Returns whether a directory contains an exported model, even in part."""
  return any(files.is_file(folder / name) for name in (RECORD_FILE, ARRAYS))


def write(folder: pathlib.Path, parameters: Parameters) -> str:
  """Writes parameters to a local directory; returns the SHA-256 of their file.

  Args:
    folder: Local directory.
    parameters: Parameters of a checkpoint, with its description.
  """
  arrays = jax.device_get(arrays_by_name(parameters.params))
  data = library().save(
    {name: np.ascontiguousarray(x) for name, x in arrays.items()},
    metadata={"format": "jaxsyn"},  # more keys would be in random order
  )
  with files.publish(folder / ARRAYS) as file:
    file.write(data)
  digest = hashlib.sha256(data).hexdigest()
  record = {
    "format": _FORMAT,
    "title": parameters.title,
    "steps": list(parameters.steps),
    "score": parameters.score,
    "sha256": digest,
  }
  workdir.write_record(folder / RECORD_FILE, record)
  return digest


def read(folder: pathlib.Path, abstract: Any, checkpoint: str) -> Parameters:
  """Reads the parameters of an exported model.

  Args:
    folder: Directory of the model, local or on an object store.
    abstract: Shapes of the model's parameters.
    checkpoint: Requested checkpoint, "best", "last" or a step; "": any.

  Raises:
    InputError: The model is corrupt, of another version, or of another
      architecture, or it is not the requested checkpoint.
  """
  load = library().load  # the first error, if it is not installed
  record = _read_record(folder / RECORD_FILE)
  content = _read_content(folder / ARRAYS, record["sha256"])
  try:
    arrays = load(content)
  except Exception as error:  # SafetensorError, which is not public
    raise _corrupt_error(folder / ARRAYS, str(error)) from None
  if checkpoint and [checkpoint] != [str(step) for step in record["steps"]]:
    raise InputError(
      f"{folder} is an exported model and holds {record['title']}; no other "
      f"checkpoint ({checkpoint!r}) can be chosen."
    )
  wanted = {name: x.shape for name, x in arrays_by_name(abstract).items()}
  if {name: x.shape for name, x in arrays.items()} != wanted:
    raise _corrupt_error(
      folder / ARRAYS, "it is of another model than config.json"
    )
  return Parameters(
    jax.device_put(
      traverse_util.unflatten_dict(arrays, sep="/"), jax.local_devices()[0]
    ),
    tuple(record["steps"]),
    score=record["score"],
    title=record["title"],
  )


def library() -> Any:
  """Imports safetensors.numpy; raises InputError if it is not installed."""
  try:
    from safetensors import numpy
  except ImportError:
    raise InputError(
      "exported models need the package safetensors: pip install -e '.[hub]'."
    ) from None
  return numpy


def _read_record(path: pathlib.Path) -> dict[str, Any]:
  record = workdir.read_record(path, _REMEDY)
  try:
    if record.get("format") != _FORMAT:
      raise ValueError(
        f"its format is {record.get('format')!r:.80}; this version reads "
        f"{_FORMAT}"
      )
    from_config(_ExportRecord, record, ConfigPath(RECORD_FILE), CHECKPOINT_MODE)
    if not record["steps"]:
      raise ValueError("steps is empty")
    if record["score"] is not None:
      selection.check(record["score"]["selection"])
  except ValueError as error:
    raise _corrupt_error(path, str(error)) from None
  return record


def _read_content(path: pathlib.Path, sha256: str) -> bytes:
  """Returns the content of the file of parameters; checks its SHA-256."""
  try:
    data = files.read_bytes(path)
  except OSError as error:
    raise _corrupt_error(path, str(error)) from None
  if hashlib.sha256(data).hexdigest() != sha256:
    raise _corrupt_error(path, f"its SHA-256 is not that in {RECORD_FILE}")
  return data


def _corrupt_error(path: pathlib.Path, why: str) -> InputError:
  return InputError(f"{path} is corrupt ({why.rstrip('.')}). {_REMEDY}")
