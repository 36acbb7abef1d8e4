"""How much is measured: all of it on an accelerator, tiny sizes on a CPU."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from benchmarks import synthetic
from benchmarks.train_speed import sized
from jaxsyn.configs import systems
from jaxsyn.plan import Plan, resolve

Row = dict[str, float | str]  # column -> what stands there

# It wants a matrix of the caller's in every batch.
_CHECKED = tuple(name for name in systems.SYSTEMS if name != "given_weighting")


@dataclasses.dataclass(frozen=True)
class BenchmarkLimits:
  """Sizes of what is measured.

  Attributes:
    sizes: of `train_speed.SIZES`, the most important first.
    vocabulary: ids of both sides.
    tokens: padded subwords a batch, of one side.
    longest: subwords of a sentence.
    ladder: batches for as long as there is memory.
    together: sentences that are searched together.
    paired: systems that are trained in turns with the Transformer.
    checked: systems whose gradients are compared with those of the CPU.
    seconds: of training for a row.
    side: of the square matrices that tell what the chip can do.
    steps: of the command whose start is measured.
    options: further ones of every config, by dotted name.
    data: prepared folder; "": none.
  """

  sizes: tuple[str, ...] = ("base", "big", "small", "tiny")
  vocabulary: int = 32_000
  tokens: int = 16_384
  longest: int = 32
  ladder: tuple[int, ...] = tuple(2**n for n in range(12, 21))
  together: tuple[int, ...] = (64, 128, 256, 512, 1024)
  paired: tuple[str, ...] = (
    *("pascal", "deps_san", "relative", "dbsa", "gru_global"),
  )
  checked: tuple[str, ...] = _CHECKED
  seconds: float = 6.0
  side: int = 8192
  steps: int = 60
  options: Mapping[str, Any] = dataclasses.field(default_factory=dict)
  data: str = ""

  def plan(self, system: str, size: str, dtype: str, **options: Any) -> Plan:
    """A system in a size, on sentences made from nothing."""
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
  steps=2,
  options={
    "model.width": 16,
    "model.transformer.heads": 4,
    "model.transformer.feed_forward": 16,
    "model.transformer.encoder_layers": 1,
    "model.transformer.decoder_layers": 1,
    "model.gru.hidden": 16,
  },
)
