"""MLflow: a run of an experiment on a tracking server or in a local store.

MLFLOW_TRACKING_URI says where; MLflow's own default is a store beside the
working folder.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from jaxsyn.errors import InputError
from jaxsyn.training.writers.resumed_run import read_id, write_id
from jaxsyn.training.writers.writer import ResumedRun, Writer, package

_LONGEST = 6000  # characters of a parameter
_TOGETHER = 100  # parameters of a request


class MLflow(Writer):
  """One run there, also where the training goes on after a kill."""

  def __init__(self, value: str, run: ResumedRun):
    library = package("mlflow", "config.train.writers.mlflow", "mlflow")
    exceptions = package(
      "mlflow.exceptions", "config.train.writers.mlflow", "mlflow"
    )
    try:
      self._client = library.MlflowClient()
      self._id = self._open(value, run)
    except exceptions.MlflowException as error:
      raise InputError(
        f"config.train.writers.mlflow={value!r}: MLflow refuses: "
        f"{str(error).rstrip('.')}. MLFLOW_TRACKING_URI says where it writes."
      ) from None

  def _open(self, option_value: str, run: ResumedRun) -> str:
    experiment = self._client.get_experiment_by_name(option_value)
    number = (
      experiment.experiment_id
      if experiment
      else self._client.create_experiment(option_value)
    )
    if found := read_id(run, "mlflow"):
      self._client.update_run(found, status="RUNNING")
      return found
    begun = self._client.create_run(number, run_name=run.workdir.name)
    found = begun.info.run_id
    from mlflow.entities import Param

    params = [
      Param(name, str(value)[:_LONGEST]) for name, value in run.config.items()
    ]
    for i in range(0, len(params), _TOGETHER):
      self._client.log_batch(found, params=params[i : i + _TOGETHER])
    write_id(run, "mlflow", found)
    return found

  def scalars(self, step: int, values: Mapping[str, float]) -> None:
    import time

    from mlflow.entities import Metric

    now = int(time.time() * 1000)
    metrics = [Metric(name, v, now, step) for name, v in values.items()]
    self._client.log_batch(self._id, metrics=metrics)

  def text(self, name: str, step: int, text: str) -> None:
    self._client.log_text(self._id, text, f"{name}/{step:08d}.md")

  def picture(self, name: str, step: int, pixels: np.ndarray) -> None:
    self._client.log_image(self._id, pixels, f"{name}/{step:08d}.png")

  def close(self) -> None:
    self._client.set_terminated(self._id)
