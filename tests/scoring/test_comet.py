"""COMET, with a small program in place of its package."""

import hashlib
import sys

import pytest

from jaxsyn import score as command
from jaxsyn.errors import InputError
from jaxsyn.scoring.comet import Comet
from jaxsyn.scoring.scorers import References
from jaxsyn.scoring.settings import Settings

SOURCE = ["der Hund", "eine Anhörung", "", "nein", "ja \u2028"]
REFERENCE = ["the dog bites .", "a hearing is scheduled", "", "no", "yes"]
FIRST = ["the dog bites .", "hearing scheduled", "yes", "no", "yes"]
SECOND = ["dog the bites .", "a hearing is", "", "no", "yes"]

# The package: common words of translation and reference per word of the source. As
# in COMET, the last digits of a score depend on the batch.
PACKAGE = """
import os
def load_from_checkpoint(path):
  content = open(path).read()
  if content == "corrupt":
    raise ValueError("no weights")
  return Model(content)
class Model:
  def __init__(self, content):
    self.content = content
  def requires_references(self):
    return True
  def predict(self, samples, gpus, progress_bar):
    print("libraries print this")
    if self.content == "ends":
      os._exit(1)
    self.scores = [float("nan")]
    if self.content == "weights":
      self.scores = [
        len({*s["mt"].split()} & {*s["ref"].split()}) / (1 + len(s["src"].split()))
        + len(samples) * 1e-9 for s in samples]
    return self
"""


@pytest.fixture
def comet(tmp_path):
  """A function: content of a checkpoint -> metric, in its own environment."""
  packages = tmp_path / "packages"
  for name, content in {
    "comet/__init__.py": PACKAGE,
    "torch.py": "class cuda:\n  device_count = staticmethod(lambda: 0)\n",
    "unbabel_comet-2.2.7.dist-info/METADATA": (
      "Metadata-Version: 2.1\nName: unbabel-comet\nVersion: 2.2.7\n"
    ),
  }.items():
    (packages / name).parent.mkdir(parents=True, exist_ok=True)
    (packages / name).write_text(content)
  python = tmp_path / "python"
  run = f'PYTHONPATH={packages} exec {sys.executable} "$@"\n'
  python.write_text(f"#!/bin/sh\n{run}")
  python.chmod(0o755)

  def make(content):
    checkpoint = tmp_path / "model.ckpt"
    checkpoint.write_text(content)
    return Comet(str(checkpoint), str(python))

  return make


def test_scores_of_sentences_and_their_mean(comet):
  metric = comet("weights")
  metric.check()
  scorer = metric.scorer(References([REFERENCE], sources=SOURCE))
  first = scorer.measure(FIRST)
  # Common words by words of the source and 1: 4/3, 2/3, 0, 1/2, 1/2.
  expected = [400 / 3, 200 / 3, 0, 50, 50]
  assert first.sentence_B == pytest.approx(expected, abs=1e-5)
  assert first.value == pytest.approx(60, abs=1e-5)
  # Equal sentences have one score, also in another batch.
  second = scorer.measure(SECOND)
  assert (second.sentence_B[3:] == first.sentence_B[3:]).all()
  assert second.sentence_B[1] == pytest.approx(100)
  sha256 = hashlib.sha256(b"weights").hexdigest()[:12]
  assert first.score.signature == (
    f"nrefs:1|case:mixed|model:model.ckpt|sha256:{sha256}|comet:2.2.7"
  )


@pytest.mark.parametrize(
  ("content", "message"),
  [
    ("corrupt", r"cannot be loaded: ValueError: no weights"),
    ("ends", "ended: libraries print this"),
    ("nan", "returned a score that is not a number"),
  ],
)
def test_reports_failures_of_the_process(comet, content, message):
  with pytest.raises(InputError, match=message):
    references = References([REFERENCE], sources=SOURCE)
    comet(content).scorer(references).measure(FIRST)


def test_rejects_a_python_without_comet(tmp_path):
  with pytest.raises(InputError, match="pip install 'unbabel-comet>="):
    Settings(("comet",)).with_defaults("de")
  missing = Settings(("comet",), comet_python=str(tmp_path / "python"))
  (tmp_path / "text").write_text("a\n")
  with pytest.raises(InputError, match="cannot be started: No such file"):
    command.run([tmp_path / "text"], [tmp_path / "text"], missing)


def test_rejects_invalid_inputs():
  with pytest.raises(InputError, match=r"sources too \(--source\): got 0"):
    Comet().scorer(References([REFERENCE]))
  with pytest.raises(InputError, match="one reference, got 2"):
    Comet().scorer(References([REFERENCE, REFERENCE], sources=SOURCE))
  with pytest.raises(InputError, match="Did you mean 'comet'"):
    Settings(("commet",))
