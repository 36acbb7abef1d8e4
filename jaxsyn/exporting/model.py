"""Opens the model of a run for export."""

from __future__ import annotations

import dataclasses

from jaxsyn.session import parameters, workdir
from jaxsyn.session.workdir import Run
from jaxsyn.storage.remote import PathLike
from jaxsyn.training.checkpoint_reader import Parameters


@dataclasses.dataclass(frozen=True)
class ExportedModel:
  """Model to export, with its run and metadata.

  Attributes:
    run: Config and manifest.
    parameters: Parameters of the chosen checkpoint, with their description.
    license: License of the model; "" if the user did not name one.
    parser: Whether the parser's file is also exported.
  """

  run: Run
  parameters: Parameters
  license: str = ""
  parser: bool = True


def open_model(
  folder: PathLike,
  *,
  checkpoint: str = "",
  license: str = "",
  parser: bool = True,
) -> ExportedModel:
  """Opens a run directory, and reads the parameters to export.

  Args:
    folder: Run directory.
    checkpoint: "best", "last" or a step; "": the default of `translate`.
    license, parser: See `ExportedModel`.

  Raises:
    InputError: There is no run, or no such checkpoint.
  """
  run = workdir.open_run(folder)
  chosen, _ = parameters.read(run, checkpoint, reject_corrupt=True)
  return ExportedModel(run, chosen, license, parser)
