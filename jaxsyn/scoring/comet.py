"""COMET: a trained model that reads source, translation and reference.

Rei et al. 2020, "COMET: A Neural Framework for MT Evaluation" (EMNLP), and 2022,
"COMET-22" (WMT). Its package cannot be where JAX is, for it wants NumPy before 2
and JAX one from 2 on. So it has an environment of its own, in which
`jaxsyn.scoring.comet_process` runs, once for all systems that are scored.
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
from typing import IO, Any, ClassVar

import numpy as np

from jaxsyn.errors import InputError
from jaxsyn.options import option
from jaxsyn.scoring.scorers import (
  Lines,
  Metric,
  References,
  Scorer,
  mean_of_scores,
  no_text,
)

_PROCESS = pathlib.Path(__file__).with_name("comet_process.py")
_VERSION = "import importlib.metadata as m; print(m.version('unbabel-comet'))"
_INSTALL = (
  "It cannot be installed beside JAX (it wants numpy<2), so make an environment "
  "for it: python3 -m venv comet && comet/bin/pip install "
  "'unbabel-comet>=2.2.7,<2.3' 'setuptools>=70,<81'; then --comet_python comet/bin/python."
)

Sample = tuple[str, str, str]  # source, translation, reference


@dataclasses.dataclass(frozen=True)
class Comet(Metric):
  """What it is of the whole test set: the mean over sentences, times 100."""

  model: str = option(
    "Unbabel/wmt22-comet-da",
    "COMET's model: a name, which is downloaded once, or a checkpoint (.ckpt; "
    "hparams.yaml is in the folder above its own).",
  )
  python: str = option(
    "",
    "Python of the environment that has COMET, as comet/bin/python; empty: "
    "this one, which then says how to make such an environment.",
  )

  title: ClassVar[str] = "COMET"
  needs_sources: ClassVar[bool] = True

  def check(self) -> None:
    self.version()
    if self.model.endswith(".ckpt") and not os.path.isfile(self.model):
      raise InputError(f"--comet_model {self.model}: there is no such file.")

  def version(self) -> str:
    """Of its package; raises InputError where there is none."""
    python = self.python or sys.executable
    try:
      done = subprocess.run(
        [python, "-c", _VERSION], capture_output=True, text=True
      )
    except OSError as error:
      raise InputError(
        f"--comet_python {python} cannot be started: {error.strerror}. {_INSTALL}"
      ) from None
    if done.returncode:
      raise InputError(f"{python} has no package unbabel-comet. {_INSTALL}")
    return done.stdout.strip()

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
    version, program = self.version(), Program(self)
    (lines,) = references.lines
    known: dict[Sample, float] = {}

    def scores(hypotheses: Lines) -> np.ndarray:
      # What is equal has one score: in other company it differs in last digits.
      texts = (references.sources, hypotheses, lines)
      samples = list(zip(*(map(str.strip, text) for text in texts)))
      new = [s for s in dict.fromkeys(samples) if s not in known]
      known.update(zip(new, program.scores(new)))
      return np.array([known[sample] for sample in samples])

    # A path is of one machine, what is in the file of all.
    local = os.path.exists(self.model)
    name = pathlib.PurePath(self.model).name if local else self.model
    return mean_of_scores(
      *(self, len(references), scores),
      references=int(program.reads_references),
      signature=f"case:mixed|model:{name}|sha256:{program.sha256[:12]}|comet:{version}",
    )

  def stored(self, sentences: int, signature: str) -> Scorer:
    # Without the model, which would be loaded for nothing.
    references, _, rest = signature.partition("|")
    return mean_of_scores(
      *(self, sentences, no_text),
      references=int(references.removeprefix("nrefs:")),
      signature=rest,
    )


class Program:
  """The process that has loaded the model; it ends with this one, or before.

  Attributes:
    process: it.
    sha256: of the checkpoint.
    reads_references: whether the model does.
  """

  def __init__(self, spec: Comet):
    """Starts it and waits until the model is loaded.

    Raises:
      InputError: it cannot be loaded; has what COMET said last.
    """
    self._model = spec.model
    self._said = tempfile.TemporaryFile()  # noqa: SIM115
    self.process = subprocess.Popen(
      [spec.python or sys.executable, str(_PROCESS), spec.model],
      stdin=subprocess.PIPE,
      stdout=subprocess.PIPE,
      stderr=self._said,
      encoding="utf-8",
    )
    weakref.finalize(self, _end, self.process)
    answer = self._answer("cannot be loaded")
    self.sha256: str = answer["sha256"]
    self.reads_references: bool = answer["references"]

  def scores(self, samples: Sequence[Sample]) -> list[float]:
    """One of each sample.

    Raises:
      InputError: it dies, or gives what is no number.
    """
    if not samples:
      return []
    names = ("src", "mt", "ref")[: 3 if self.reads_references else 2]
    requests = [dict(zip(names, sample)) for sample in samples]
    stdin = self.process.stdin
    assert stdin
    try:
      stdin.write(f"{json.dumps(requests)}\n")
      stdin.flush()
    except BrokenPipeError:
      raise self._fault("ended") from None
    scores: list[float] = self._answer("ended")
    if len(scores) != len(samples) or not all(map(math.isfinite, scores)):
      raise self._fault("gave a score that is no number")
    return scores

  def _answer(self, otherwise: str) -> Any:
    stdout = self.process.stdout
    assert stdout
    line = stdout.readline()
    if not line:
      raise self._fault(otherwise)
    return json.loads(line)

  def _fault(self, what: str) -> InputError:
    last = _last_line(self._said)
    return InputError(
      f"COMET's model {self._model} {what}: {last or 'it said nothing'}."
    )


def _end(process: subprocess.Popen[str]) -> None:
  """It ends when its input does."""
  assert process.stdin and process.stdout
  process.stdin.close()
  process.stdout.close()
  process.wait()


def _last_line(file: IO[bytes]) -> str:
  """Returns the last line that is not blank of a file; "" if there is none."""
  if file.closed:
    return ""
  size = os.fstat(file.fileno()).st_size
  end = os.pread(file.fileno(), 1 << 12, max(0, size - (1 << 12)))
  rows = end.decode(errors="replace").split("\n")
  return next((row.strip() for row in reversed(rows) if row.strip()), "")
