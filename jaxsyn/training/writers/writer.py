"""What every writer of a run's figures can do."""

from __future__ import annotations

import dataclasses
import importlib
import pathlib
from collections.abc import Mapping
from types import ModuleType
from typing import Any

import numpy as np

from jaxsyn.errors import InputError


@dataclasses.dataclass(frozen=True)
class ResumedRun:
  """The run that a writer reports.

  Attributes:
    workdir: Run directory, which may be on an object store.
    start: Step that the run resumes from.
    config: Options, dotted name -> value.
  """

  workdir: pathlib.Path
  start: int
  config: Mapping[str, Any]


class Writer:
  """Writes figures, texts and pictures of one run somewhere."""

  def __init__(self, value: Any, run: ResumedRun):
    """Opens it.

    Args:
      value: value of its option in config.train.writers.
      run: that it writes about.

    Raises:
      InputError: its package is not installed, or refuses.
    """

  def scalars(self, step: int, values: Mapping[str, float]) -> None:
    """Figures at a step, by names such as "train/loss"."""
    raise NotImplementedError

  def text(self, name: str, step: int, text: str) -> None:
    """A text in Markdown."""
    raise NotImplementedError

  def picture(self, name: str, step: int, pixels: np.ndarray) -> None:
    """A picture: bytes by row, column and colour (red, green, blue)."""
    raise NotImplementedError

  def flush(self) -> None:
    """What was written can be read."""

  def close(self) -> None:
    """Ends it; nothing is lost."""


def package(name: str, option: str, extra: str) -> ModuleType:
  """A package that only one writer needs.

  Raises:
    InputError: it is not installed.
  """
  try:
    return importlib.import_module(name)
  except ImportError:
    raise InputError(
      f"{option} needs the package {name}: pip install -e '.[{extra}]'."
    ) from None
