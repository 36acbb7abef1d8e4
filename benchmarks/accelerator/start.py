"""How long the real command takes to its first step."""

from __future__ import annotations

import pathlib
import sys
import tempfile
from collections.abc import Iterator

from benchmarks import start_speed
from benchmarks.accelerator.limits import BenchmarkLimits, Row
from benchmarks.train_speed import size_options
from jaxsyn.errors import InputError

LEAST = (
  1024  # subwords a batch: sentences of real data are longer than a trial's
)


def start(limits: BenchmarkLimits, size: str, dtype: str) -> Iterator[Row]:
  """Without programs of before, and with them."""
  if not limits.data:
    raise InputError(
      "the start of jaxsyn.train is measured on prepared data; name its folder "
      "with --data (python -m preprocess.build makes one, on any machine)."
    )
  options = {
    **size_options(size),
    **limits.options,
    "model.dtype": dtype,
    "batch.tokens": max(limits.tokens, LEAST),
    "data.directory": limits.data,
  }
  # No plan is made here: it might take the device that the command needs.
  command = [
    *(sys.executable, "-m", "jaxsyn.train", "--config=configs/quickstart.py"),
    *(
      f"--config.{name}={value}"
      for name, value in options.items()
      if not name.startswith("model.gru.")
    ),
    *start_speed.watched(limits.steps),
  ]
  with tempfile.TemporaryDirectory() as programs:
    for state in ("cold", "warm"):
      figures = start_speed.measure(
        command,
        steps=limits.steps,
        root=pathlib.Path.cwd(),
        programs=pathlib.Path(programs),
      )
      yield {
        "start": state,
        "size": size,
        "dtype": dtype,
        "first step s": figures["first_step"][0],
        f"{limits.steps} steps s": figures[f"{limits.steps}_steps"][0],
      }
