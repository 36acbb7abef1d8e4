"""Export format "ctranslate2": a model that runs without Python.

CTranslate2 supports pre-norm and post-norm Transformers without modifiers that are
active in translation. In addition to its own files, the folder has the SentencePiece
models, and jaxsyn.json with the decoding options of the run.
"""

from __future__ import annotations

import functools
import pathlib
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxsyn.arrays.sinusoids import sinusoids
from jaxsyn.data.schema import BOS, EOS, SPECIAL, UNK
from jaxsyn.errors import InputError
from jaxsyn.exporting import ExportedModel
from jaxsyn.models.contract import arrays_by_name
from jaxsyn.models.transformer import Transformer
from jaxsyn.options import as_dict
from jaxsyn.plan import PLACES
from jaxsyn.session import matching
from jaxsyn.storage import files

RECORD_FILE = "jaxsyn.json"
POSITIONS = 1024  # maximum input length of CTranslate2
_ACTIVATIONS = {"relu": "RELU", "gelu": "GELUTanh"}  # jax.nn.gelu uses tanh
_SIDES = ("source", "target")

Arrays = Mapping[str, np.ndarray]


def write(model: ExportedModel, folder: pathlib.Path) -> list[str]:
  """Writes the model into a new folder; returns messages for the user.

  Raises:
    InputError: CTranslate2 does not support the model, or is not installed.
  """
  reason = _unsupported(model)
  if reason:
    raise InputError(
      f"CTranslate2 does not support {model.run.workdir}: {reason}. Use --format "
      "safetensors."
    )
  try:
    from ctranslate2 import specs
  except ImportError:
    raise InputError(
      "this format needs the package ctranslate2: pip install -e "
      "'.[ctranslate2]'."
    ) from None
  spec, run = model.run.plan.spec, model.run
  family = spec.architecture
  arrays = {
    name: np.asarray(x, np.float32)
    for name, x in jax.device_get(
      arrays_by_name(model.parameters.params)
    ).items()
  }
  out = specs.TransformerSpec.from_config(
    (family.encoder_layers, family.decoder_layers),
    family.heads,
    pre_norm=family.norm == "pre",
    activation=specs.common_spec.Activation[_ACTIVATIONS[family.activation]],
  )
  _fill_stack(out.encoder, arrays, "encoder")
  _fill_stack(out.decoder, arrays, "decoder")
  table = arrays["target_table/embedding"]
  source_table = arrays.get("source_table/embedding", table)
  out.encoder.embeddings[0].weight = source_table
  out.decoder.embeddings.weight = table
  if "output/kernel" in arrays:
    _fill_dense(out.decoder.projection, arrays, "output")
  else:
    out.decoder.projection.weight = table
  position_MD = np.zeros((POSITIONS, spec.model.width), np.float32)
  if family.positions:
    position_MD = np.asarray(sinusoids(jnp.arange(POSITIONS), spec.model.width))
  for stack in (out.encoder, out.decoder):
    stack.position_encodings.encodings = position_MD
  tokens = functools.partial(
    matching.tokens, run.plan, run.manifest, run.workdir
  )
  out.register_source_vocabulary([*tokens("source")])
  out.register_target_vocabulary([*tokens("target")])
  out.config.bos_token, out.config.eos_token = SPECIAL[BOS], SPECIAL[EOS]
  out.config.unk_token = SPECIAL[UNK]
  out.config.decoder_start_token = SPECIAL[BOS]
  out.config.add_source_eos = True
  out.config.add_source_bos = False
  out.config.layer_norm_epsilon = 1e-5
  out.validate()
  out.optimize()
  out.save(str(folder))
  for side in _SIDES:
    files.copy(run.vocabulary(side).path, folder / f"{side}.model")
  record = {
    "parameters": model.parameters.title,
    "system": run.config.system,
    "source_language": run.config.data.source_language,
    "target_language": run.config.data.target_language,
    "positions": POSITIONS,
    "decode": as_dict(run.plan.config.decode),
  }
  files.write_json(folder / RECORD_FILE, record)
  return [model.parameters.title]


def _unsupported(model: ExportedModel) -> str:
  """Returns the reason why CTranslate2 cannot run a model, or ""."""
  spec, run = model.run.plan.spec, model.run
  if type(spec.architecture) is not Transformer:
    return "it is not a Transformer (config.model.family)"
  for place in PLACES:
    for name, _ in spec.modifiers.modifiers_in(place):
      return (
        f"the attention modifier config.parts.{place}.{name} is active in "
        "translation"
      )
  if run.plan.tag is not None:
    return "the system adds a tag to every source"
  if any(run.vocabulary(side).whole_words for side in _SIDES):
    return "it has a vocabulary of words instead of subwords"
  return ""


def _fill_stack(spec: Any, arrays: Arrays, stack: str) -> None:
  """Copies all layers of the encoder or decoder to CTranslate2 layers."""
  linears = functools.partial(_fill_heads, arrays=arrays)
  for i, layer in enumerate(spec.layer):
    name = f"{stack}_{i}"
    attention = layer.self_attention
    linears(attention.linear[0], f"{name}/attention", ("query", "key", "value"))
    _fill_dense(attention.linear[1], arrays, f"{name}/attention/output")
    _fill_norm(attention.layer_norm, arrays, f"{name}/around_attention/norm")
    if stack == "decoder":
      cross = layer.attention
      linears(cross.linear[0], f"{name}/cross", ("query",))
      linears(cross.linear[1], f"{name}/cross", ("key", "value"))
      _fill_dense(cross.linear[2], arrays, f"{name}/cross/output")
      _fill_norm(cross.layer_norm, arrays, f"{name}/around_cross/norm")
    _fill_dense(layer.ffn.linear_0, arrays, f"{name}/feed_forward/inner")
    _fill_dense(layer.ffn.linear_1, arrays, f"{name}/feed_forward/outer")
    _fill_norm(layer.ffn.layer_norm, arrays, f"{name}/around_feed_forward/norm")
  if f"{stack}_norm/scale" in arrays:
    _fill_norm(spec.layer_norm, arrays, f"{stack}_norm")


def _fill_heads(
  spec: Any, name: str, projections: tuple[str, ...], arrays: Arrays
) -> None:
  """Concatenates query, key or value projections into a CTranslate2 layer."""
  kernels = [arrays[f"{name}/{one}/kernel"] for one in projections]  # (D, H, K)
  biases = [arrays[f"{name}/{one}/bias"].ravel() for one in projections]
  spec.weight = np.concatenate([k.reshape(len(k), -1).T for k in kernels])
  spec.bias = np.concatenate(biases)


def _fill_dense(spec: Any, arrays: Arrays, name: str) -> None:
  """Copies a dense layer; a kernel over heads (H, K, D) becomes a matrix."""
  kernel = arrays[f"{name}/kernel"]
  weight = kernel.reshape(-1, kernel.shape[-1]).T
  spec.weight = np.ascontiguousarray(weight)
  spec.bias = arrays[f"{name}/bias"]


def _fill_norm(spec: Any, arrays: Arrays, name: str) -> None:
  spec.gamma, spec.beta = arrays[f"{name}/scale"], arrays[f"{name}/bias"]
