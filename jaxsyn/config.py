"""Typed sections: what a config may say, checked at the door.

`configs/base.py` holds the defaults and meanings; here stand the same names as
frozen dataclasses without defaults, with the bounds of every number. Upper
bounds are beyond anything that works: they tell a slip of the keyboard before
memory or arithmetic does. `read_config` turns a ConfigDict (or a plain dict, from a
run) into a `Config` and refuses unknown, missing or mistyped fields by name.
`jaxsyn.plan` comes after and checks that the fields fit.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from jaxsyn.fields import Folder, Name, Range, Text, from_config

_MOST = 2**31 - 1  # counters on the device have 32 bits

Count = Annotated[int, Range(1, _MOST)]
CountOrOff = Annotated[int, Range(0, _MOST)]  # 0: off, all, or as many as fit
Layers = Annotated[int, Range(1, 1000)]
Units = Annotated[int, Range(1, 2**20)]
Axis = Annotated[int, Range(1, 2**16, also=-1)]
Rate = Annotated[float, Range(0, 1, below=True)]  # of dropout; also a decay
Amount = Annotated[float, Range(0, 1_000_000)]
Positive = Annotated[float, Range(0, 1_000_000, above=True)]
Language = Annotated[
  str,
  Text(
    r"[A-Za-z]{2,8}([-_][A-Za-z0-9]{1,8})*",
    "a language's code, as in en, de or zh_Hant",
  ),
]


@dataclasses.dataclass(frozen=True)
class Second:
  task: Literal["none", "parse", "source"]
  brackets: Literal["dependency", "constituency"]
  weight: Amount
  longest: Count


@dataclasses.dataclass(frozen=True)
class Data:
  name: Name
  directory: Folder
  source_language: Language
  target_language: Language
  train: Name
  validation: Name
  test: tuple[Name, ...]
  tree: Literal["parsed", "linear", "random"]
  second: Second


@dataclasses.dataclass(frozen=True)
class Clean:
  empty: bool
  control: bool
  max_words: CountOrOff
  max_characters: CountOrOff
  max_ratio: Amount
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
  beam: Annotated[int, Range(0, 100)]
  source_brackets: dict[str, str]


@dataclasses.dataclass(frozen=True)
class Pieces:
  size: Annotated[int, Range(5, 2**24)]  # four are special symbols
  type: Literal["bpe", "unigram", "word", "char"]
  joint: bool
  character_coverage: Annotated[float, Range(0.98, 1)]  # of SentencePiece
  normalisation: Name


@dataclasses.dataclass(frozen=True)
class Prepare:
  raw_dir: str
  splits: dict[str, tuple[str, ...]]
  downloads: tuple[tuple[str, ...], ...]
  workers: Annotated[int, Range(0, 1024)]
  shards: Annotated[int, Range(1, 10_000)]
  clean: Clean
  parse: Parse
  vocabulary: Pieces
  max_subwords: Annotated[int, Range(2, _MOST)]  # one, and the end sign


@dataclasses.dataclass(frozen=True)
class Batch:
  tokens: Count
  shapes: Annotated[int, Range(1, 1000)]
  length_multiple: Annotated[int, Range(1, 2**16)]
  row_multiple: Annotated[int, Range(1, 2**16)]
  memory_gib: Amount


@dataclasses.dataclass(frozen=True)
class Gru:
  hidden: Units
  alignment: Annotated[int, Range(0, 2**20)]
  update: Literal["first", "all"]
  initialisation: Literal["xavier", "orthogonal"]
  dropout_embedding: Rate
  dropout_hidden: Rate
  dropout_source: Rate
  dropout_target: Rate


@dataclasses.dataclass(frozen=True)
class Model:
  family: Literal["transformer", "gru"]
  encoder_layers: Layers
  decoder_layers: Layers
  width: Units
  feed_forward: Units
  heads: Units
  norm: Literal["pre", "post"]
  activation: Literal["relu", "gelu"]
  positions: bool
  tie_embeddings: bool
  tie_output: bool
  dropout: Rate
  attention_dropout: Rate
  activation_dropout: Rate
  dtype: Literal["float32", "bfloat16"]
  gru: Gru


@dataclasses.dataclass(frozen=True)
class Places:
  """Parts by place: name of the part -> its options, checked by the plan."""

  encoder: dict[str, Any]
  decoder: dict[str, Any]
  cross: dict[str, Any]


@dataclasses.dataclass(frozen=True)
class Optimiser:
  name: Name
  learning_rate: Positive
  schedule: Literal["inverse_sqrt", "noam", "constant"]
  warmup: CountOrOff
  warmup_start: Amount
  minimum: Amount
  beta1: Rate
  beta2: Rate
  epsilon: Annotated[float, Range(1e-30, 1)]  # 0: the first step is 0 / 0
  weight_decay: Amount
  clip: Amount
  accumulate: Count
  rho: Rate


@dataclasses.dataclass(frozen=True)
class Mesh:
  data: Axis
  fsdp: Axis
  tensor: Axis


@dataclasses.dataclass(frozen=True)
class Train:
  steps: Count
  minutes: Annotated[float, Range(0, 1_000_000_000)]
  evaluate_every: Count
  save_every: Count
  keep: Count
  log_every: Count
  patience: CountOrOff
  selection: Literal["bleu", "chrf", "ribes", "likelihood"]
  tokenizer: str
  validation_beam: Annotated[int, Range(1, 1000)]
  validation_sentences: CountOrOff
  ema: Rate
  average: Count
  parallelism: Literal["jit", "pmap"]
  mesh: Mesh
  prefetch: Annotated[int, Range(0, 10_000)]


@dataclasses.dataclass(frozen=True)
class Decode:
  beam: Annotated[int, Range(1, 1000)]
  length_penalty: Literal["fairseq", "gnmt"]
  alpha: Annotated[float, Range(0, 8)]  # a length to the 9th overflows
  stop: Literal["first", "bound"]
  max_length_factor: Annotated[float, Range(0, 1000)]
  max_length_offset: Annotated[int, Range(0, 100_000)]
  checkpoint: Literal["best", "last"]
  sentences: Annotated[int, Range(1, 2**16)]
  nbest: Annotated[int, Range(1, 1000)]


@dataclasses.dataclass(frozen=True)
class Config:
  system: Name
  seed: Annotated[int, Range(0, 2**32 - 1)]  # JAX takes more, modulo this
  data: Data
  prepare: Prepare
  batch: Batch
  model: Model
  parts: Places
  losses: dict[str, Any]
  optimiser: Optimiser
  train: Train
  decode: Decode
  contexts: dict[str, Any]


def read_config(config: Mapping[str, Any]) -> Config:
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


def as_dict(config: Config) -> dict[str, Any]:
  """The plain nested dict that `read_config` takes back: for JSON and checkpoints."""
  return dataclasses.asdict(config)
