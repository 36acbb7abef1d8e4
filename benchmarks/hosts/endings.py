"""Runs that are stopped, in every way that there is."""

from __future__ import annotations

import pathlib
import signal
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from benchmarks.hosts import runs
from benchmarks.hosts.processes import FAULTY, Processes, finish
from jaxsyn.storage import files


class Ending(NamedTuple):
  """A way to end a run of two processes.

  Attributes:
    options: of the config, beside `runs.SMALL`.
    signals: what is sent to which process, once it has logged some steps.
    faulty: whether process 1 raises an exception of its own.
    saves: whether a step is saved that the run can go on from.
  """

  options: Mapping[str, object] = {}
  signals: Mapping[int, signal.Signals] = {}
  faulty: bool = False
  saves: bool = True


_ENDLESS = {
  "train.steps": 100_000,
  "train.evaluate_every": 50_000,
  "train.log_every": 1,
}
_NO_PROGRESS = {
  "train.patience": 1,
  "train.evaluate_every": 20,
  "optimiser.learning_rate": 1e-12,
}
ENDINGS: Mapping[str, Ending] = {
  "SIGTERM to 0": Ending(signals={0: signal.SIGTERM}),
  "SIGTERM to 1": Ending(signals={1: signal.SIGTERM}),
  "SIGINT to both": Ending(signals={0: signal.SIGINT, 1: signal.SIGINT}),
  "minutes": Ending({"train.minutes": 0.05}),
  "patience": Ending(_NO_PROGRESS),
  "NaN": Ending({"optimiser.learning_rate": 1e30}, saves=False),
  "SIGKILL of 0": Ending(signals={0: signal.SIGKILL}),
  "SIGKILL of 1": Ending(signals={1: signal.SIGKILL}),
  "exception in 1": Ending(faulty=True),
}


def compare_endings(
  words: Sequence[str], folder: pathlib.Path
) -> Iterator[str]:
  """Rows of the third table; arguments as of `layouts.compare_layouts`."""
  yield "| ended by | seconds | statuses | last step saved | difference after it |"
  yield "|---|---|---|---|---|"
  for name, ending in ENDINGS.items():
    workdir = folder / name
    options = runs.SMALL | _ENDLESS | dict(ending.options)
    run = Processes(
      words,
      workdir,
      options,
      processes=2,
      code={1: FAULTY} if ending.faulty else {},
    )
    if ending.signals:
      run.wait_for("train +step 70 ")
    ended = run.end(ending.signals)
    for number, told in enumerate(ended.outputs):
      files.write_text(folder / f"{name}.{number}.log", told)
    saved = (runs.steps(workdir) or [0])[-1]
    after = "-"
    if ending.saves:
      # Both by one process; the other from the first step on.
      goal = options | {"train.steps": saved + 20, "train.minutes": 0.0}
      goal |= {"train.patience": 0, "train.evaluate_every": 50_000}
      finish(Processes(words, workdir, goal))
      straight = folder / f"{name} straight"
      finish(Processes(words, straight, goal))
      after = f"{runs.difference(workdir, straight, after=saved).scores:.1e}"
    yield (
      f"| {name} | {ended.seconds:.1f} | {ended.statuses} | {saved} | {after} |"
    )
