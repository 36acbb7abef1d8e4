"""Where a run's figures go beside its log.jsonl: options of config.train.writers.

A writer is one file here, one line in this table and one option of
`jaxsyn.training.options.Writers` of its name, which is empty where it is not wanted.
"""

from __future__ import annotations

from jaxsyn.training.options import Writers
from jaxsyn.training.writers.tensorboard import TensorBoard
from jaxsyn.training.writers.weights_and_biases import WeightsAndBiases
from jaxsyn.training.writers.writer import ResumedRun, Writer

WRITERS: dict[str, type[Writer]] = {
  "tensorboard": TensorBoard,
  "wandb": WeightsAndBiases,
}


def open_writers(options: Writers, run: ResumedRun) -> list[Writer]:
  """The writers that are wanted.

  Raises:
    InputError: the package of one is not installed, or it refuses.
  """
  return [
    make(value, run)
    for name, make in WRITERS.items()
    if (value := getattr(options, name))
  ]
