"""COMET, with a small program in place of its package, and with the package.

$JAXSYN_COMET_PYTHON is a Python that has the package.
"""

import hashlib
import json
import os
import pathlib
import subprocess
import sys

import numpy as np
import pytest

from jaxsyn import score as command
from jaxsyn.errors import InputError
from jaxsyn.scoring.comet import Comet
from jaxsyn.scoring.scorers import References
from jaxsyn.scoring.settings import Settings

PYTHON = os.environ.get("JAXSYN_COMET_PYTHON", "")
needs_package = pytest.mark.skipif(
  not PYTHON,
  reason="COMET needs a separate environment: set $JAXSYN_COMET_PYTHON",
)
SOURCE = ["der Hund", "eine Anhörung", "", "nein", "ja \u2028"]
REFERENCE = ["the dog bites .", "a hearing is scheduled", "", "no", "yes"]
FIRST = ["the dog bites .", "hearing scheduled", "yes", "no", "yes"]
SECOND = ["dog the bites .", "a hearing is", "", "no", "yes"]
INPUTS = References([REFERENCE], sources=SOURCE)

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
    self.scores = [0.0 if self.content == "short" else float("nan")]
    self.scores *= 1 if self.content == "short" else len(samples)
    if self.content == "weights":
      self.scores = [
        len({*s["mt"].split()} & {*s["ref"].split()}) / (1 + len(s["src"].split()))
        + sum(len(one["mt"]) for one in samples) * 1e-9 for s in samples]
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
  scorer = metric.scorer(INPUTS)
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
    ("short", "returned a score that is not a number"),
  ],
)
def test_reports_failures_of_the_process(comet, content, message):
  with pytest.raises(InputError, match=message):
    comet(content).scorer(INPUTS).measure(FIRST)


def test_rejects_invalid_inputs_and_a_python_without_comet(tmp_path):
  with pytest.raises(InputError, match=r"sources too \(--source\): got 0"):
    Comet().scorer(References([REFERENCE]))
  with pytest.raises(InputError, match="one reference, got 2"):
    Comet().scorer(References([REFERENCE, REFERENCE], sources=SOURCE))
  with pytest.raises(InputError, match="pip install 'unbabel-comet>="):
    Settings(("comet",)).with_defaults("de")
  missing = Settings(("comet",), comet_python=str(tmp_path / "python"))
  (tmp_path / "text").write_text("a\n")
  with pytest.raises(InputError, match="cannot be started: No such file"):
    command.run([tmp_path / "text"], [tmp_path / "text"], missing)


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
  """A checkpoint of COMET with random weights."""
  maker = pathlib.Path(__file__).with_name("comet_checkpoint.py")
  printed = subprocess.run(
    [PYTHON, maker, tmp_path_factory.mktemp("comet")],
    capture_output=True,
    text=True,
    check=True,
  ).stdout
  return printed.split("\n")[-2]


@needs_package
def test_scores_equal_those_of_comet_score(checkpoint, tmp_path):
  texts = {"s": SOURCE, "r": REFERENCE, "t": FIRST}
  files = []
  for name, lines in texts.items():
    (tmp_path / name).write_text("".join(f"{line}\n" for line in lines))
    files += [f"-{name}", str(tmp_path / name)]
  scores = tmp_path / "scores.json"
  program = pathlib.Path(PYTHON).with_name("comet-score")
  options = ["--quiet", "--model", checkpoint, "--gpus=0", "--num_workers=0"]
  subprocess.run([program, *options, *files, "--to_json", scores], check=True)
  theirs = json.loads(scores.read_text())[str(tmp_path / "t")]
  expected = 100 * np.array([sentence["COMET"] for sentence in theirs])
  assert len({*expected}) >= 4
  measured = Comet(checkpoint, PYTHON).scorer(INPUTS).measure(FIRST)
  # The command computes in half precision (11 bits).
  np.testing.assert_allclose(measured.sentence_B, expected, rtol=5e-3)
  assert measured.value == pytest.approx(measured.sentence_B.mean())
