"""Export formats of trained models, which `jaxsyn.export` lists."""

from __future__ import annotations

import dataclasses

from jaxsyn.session.workdir import Run
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
