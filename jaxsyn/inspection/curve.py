"""Draws learning curves from the log of a run, also during training.

shown = display(curve.picture("runs/pascal"), display_id=True)
with curve.watched("runs/pascal", shown.update):
  train.run(config, "runs/pascal")
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator

from matplotlib.figure import Figure

from jaxsyn.storage import files
from jaxsyn.storage.remote import PathLike
from jaxsyn.training import log

SECONDS = 5.0  # between two figures during training


def picture(run: PathLike, metric: str = "bleu") -> Figure:
  """Draws the training and validation loss, and a validation metric.

  Args:
    run: Run directory, which need not exist.
    metric: Metric of config.train.selection.
  """
  records, _ = log.records(files.path_of(run))
  figure = Figure((8, 2.6), layout="constrained")
  left, right = figure.subplots(1, 2)
  curves = [(left, "loss", kind) for kind in log.KINDS]
  for axes, name, kind in (*curves, (right, metric, "validation")):
    points = [r for r in records if r["kind"] == kind and name in r]
    steps = [record["step"] for record in points]
    values = [record[name] for record in points]
    axes.plot(steps, values, marker=".", label=kind)
    axes.set(xlabel="updates", title=name)
    axes.legend(frameon=False)
  return figure


@contextlib.contextmanager
def watched(
  run: PathLike, show: Callable[[Figure], object], metric: str = "bleu"
) -> Iterator[None]:
  """Redraws learning curves every few seconds in a `with` block and at its end.

  Args:
    run, metric: See `picture`.
    show: Function of each figure, called in another thread.
  """
  ended = threading.Event()

  def draw() -> None:
    while not ended.wait(SECONDS):
      show(picture(run, metric))

  thread = threading.Thread(target=draw, daemon=True)
  thread.start()
  try:
    yield
  finally:
    ended.set()
    thread.join()
    show(picture(run, metric))
