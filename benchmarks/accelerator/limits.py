"""Sizes of models, batches and data in the accelerator benchmark."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from benchmarks import synthetic
from benchmarks.train_speed import sized
from jaxsyn.configs import systems
from jaxsyn.plan import Plan, resolve

Row = dict[str, float | str]  # column -> value

# This system needs a matrix from the caller in each batch.
_CHECKED = tuple(name for name in systems.SYSTEMS if name != "given_weighting")


@dataclasses.dataclass(frozen=True)
class BenchmarkLimits:
  """Sizes of models, batches and data in the accelerator benchmark.

  Attributes:
    sizes: Names in `train_speed.SIZES`, the most important first.
    vocabulary: Vocabulary size of both sides.
    tokens: Padded subwords of a side in a batch.
    longest: Maximum number of subwords of a sentence.
    ladder: Batch sizes in tokens, tried until the memory does not suffice.
    together: Numbers of sentences that are searched at once.
    paired: Systems that are trained in turns with the Transformer.
    checked: Systems whose gradients are compared with those of a CPU.
    seconds: Training time of a row.
    side: Width of the square matrices that are multiplied.
    options: Further options of all configs, by dotted name.
  """

  sizes: tuple[str, ...] = ("base", "big", "small", "tiny")
  vocabulary: int = 32_000
  tokens: int = 16_384
  longest: int = 32
  ladder: tuple[int, ...] = tuple(2**n for n in range(12, 21))
  together: tuple[int, ...] = (64, 128, 256, 512, 1024)
  paired: tuple[str, ...] = (
    "pascal",
    "deps_san",
    "relative",
    "dbsa",
    "gru_global",
  )
  checked: tuple[str, ...] = _CHECKED
  seconds: float = 6.0
  side: int = 8192
  options: Mapping[str, Any] = dataclasses.field(default_factory=dict)

  def plan(self, system: str, size: str, dtype: str, **options: Any) -> Plan:
    """Returns the plan of a system at a model size, for a random corpus."""
    options = {"model.dtype": dtype, **self.options, **options}
    config = sized(system, size, **options)
    return resolve(config, synthetic.manifest(self.vocabulary))

  def text(self) -> synthetic.Text:
    return synthetic.Text(self.longest, self.vocabulary)


TRIAL = BenchmarkLimits(
  sizes=("tiny",),
  vocabulary=60,
  tokens=64,
  longest=8,
  ladder=(64, 128),
  together=(4, 8),
  paired=("pascal",),
  checked=("pascal", "gru_global"),
  seconds=0.1,
  side=64,
  options={
    "model.width": 16,
    "model.transformer.heads": 4,
    "model.transformer.feed_forward": 16,
    "model.transformer.encoder_layers": 1,
    "model.transformer.decoder_layers": 1,
    "model.gru.hidden": 16,
  },
)
