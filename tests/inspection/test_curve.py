"""Learning curves show the log of a run, also while it is written."""

import json
import threading

from jaxsyn.inspection import curve
from jaxsyn.training import log


def lines_of(figure):
  """Title -> label -> (steps, values)."""
  return {
    axes.get_title(): {
      line.get_label(): tuple(map(list, line.get_data()))
      for line in axes.get_lines()
    }
    for axes in figure.axes
  }


def test_plots_a_log_that_is_being_written(tmp_path, monkeypatch):
  monkeypatch.setattr(curve, "SECONDS", 0.01)
  assert lines_of(curve.picture(tmp_path))["bleu"] == {"validation": ([], [])}
  shown, sampled = [], threading.Event()

  def show(figure):
    shown.append(lines_of(figure))
    sampled.set()

  records = [
    {"kind": "train", "step": 10, "loss": 5.5},
    {"kind": "validation", "step": 10, "loss": 5.0, "bleu": 1.25},
    {"kind": "train", "step": 20, "loss": 4.5},
  ]
  with curve.watched(tmp_path, show):
    assert sampled.wait(10)  # before there is a log
    with (tmp_path / log.FILE).open("w") as file:
      file.writelines(
        json.dumps({**record, "minutes": 0.1}) + "\n" for record in records
      )
  assert shown[0]["loss"]["train"] == ([], [])
  assert shown[-1] == {
    "loss": {"train": ([10, 20], [5.5, 4.5]), "validation": ([10], [5.0])},
    "bleu": {"validation": ([10], [1.25])},
  }
