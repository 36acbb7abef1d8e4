"""Typed sections: what a config may say, checked at the door.

`configs/base.py` holds the defaults and meanings; here stand the same names as
frozen dataclasses without defaults (but for what older runs do not say). `read` turns a ConfigDict (or a plain dict,
from a checkpoint) into a `Config` and refuses unknown, missing or mistyped
fields by name. `jaxsyn.plan` comes after and checks that the fields fit.
"""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Mapping
from typing import Any, Literal

from jaxsyn.errors import InputError, did_you_mean


@dataclasses.dataclass(frozen=True)
class Second:
  task: Literal["none", "parse", "source"]
  brackets: Literal["dependency", "constituency"]
  weight: float
  longest: int


@dataclasses.dataclass(frozen=True)
class Data:
  name: str
  directory: str
  source_language: str
  target_language: str
  train: str
  validation: str
  test: tuple[str, ...]
  tree: Literal["parsed", "linear", "random"]
  # Runs of before it was there had none.
  second: Second = Second("none", "dependency", 1.0, 250)


@dataclasses.dataclass(frozen=True)
class Clean:
  empty: bool
  control: bool
  max_words: int
  max_characters: int
  max_ratio: float
  duplicates: bool
  nfc: bool
  language: bool


@dataclasses.dataclass(frozen=True)
class Parse:
  sides: tuple[Literal["source", "target"], ...]
  source_model: str
  target_model: str
  source_conllu: dict[str, str]
  target_conllu: dict[str, str]
  beam: int
  # Absent from the configs of older runs.
  source_brackets: dict[str, str] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class Pieces:
  size: int
  type: Literal["bpe", "unigram", "word", "char"]
  joint: bool
  character_coverage: float
  normalisation: str


@dataclasses.dataclass(frozen=True)
class Prepare:
  raw_dir: str
  splits: dict[str, tuple[str, ...]]
  downloads: tuple[tuple[str, ...], ...]
  workers: int
  shards: int
  clean: Clean
  parse: Parse
  vocabulary: Pieces
  max_subwords: int


@dataclasses.dataclass(frozen=True)
class Batch:
  tokens: int
  shapes: int
  length_multiple: int
  row_multiple: int
  memory_gib: float


@dataclasses.dataclass(frozen=True)
class Gru:
  hidden: int = 256
  alignment: int = 0
  update: Literal["first", "all"] = "first"
  initialisation: Literal["xavier", "orthogonal"] = "xavier"
  dropout_embedding: float = 0.2
  dropout_hidden: float = 0.2
  dropout_source: float = 0.0
  dropout_target: float = 0.0


@dataclasses.dataclass(frozen=True)
class Model:
  family: Literal["transformer", "gru"]
  encoder_layers: int
  decoder_layers: int
  width: int
  feed_forward: int
  heads: int
  norm: Literal["pre", "post"]
  activation: Literal["relu", "gelu"]
  positions: bool
  tie_embeddings: bool
  tie_output: bool
  dropout: float
  attention_dropout: float
  activation_dropout: float
  dtype: Literal["float32", "bfloat16"]
  gru: Gru = Gru()  # absent from the configs of older runs


@dataclasses.dataclass(frozen=True)
class Places:
  """Parts by place: name of the part -> its options, checked by the plan."""

  encoder: dict[str, Any]
  decoder: dict[str, Any]
  cross: dict[str, Any]


@dataclasses.dataclass(frozen=True)
class Optimiser:
  name: str
  learning_rate: float
  schedule: Literal["inverse_sqrt", "noam", "constant"]
  warmup: int
  warmup_start: float
  minimum: float
  beta1: float
  beta2: float
  epsilon: float
  weight_decay: float
  clip: float
  accumulate: int
  # Absent from the configs of older runs.
  rho: float = 0.95


@dataclasses.dataclass(frozen=True)
class Mesh:
  data: int
  fsdp: int
  tensor: int


@dataclasses.dataclass(frozen=True)
class Train:
  steps: int
  minutes: float
  evaluate_every: int
  save_every: int
  keep: int
  log_every: int
  patience: int
  selection: Literal["bleu", "chrf", "ribes", "likelihood"]
  tokenizer: str
  validation_beam: int
  validation_sentences: int
  ema: float
  average: int
  parallelism: Literal["jit", "pmap"]
  mesh: Mesh
  prefetch: int


@dataclasses.dataclass(frozen=True)
class Decode:
  beam: int
  length_penalty: Literal["fairseq", "gnmt"]
  alpha: float
  stop: Literal["first", "bound"]
  max_length_factor: float
  max_length_offset: int
  checkpoint: Literal["best", "last"]
  sentences: int
  nbest: int


@dataclasses.dataclass(frozen=True)
class Config:
  system: str
  seed: int
  data: Data
  prepare: Prepare
  batch: Batch
  model: Model
  parts: Places
  losses: dict[str, Any]
  optimiser: Optimiser
  train: Train
  decode: Decode
  # Absent from the configs of older runs.
  contexts: dict[str, Any] = dataclasses.field(default_factory=dict)


def read(config: Mapping[str, Any]) -> Config:
  """Checks a whole config.

  Args:
    config: a ConfigDict as `get_config` returns it, or a plain nested dict.

  Raises:
    InputError: a field is unknown, missing or of a wrong type; the message
      gives its dotted name.
  """
  if hasattr(config, "to_dict"):
    config = config.to_dict()
  return from_config(Config, config, "config")


def to_dict(config: Config) -> dict[str, Any]:
  """The plain nested dict that `read` takes back: for JSON and checkpoints."""
  return dataclasses.asdict(config)


def from_config(cls: type, section: Mapping[str, Any], where: str) -> Any:
  """An instance of a frozen dataclass from a section of a config.

  Fields with a default may be left out; nothing is swallowed.

  Args:
    cls: a dataclass whose annotations say the types.
    section: field name -> value.
    where: dotted name of the section, for messages.

  Raises:
    InputError: unknown, missing or mistyped field.
  """
  if not isinstance(section, Mapping):
    raise InputError(f"{where} must be a section, got {section!r}.")
  fields = {f.name: f for f in dataclasses.fields(cls)}
  hints = typing.get_type_hints(cls)
  for name in section:
    if name not in fields:
      raise InputError(
        f"{where} has no option {name!r}. {did_you_mean(name, fields)}"
      )
  values = {}
  for name, field in fields.items():
    if name in section:
      values[name] = _typed(hints[name], section[name], f"{where}.{name}")
    elif field.default is field.default_factory is dataclasses.MISSING:
      told = "; see configs/base.py" if where.startswith("config") else ""
      raise InputError(f"{where}.{name} is missing{told}.")
  return cls(**values)


def _typed(hint: Any, value: Any, where: str) -> Any:
  """The value in the hinted type, or an InputError that names the field."""
  if dataclasses.is_dataclass(hint):
    return from_config(hint, value, where)
  origin, arguments = typing.get_origin(hint), typing.get_args(hint)
  if origin is Literal:
    if value in arguments:
      return value
    known = ", ".join(map(repr, arguments))
    raise InputError(f"{where} must be one of {known}, got {value!r}.")
  if origin is tuple and isinstance(value, (tuple, list)):
    return tuple(
      _typed(arguments[0], item, f"{where}[{i}]")
      for i, item in enumerate(value)
    )
  if origin is dict and isinstance(value, Mapping):
    return {
      key: _typed(arguments[1], item, f"{where}.{key}")
      for key, item in value.items()
    }
  if origin in (typing.Union, types.UnionType):
    if value is None and type(None) in arguments:
      return None
    return _typed(arguments[0], value, where)
  if hint is Any:
    return value
  if hint is float and type(value) is int:
    return float(value)
  if isinstance(hint, type) and type(value) is hint:
    return value
  name = getattr(origin or hint, "__name__", str(hint))
  raise InputError(
    f"{where} must be of type {name}, got {value!r} ({type(value).__name__})."
  )
