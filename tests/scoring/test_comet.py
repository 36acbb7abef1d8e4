"""COMET, where there is one: $JAXSYN_COMET_PYTHON is the Python that has it."""

import dataclasses
import json
import os
import pathlib
import subprocess

import numpy as np
import pytest

from jaxsyn import score as command
from jaxsyn.errors import InputError
from jaxsyn.scoring.comet import Comet
from jaxsyn.scoring.scorers import References
from jaxsyn.scoring.settings import Settings

PYTHON = os.environ.get("JAXSYN_COMET_PYTHON", "")
WITH_COMET = pytest.mark.skipif(
  not PYTHON,
  reason="COMET cannot be installed beside JAX: $JAXSYN_COMET_PYTHON names no "
  "Python that has it",
)
SOURCE = [
  "der Hund beißt .",
  "eine Anhörung ist heute",
  "",
  "nein",
  "ja \u2028",
]
MEANT = ["the dog bites .", "a hearing is scheduled today", "", "no", "yes"]
SAID = {
  "a": ["the dog bites .", "hearing scheduled", "yes", "no", "yes"],
  "b": ["dog the bites .", "a hearing is scheduled today", "", "no", "x " * 99],
}


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
  """Of COMET's own classes, with random weights."""
  maker = pathlib.Path(__file__).with_name("comet_checkpoint.py")
  folder = tmp_path_factory.mktemp("comet")
  printed = subprocess.run(
    [PYTHON, maker, folder], capture_output=True, text=True, check=True
  ).stdout
  return printed.split("\n")[-2]


@pytest.fixture
def files(tmp_path):
  texts = {"source": SOURCE, "meant": MEANT, **SAID}
  for name, lines in texts.items():
    (tmp_path / name).write_text("".join(f"{line}\n" for line in lines))
  return {name: str(tmp_path / name) for name in texts}


@WITH_COMET
def test_scores_are_those_of_its_own_command(checkpoint, files, tmp_path):
  """Up to half precision, in which that command computes: 11 bits."""
  subprocess.run(
    [
      *(pathlib.Path(PYTHON).with_name("comet-score"), "--quiet"),
      *("--model", checkpoint, "--gpus", "0", "--num_workers", "0"),
      *("-s", files["source"], "-r", files["meant"]),
      *("-t", files["a"], files["b"], "--to_json", tmp_path / "theirs.json"),
    ],
    check=True,
  )
  theirs = json.loads((tmp_path / "theirs.json").read_text())
  expected = {name: [s["COMET"] for s in theirs[files[name]]] for name in SAID}
  assert len({score for item in expected.values() for score in item}) >= 7
  settings = Settings(
    ("comet", "exact"), comet_model=checkpoint, comet_python=PYTHON
  )
  (scorer, _) = settings.scorers([MEANT], SOURCE)
  for name, lines in SAID.items():
    measured = scorer.measure(lines)
    np.testing.assert_allclose(
      measured.sentence_B, 100 * np.array(expected[name]), rtol=5e-3
    )
    assert measured.value == pytest.approx(measured.sentence_B.mean())


@WITH_COMET
def test_equal_sentences_have_one_score(checkpoint):
  """In other company its last digits would differ."""
  scorer = Comet(checkpoint, PYTHON).scorer(References([MEANT], sources=SOURCE))
  first = scorer.measure(SAID["a"]).sentence_B
  again = scorer.measure([*SAID["b"][:3], *SAID["a"][3:]]).sentence_B
  assert (first[3:] == again[3:]).all() and (first[:3] != again[:3]).all()


@WITH_COMET
def test_a_damaged_checkpoint_is_told(checkpoint, tmp_path):
  complete = pathlib.Path(checkpoint)
  broken = tmp_path / "broken" / "checkpoints" / "model.ckpt"
  broken.parent.mkdir(parents=True)
  broken.write_bytes(complete.read_bytes()[:1000])
  page = "hparams.yaml"
  inputs = References([MEANT], sources=SOURCE)
  with pytest.raises(InputError, match=r"cannot be loaded: .*hparams\.yaml"):
    Comet(str(broken), PYTHON).scorer(inputs)
  (broken.parents[1] / page).write_bytes(
    (complete.parents[1] / page).read_bytes()
  )
  with pytest.raises(InputError, match=r"cannot be loaded: .*Error"):
    Comet(str(broken), PYTHON).scorer(inputs)


def test_without_comet_it_says_how_to_have_it(files, tmp_path):
  """Before anything is read or trained."""
  request = Settings(("comet",))
  with pytest.raises(
    InputError, match="comet/bin/pip install 'unbabel-comet>="
  ):
    request.with_defaults("de")
  null = dataclasses.replace(request, comet_python=str(tmp_path / "python"))
  with pytest.raises(InputError, match="cannot be started: No such file"):
    command.run([files["meant"]], [files["a"]], null)


def test_rejects_unreadable_files():
  with pytest.raises(InputError, match=r"sources too \(--source\): got 0"):
    Comet().scorer(References([MEANT]))
  with pytest.raises(InputError, match="one reference, got 2"):
    Comet().scorer(References([MEANT, MEANT], sources=SOURCE))
  with pytest.raises(InputError, match="Did you mean 'comet'"):
    Settings(("commet",))
