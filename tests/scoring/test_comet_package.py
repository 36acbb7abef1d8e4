"""The package COMET: $JAXSYN_COMET_PYTHON is a Python that has it."""

import json
import os
import pathlib
import shutil
import subprocess

import numpy as np
import pytest

from jaxsyn.errors import InputError
from jaxsyn.scoring.comet import Comet
from jaxsyn.scoring.scorers import References
from jaxsyn.scoring.settings import Settings

PYTHON = os.environ.get("JAXSYN_COMET_PYTHON", "")
pytestmark = pytest.mark.skipif(
  not PYTHON,
  reason="COMET needs a separate environment: set $JAXSYN_COMET_PYTHON",
)
SOURCE = [
  "der Hund beißt .",
  "eine Anhörung ist heute",
  "",
  "nein",
  "ja \u2028",
]
REFERENCE = ["the dog bites .", "a hearing is scheduled today", "", "no", "yes"]
HYPOTHESES = {
  "a": ["the dog bites .", "hearing scheduled", "yes", "no", "yes"],
  "b": ["dog the bites .", "a hearing is scheduled today", "", "no", "x " * 99],
}


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
  """A checkpoint of COMET with random weights."""
  maker = pathlib.Path(__file__).with_name("comet_checkpoint.py")
  folder = tmp_path_factory.mktemp("comet")
  printed = subprocess.run(
    [PYTHON, maker, folder], capture_output=True, text=True, check=True
  ).stdout
  return printed.split("\n")[-2]


@pytest.fixture
def files(tmp_path):
  texts = {"source": SOURCE, "reference": REFERENCE, **HYPOTHESES}
  for name, lines in texts.items():
    (tmp_path / name).write_text("".join(f"{line}\n" for line in lines))
  return {name: str(tmp_path / name) for name in texts}


def test_scores_are_those_of_its_own_command(checkpoint, files, tmp_path):
  # The command computes in half precision (11 bits).
  subprocess.run(
    [
      pathlib.Path(PYTHON).with_name("comet-score"),
      "--quiet",
      "--model",
      checkpoint,
      "--gpus",
      "0",
      "--num_workers",
      "0",
      "-s",
      files["source"],
      "-r",
      files["reference"],
      "-t",
      files["a"],
      files["b"],
      "--to_json",
      tmp_path / "scores.json",
    ],
    check=True,
  )
  theirs = json.loads((tmp_path / "scores.json").read_text())
  expected = {
    name: [s["COMET"] for s in theirs[files[name]]] for name in HYPOTHESES
  }
  assert len({score for item in expected.values() for score in item}) >= 7
  settings = Settings(
    ("comet", "exact"), comet_model=checkpoint, comet_python=PYTHON
  )
  (scorer, _) = settings.scorers([REFERENCE], SOURCE)
  for name, lines in HYPOTHESES.items():
    measured = scorer.measure(lines)
    np.testing.assert_allclose(
      measured.sentence_B, 100 * np.array(expected[name]), rtol=5e-3
    )
    assert measured.value == pytest.approx(measured.sentence_B.mean())


def test_equal_sentences_have_one_score(checkpoint):
  # In another batch the last digits of a score differ.
  scorer = Comet(checkpoint, PYTHON).scorer(
    References([REFERENCE], sources=SOURCE)
  )
  first = scorer.measure(HYPOTHESES["a"]).sentence_B
  again = scorer.measure(
    [*HYPOTHESES["b"][:3], *HYPOTHESES["a"][3:]]
  ).sentence_B
  assert (first[3:] == again[3:]).all() and (first[:3] != again[:3]).all()


def test_rejects_a_corrupt_checkpoint(checkpoint, tmp_path):
  complete = pathlib.Path(checkpoint)
  broken = tmp_path / "broken" / "checkpoints" / "model.ckpt"
  broken.parent.mkdir(parents=True)
  broken.write_bytes(complete.read_bytes()[:1000])
  inputs = References([REFERENCE], sources=SOURCE)
  with pytest.raises(InputError, match=r"cannot be loaded: .*hparams\.yaml"):
    Comet(str(broken), PYTHON).scorer(inputs)
  shutil.copy(complete.parents[1] / "hparams.yaml", broken.parents[1])
  with pytest.raises(InputError, match=r"cannot be loaded: .*Error"):
    Comet(str(broken), PYTHON).scorer(inputs)
