"""How a run learns: curves drawn from its log, also while it trains.

shown = display(curve.picture("runs/pascal"), display_id=True)
with curve.watched("runs/pascal", shown.update):
  train.run(config, "runs/pascal")
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable, Iterator

from matplotlib.figure import Figure

from jaxsyn.storage import files
from jaxsyn.training import log

SECONDS = 5.0  # between two pictures of a run that trains


def picture(run: str | os.PathLike[str], metric: str = "bleu") -> Figure:
  """The loss of training and validation, and a score of the validation.

  Args:
    run: folder of the run; it need not be there yet.
    metric: what config.train.selection names.
  """
  records, _ = log.records(files.path_of(run))
  figure = Figure((8, 2.6), layout="constrained")
  left, right = figure.subplots(1, 2)
  for axes, name, kinds in (
    (left, "loss", log.KINDS),
    (right, metric, log.KINDS[1:]),
  ):
    for kind in kinds:
      of_kind = [r for r in records if r["kind"] == kind and name in r]
      steps, values = ([r[key] for r in of_kind] for key in ("step", name))
      axes.plot(steps, values, marker=".", label=kind)
    axes.set(xlabel="updates", title=name)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False)
  return figure


@contextlib.contextmanager
def watched(
  run: str | os.PathLike[str],
  show: Callable[[Figure], object],
  metric: str = "bleu",
) -> Iterator[None]:
  """Shows the picture every few seconds, and once more after the block.

  Args:
    run, metric: of `picture`.
    show: is given each picture, by a thread.
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
