"""The folder of an exported model: a run without its training.

  model.safetensors    the parameters to translate with
  model.json           which these are, and the sum of each; sealed
  config.json, manifest.json, vocabularies, parser    as in the run's folder
  README.md            a model card

Who opens it as a run (`workdir.open_run`) translates as with the run.
Before this file: `jaxsyn.training.sums`. After it: `parameters`, which reads it,
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

from jaxsyn.data.store.manifest_format import Number
from jaxsyn.errors import InputError
from jaxsyn.options import MEASURED, At, from_config
from jaxsyn.options.bounds import Text
from jaxsyn.storage import checksums, files
from jaxsyn.training import sums
from jaxsyn.training.reader import Parameters, Score

PAGE = "model.json"
ARRAYS = "model.safetensors"
_FORMAT = 1


@dataclasses.dataclass(frozen=True)
class _Page:
  """Types of the JSON file."""

  format: int
  title: Annotated[str, Text(".+", "a text")]
  steps: tuple[Number, ...]
  arrays: dict[str, sums.ArraySums]
  score: Score | None


def is_exported(folder: pathlib.Path) -> bool:
  """Whether a folder is one of an exported model."""
  return files.is_file(folder / PAGE)


def write(folder: pathlib.Path, found: Parameters, title: str) -> str:
  """Writes parameters; returns the SHA-256 of their file.

  Args:
    folder: a local one.
    found: the parameters.
    title: which they are, in words.
  """
  arrays = jax.device_get(sums.named(found.params))
  data = library().save(
    {name: np.ascontiguousarray(x) for name, x in arrays.items()},
    metadata={"format": "jaxsyn"},  # of several the order would be random
  )
  with files.publish(folder / ARRAYS) as file:
    file.write(data)
  page = {
    "format": _FORMAT,
    "title": title,
    "steps": list(found.steps),
    "score": found.score,
    "arrays": sums.held(found.params)(),
  }
  files.write_json(folder / PAGE, checksums.sealed(page))
  return checksums.sha256_of(folder / ARRAYS)


def read(folder: pathlib.Path, abstract: Any, checkpoint: str) -> Parameters:
  """The parameters of an exported model.

  Args:
    folder: of it, here or on a store.
    abstract: shapes of the model's parameters.
    checkpoint: that was asked for, by name or step; "": what there is.

  Raises:
    InputError: it is damaged, of another version or model, or has not that
      checkpoint.
  """
  numpy = library()
  try:
    page = checksums.unsealed(files.read_json(folder / PAGE))
    if page.get("format") != _FORMAT:
      raise ValueError(
        f"its format is {page.get('format')!r:.80}; this version reads {_FORMAT}"
      )
    from_config(_Page, page, At(PAGE), MEASURED)
    if not page["steps"]:
      raise ValueError(f"{PAGE}.steps is empty")
    arrays = numpy.load(files.read_bytes(folder / ARRAYS))
  except (OSError, ValueError) as error:
    raise _damaged(folder, str(error).rstrip(".")) from None
  except Exception as error:  # SafetensorError is none of these
    if not type(error).__module__.startswith("safetensors"):
      raise
    raise _damaged(folder, f"{ARRAYS}: {error}") from None
  there = [str(step) for step in page["steps"]]
  if checkpoint and [checkpoint] != there:
    raise InputError(
      f"{folder} is an exported model and holds {page['title']}; no other "
      f"checkpoint ({checkpoint!r}) can be chosen."
    )
  wanted = {name: x.shape for name, x in sums.named(abstract).items()}
  if {name: x.shape for name, x in arrays.items()} != wanted:
    raise _damaged(folder, f"{ARRAYS} is of another model than config.json")
  if set(page["arrays"]) != set(arrays):
    raise _damaged(folder, f"{ARRAYS} has other arrays than {PAGE}")
  tree = traverse_util.unflatten_dict(arrays, sep="/")
  if difference := sums.differing(tree, page["arrays"]):
    raise _damaged(folder, difference)
  params = jax.device_put(tree, jax.local_devices()[0])
  return Parameters(
    params, tuple(page["steps"]), score=page["score"], title=page["title"]
  )


def _damaged(folder: pathlib.Path, why: str) -> InputError:
  return InputError(
    f"{folder} is damaged ({why}). Fetch it, or export the run, again."
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
