"""COMET, a trained metric of source, translation and reference.

Rei et al. 2020, "COMET: A Neural Framework for MT Evaluation" (EMNLP), and 2022,
"COMET-22" (WMT). COMET requires NumPy 1 and JAX requires NumPy 2, so COMET has an
environment of its own, in which one process of `jaxsyn.scoring.comet_process`
scores all systems.
"""

from __future__ import annotations

import dataclasses
import json
import math
import os
import pathlib
import subprocess
import sys
import tempfile
import weakref
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from jaxsyn.errors import InputError
from jaxsyn.options import option
from jaxsyn.scoring.scorers import (
  Lines,
  Metric,
  References,
  Scorer,
  mean_statistics,
)

_PROCESS = pathlib.Path(__file__).with_name("comet_process.py")
_FIND = "import importlib.metadata as m; m.version('unbabel-comet')"
_INSTALL = (
  "COMET needs numpy<2 and so cannot be installed with JAX. Create an environment "
  "for it: python3 -m venv comet && comet/bin/pip install "
  "'unbabel-comet>=2.2.7,<2.3' 'setuptools>=70,<81'; then pass --comet_python "
  "comet/bin/python."
)

Sample = tuple[str, str, str]  # source, translation, reference


@dataclasses.dataclass(frozen=True)
class Comet(Metric):
  """COMET metric: the mean of the sentence scores, times 100."""

  model: str = option(
    "Unbabel/wmt22-comet-da",
    "COMET model: a model name (downloaded once) or a checkpoint file (.ckpt, "
    "with hparams.yaml in the parent directory).",
  )
  python: str = option(
    "",
    "Python interpreter of an environment with COMET, such as "
    "comet/bin/python. Empty: the current one.",
  )

  title: ClassVar[str] = "COMET"
  needs_sources: ClassVar[bool] = True

  def check(self) -> None:
    python = self.python or sys.executable
    try:
      done = subprocess.run([python, "-c", _FIND], capture_output=True)
    except OSError as error:
      raise InputError(
        f"--comet_python {python} cannot be started: {error.strerror}. {_INSTALL}"
      ) from None
    if done.returncode:
      raise InputError(f"{python} has no package unbabel-comet. {_INSTALL}")
    if self.model.endswith(".ckpt") and not os.path.isfile(self.model):
      raise InputError(f"--comet_model {self.model}: there is no such file.")

  def scorer(self, references: References) -> Scorer:
    if len(references.lines) != 1:
      raise InputError(
        f"COMET reads one reference, got {len(references.lines)}."
      )
    if len(references.sources) != len(references):
      raise InputError(
        f"COMET reads the sources too (--source): got {len(references.sources)} "
        f"lines for {len(references)} references."
      )
    process = CometProcess(self)
    known: dict[Sample, float] = {}

    def statistics(hypotheses: Lines) -> np.ndarray:
      # Equal samples get one score: in another batch its last digits differ.
      texts = (references.sources, hypotheses, references.lines[0])
      samples = list(zip(*(map(str.strip, text) for text in texts)))
      new = [s for s in dict.fromkeys(samples) if s not in known]
      known.update(zip(new, process.scores(new)))
      return mean_statistics(np.array([known[s] for s in samples]))

    # Without the directory, which differs between machines.
    local = os.path.exists(self.model)
    name = pathlib.PurePath(self.model).name if local else self.model
    signature = (
      f"nrefs:{int(process.reads_references)}|case:mixed|model:{name}"
      f"|sha256:{process.sha256[:12]}|comet:{process.version}"
    )
    return Scorer(self, len(references), signature, statistics)


class CometProcess:
  """Handle of a child process that computes scores with a COMET model.

  Attributes:
    version: Version of COMET.
    sha256: Hash of the checkpoint.
    reads_references: Whether the model reads references.
  """

  def __init__(self, spec: Comet):
    """Starts the process and waits until the model is loaded.

    Raises:
      InputError: The model cannot be loaded; the message has COMET's last line.
    """
    self._model = spec.model
    self._stderr = tempfile.TemporaryFile()  # noqa: SIM115
    self._process = subprocess.Popen(
      [spec.python or sys.executable, str(_PROCESS), spec.model],
      stdin=subprocess.PIPE,
      stdout=subprocess.PIPE,
      stderr=self._stderr,
      encoding="utf-8",
    )
    weakref.finalize(self, _end, self._process)
    answer = self._read("cannot be loaded")
    self.version: str = answer["version"]
    self.sha256: str = answer["sha256"]
    self.reads_references: bool = answer["references"]

  def scores(self, samples: Sequence[Sample]) -> list[float]:
    """Returns a COMET score per sample (source, translation and reference).

    Raises:
      InputError: The process ended, or returned something other than numbers.
    """
    if not samples:
      return []
    names = ("src", "mt", "ref")[: 3 if self.reads_references else 2]
    requests = [dict(zip(names, sample)) for sample in samples]
    stdin = self._process.stdin
    assert stdin
    try:
      stdin.write(f"{json.dumps(requests)}\n")
      stdin.flush()
    except BrokenPipeError:
      raise self._error("ended") from None
    scores: list[float] = self._read("ended")
    if len(scores) != len(samples) or not all(map(math.isfinite, scores)):
      raise self._error("returned a score that is not a number")
    return scores

  def _read(self, failure: str) -> Any:
    """Reads the next response of the process; InputError if it has ended."""
    assert self._process.stdout
    line = self._process.stdout.readline()
    if not line:
      raise self._error(failure)
    return json.loads(line)

  def _error(self, failure: str) -> InputError:
    # Reads without moving the position at which the process writes.
    size = os.fstat(self._stderr.fileno()).st_size
    end = os.pread(self._stderr.fileno(), 1 << 12, max(0, size - (1 << 12)))
    lines = [line.strip() for line in end.decode(errors="replace").split("\n")]
    last = next(filter(None, reversed(lines)), "no error message")
    return InputError(f"COMET's model {self._model} {failure}: {last}.")


def _end(process: subprocess.Popen[str]) -> None:
  """Ends a COMET process by closing its standard input."""
  assert process.stdin and process.stdout
  process.stdin.close()
  process.stdout.close()
  process.wait()
