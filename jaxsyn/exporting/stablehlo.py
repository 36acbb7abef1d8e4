"""--format stablehlo: the whole search as one program, for JAX alone.

  program.stablehlo    of jax.export, for CPU, NVIDIA GPU and TPU, for any number
                       and length of sentences
  model.safetensors    the parameters, its first argument
  jaxsyn.json          names, shapes and types of what it takes and gives
  source.model, target.model    SentencePiece

docs/exporting.md has a script that translates with it. Before this file: `model`.

Letters: L subword of the longest output, EOS included.
"""

from __future__ import annotations

import math
import pathlib
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import traverse_util
from jax import Array
from jax import export as jax_export

from jaxsyn import progress
from jaxsyn.data.loader.columns import pad
from jaxsyn.data.schema import BOS, EOS, PAD, UNK
from jaxsyn.decode.search import DecodeRequest, Decoding, sources_of
from jaxsyn.errors import InputError
from jaxsyn.exporting.model import ExportedModel
from jaxsyn.options import as_dict
from jaxsyn.shapes import split
from jaxsyn.storage import files
from jaxsyn.trained import exported
from jaxsyn.training.sums import named

PAGE, PROGRAM = "jaxsyn.json", "program.stablehlo"
PLATFORMS = ("cpu", "cuda", "tpu")
_LONGEST = "longest_B"  # beside the facts of the batch
_FREE = "BSW"  # axes of any size


def write(model: ExportedModel, folder: pathlib.Path) -> list[str]:
  """Fills the folder.

  Args:
    model: what is exported.
    folder: new and empty.

  Raises:
    InputError: its program cannot be made for sizes that are not known yet.
  """
  arrays = jax.device_get(named(model.parameters.params))
  facts = pad([], model.features, subwords=4, words=4, rows=1)
  inputs = {
    name: {"dtype": str(x.dtype), "axes": split(name)[1]}
    for name, x in facts.items()
  } | {_LONGEST: {"dtype": "int32", "axes": "B"}}
  fixed = {
    letter: size
    for name, x in facts.items()
    for letter, size in zip(split(name)[1], x.shape)
    if letter not in _FREE
  }
  program = _program(model, arrays, inputs, fixed)
  with files.publish(folder / PROGRAM) as file:
    file.write(program)
  with files.publish(folder / exported.ARRAYS) as file:
    file.write(exported.library().save(dict(arrays)))
  for side in ("source", "target"):
    files.copy(model.run.vocabulary(side).path, folder / f"{side}.model")
  decode, data = model.plan.config.decode, model.run.config.data
  page = {
    "parameters": model.title,
    "system": model.run.config.system,
    "source_language": data.source_language,
    "target_language": data.target_language,
    "inputs": inputs,
    "sizes": fixed,
    "outputs": {
      "token_BNL": {"dtype": "int32", "axes": "BNL"},
      "score_BN": {"dtype": "float32", "axes": "BN"},
    },
    "platforms": PLATFORMS,
    "jax": jax.__version__,
    "ids": {"pad": PAD, "unk": UNK, "bos": BOS, "eos": EOS},
    "tag": model.plan.tag,
    "nfc": model.run.manifest["options"]["clean"]["nfc"],
    "decode": as_dict(decode),
  }
  files.write_json(folder / PAGE, page)
  return [model.title]


def _program(
  model: ExportedModel,
  arrays: Mapping[str, np.ndarray],
  inputs: Mapping[str, Any],
  fixed: Mapping[str, int],
) -> bytes:
  """The search, serialised.

  Args:
    model: what is exported.
    arrays: its parameters by name.
    inputs: name -> dtype and axes.
    fixed: sizes of axes that have always the same.
  """
  decode, net = model.plan.config.decode, model.plan.recipe.model
  most = math.ceil(decode.max_length_factor)

  def search(
    params: Mapping[str, Array], inputs: Mapping[str, Array]
  ) -> tuple[Array, Array]:
    id_BS = inputs["source_id_BS"]
    length = most * id_BS.shape[1] + decode.max_length_offset
    decoding = Decoding(net, traverse_util.unflatten_dict(params, sep="/"))
    place_B = jnp.arange(id_BS.shape[0], dtype=jnp.int32)
    sources = sources_of(inputs, DecodeRequest(inputs[_LONGEST], place_B))
    search = decoding.begin(sources, decode, length=length, room=length)
    search = jax.lax.while_loop(
      lambda search: search.open_B.any(),
      lambda search: decode.search.step(decoding, search, decode),
      decode.search.step(decoding, search, decode),
    )
    return search.ended.token_BNT, search.ended.score_BN

  axes = {entry["axes"] for entry in inputs.values()}
  letters = "".join(letter for letter in _FREE if letter in "".join(axes))
  free = jax_export.symbolic_shape(",".join(letters))
  sizes = {**fixed, **dict(zip(letters, free))}
  abstract = {
    name: jax.ShapeDtypeStruct(
      tuple(sizes[letter] for letter in entry["axes"]), entry["dtype"]
    )
    for name, entry in inputs.items()
  }
  # Else the program names source files by their paths on this machine.
  limit = jax.config.jax_traceback_in_locations_limit  # type: ignore[attr-defined]  # JAX adds it at run time
  jax.config.update("jax_traceback_in_locations_limit", 0)
  try:
    with progress.bar("compiling programs", 1, speed=False):
      made = jax_export.export(jax.jit(search), platforms=PLATFORMS)(
        {n: jax.ShapeDtypeStruct(x.shape, x.dtype) for n, x in arrays.items()},
        abstract,
      )
  except Exception as error:  # what JAX raises depends on where it meets one
    said = (str(error).splitlines() or [repr(error)])[0][:200]
    raise InputError(
      f"system {model.run.config.system!r} cannot be exported as one program for "
      f"sentences of any number and length: {type(error).__name__}: {said}. Take "
      "--format safetensors."
    ) from None
  finally:
    jax.config.update("jax_traceback_in_locations_limit", limit)
  try:
    return bytes(made.serialize())
  except ImportError:
    raise InputError(
      "for StableHLO the package flatbuffers is needed: pip install "
      "-e '.[stablehlo]'."
    ) from None
