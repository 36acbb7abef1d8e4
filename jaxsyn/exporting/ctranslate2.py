"""--format ctranslate2: a folder for CTranslate2, a translator without Python.

It holds Transformers, pre- or post-norm, without parts that act in translation.
The folder has its model.bin, config.json and vocabularies, and beside them the
SentencePiece models and jaxsyn.json, which says how the run would search.
Before this file: `model`.
"""

from __future__ import annotations

import pathlib
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from jaxsyn.data.schema import BOS, EOS, SPECIAL, UNK
from jaxsyn.errors import InputError
from jaxsyn.exporting.model import ExportedModel
from jaxsyn.models.transformer import Transformer
from jaxsyn.options import as_dict
from jaxsyn.plan import PLACES
from jaxsyn.sinusoids import sinusoids
from jaxsyn.storage import files
from jaxsyn.trained import matching
from jaxsyn.training.sums import named

RECORD_FILE = "jaxsyn.json"
POSITIONS = 1024  # CTranslate2's own longest input
_ACTIVATIONS = {"relu": "RELU", "gelu": "GELUTanh"}  # jax.nn.gelu is by tanh

Arrays = Mapping[str, np.ndarray]


def write(model: ExportedModel, folder: pathlib.Path) -> list[str]:
  """Fills the folder.

  Args:
    model: what is exported.
    folder: new and empty.

  Raises:
    InputError: the model has what CTranslate2 cannot hold; names it.
  """
  check(model)
  specs = _library()
  spec, run = model.plan.spec, model.run
  family = spec.architecture
  arrays = {
    name: np.asarray(x, np.float32)
    for name, x in jax.device_get(named(model.parameters.params)).items()
  }
  out = specs.TransformerSpec.from_config(
    (family.encoder_layers, family.decoder_layers),
    family.heads,
    pre_norm=family.norm == "pre",
    activation=specs.common_spec.Activation[_ACTIVATIONS[family.activation]],
  )
  _fill_encoder(out.encoder, arrays)
  _fill_decoder(out.decoder, arrays)
  place_MD = np.zeros((POSITIONS, spec.model.width), np.float32)
  if family.positions:
    place: Array = sinusoids(jnp.arange(POSITIONS), spec.model.width)
    place_MD = np.asarray(place)
  table = arrays["target_table/embedding"]
  source = arrays.get("source_table/embedding", table)
  out.encoder.embeddings[0].weight = source
  out.decoder.embeddings.weight = table
  for side in (out.encoder, out.decoder):
    side.position_encodings.encodings = place_MD
  tokens = {
    side: matching.tokens(model.plan, run.manifest, run.workdir, side)
    for side in ("source", "target")
  }
  out.register_source_vocabulary([*tokens["source"]])
  out.register_target_vocabulary([*tokens["target"]])
  out.config.bos_token, out.config.eos_token = SPECIAL[BOS], SPECIAL[EOS]
  out.config.unk_token = SPECIAL[UNK]
  out.config.decoder_start_token = SPECIAL[BOS]
  out.config.add_source_eos = True
  out.config.add_source_bos = False
  out.config.layer_norm_epsilon = 1e-5
  out.validate()
  out.optimize()
  out.save(str(folder))
  for side in ("source", "target"):
    path = run.vocabulary(side).path
    files.copy(path, folder / f"{side}.model")
  _write_page(model, folder)
  return [model.title]


def check(model: ExportedModel) -> None:
  """Raises InputError where CTranslate2 cannot hold a model."""
  spec = model.plan.spec
  why = ""
  if type(spec.architecture) is not Transformer:
    why = f"config.model.family={model.run.config.model.family!r} is none"
  for place in PLACES:
    for name, _ in spec.modifiers.modifiers_in(place):
      if not why:
        why = (
          f"config.parts.{place}.{name} acts in translation, and it knows no "
          "such part"
        )
  if not why and model.plan.tag is not None:
    why = "this system puts a tag around every source"
  if not why and any(
    model.run.vocabulary(side).whole_words for side in ("source", "target")
  ):
    why = "the vocabulary is of whole words, which SentencePiece alone joins"
  if why:
    raise InputError(
      f"CTranslate2 cannot hold {model.run.workdir}: it has Transformers without "
      f"parts, and {why}. Take --format safetensors."
    )


def _library() -> Any:
  try:
    from ctranslate2 import specs
  except ImportError:
    raise InputError(
      "for CTranslate2's format the package ctranslate2 is needed: pip install "
      "-e '.[ctranslate2]'."
    ) from None
  return specs


def _fill_encoder(spec: Any, arrays: Arrays) -> None:
  for i, layer in enumerate(spec.layer):
    name = f"encoder_{i}"
    _self_attention(layer.self_attention, arrays, name)
    _feed_forward(layer.ffn, arrays, name)
  if "encoder_norm/scale" in arrays:
    _norm(spec.layer_norm, arrays, "encoder_norm")


def _fill_decoder(spec: Any, arrays: Arrays) -> None:
  for i, layer in enumerate(spec.layer):
    name = f"decoder_{i}"
    _self_attention(layer.self_attention, arrays, name)
    cross = layer.attention
    _linears(cross.linear[0], arrays, name, "cross", "query")
    _linears(cross.linear[1], arrays, name, "cross", "key", "value")
    _output(cross.linear[2], arrays, f"{name}/cross/output")
    _norm(cross.layer_norm, arrays, f"{name}/around_cross/norm")
    _feed_forward(layer.ffn, arrays, name)
  if "decoder_norm/scale" in arrays:
    _norm(spec.layer_norm, arrays, "decoder_norm")
  if "output/kernel" in arrays:
    _output(spec.projection, arrays, "output")
  else:
    spec.projection.weight = arrays["target_table/embedding"]


def _self_attention(spec: Any, arrays: Arrays, layer: str) -> None:
  _linears(spec.linear[0], arrays, layer, "attention", "query", "key", "value")
  _output(spec.linear[1], arrays, f"{layer}/attention/output")
  _norm(spec.layer_norm, arrays, f"{layer}/around_attention/norm")


def _feed_forward(spec: Any, arrays: Arrays, layer: str) -> None:
  _output(spec.linear_0, arrays, f"{layer}/feed_forward/inner")
  _output(spec.linear_1, arrays, f"{layer}/feed_forward/outer")
  _norm(spec.layer_norm, arrays, f"{layer}/around_feed_forward/norm")


def _linears(
  spec: Any, arrays: Arrays, layer: str, attention: str, *names: str
) -> None:
  """Several projections to heads as one: rows are outputs."""
  at = [f"{layer}/{attention}/{name}" for name in names]
  kernels = [arrays[f"{one}/kernel"] for one in at]  # (D, H, K)
  spec.weight = np.concatenate([k.reshape(len(k), -1).T for k in kernels])
  spec.bias = np.concatenate([arrays[f"{one}/bias"].ravel() for one in at])


def _output(spec: Any, arrays: Arrays, name: str) -> None:
  """A projection from units, or from heads: (H, K, D)."""
  kernel = arrays[f"{name}/kernel"]
  weight = kernel.reshape(-1, kernel.shape[-1]).T
  spec.weight = np.ascontiguousarray(weight)
  spec.bias = arrays[f"{name}/bias"]


def _norm(spec: Any, arrays: Arrays, name: str) -> None:
  spec.gamma, spec.beta = arrays[f"{name}/scale"], arrays[f"{name}/bias"]


def _write_page(model: ExportedModel, folder: pathlib.Path) -> None:
  """What CTranslate2's own files have no place for."""
  record = {
    "parameters": model.title,
    "system": model.run.config.system,
    "source_language": model.run.config.data.source_language,
    "target_language": model.run.config.data.target_language,
    "nfc": model.run.manifest["options"]["clean"]["nfc"],
    "positions": POSITIONS,
    "decode": as_dict(model.plan.config.decode),
  }
  files.write_json(folder / RECORD_FILE, record)
