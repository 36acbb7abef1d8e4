"""What is exported: a run, its plan, and the parameters that were chosen."""

from __future__ import annotations

import dataclasses
import os

from jaxsyn.data.store import manifests
from jaxsyn.plan import Plan, resolve
from jaxsyn.trained import parameters, workdir
from jaxsyn.trained.workdir import Run
from jaxsyn.training.reader import Parameters


@dataclasses.dataclass(frozen=True)
class ExportedModel:
  """A run made ready to be exported.

  Attributes:
    run: config and manifest.
    plan: the resolved config.
    features: of the source side that the model reads.
    found: the parameters.
    title: which they are, in words.
    licence: of the model, as its owner said it; "": not yet.
    parser: whether the parser's file goes with it.
  """

  run: Run
  plan: Plan
  features: tuple[str, ...]
  parameters: Parameters
  title: str
  licence: str = ""
  parser: bool = True


def open_model(
  folder: str | os.PathLike[str],
  *,
  checkpoint: str = "",
  licence: str = "",
  parser: bool = True,
) -> ExportedModel:
  """A model of a run's folder.

  Args:
    folder: of the run.
    checkpoint: "best", "last" or a step; "": as `translate` chooses.
    licence, parser: see `Model`.

  Raises:
    InputError: no run, no such checkpoint.
  """
  run = workdir.open_run(folder)
  plan = resolve(run.config, run.manifest)
  features = manifests.features_for(run.manifest, plan.translation_features)
  features = tuple(f for f in features if f.startswith("source"))
  parameters_ = parameters.read(run, plan, features, checkpoint=checkpoint)
  requested = checkpoint or run.config.decode.checkpoint
  title = parameters.title(parameters_, requested)
  return ExportedModel(run, plan, features, parameters_, title, licence, parser)
