"""Flipped, cut and foreign models: refused, and no process dies of them."""

import shutil
import subprocess
import sys

import numpy as np
import pytest
import toy_folders

from benchmarks.faults import mutants
from benchmarks.faults.harm import HARMS
from jaxsyn.data.sentence.parsers import recorded
from jaxsyn.data.sentence.vocabulary import Subwords, Vocabulary, train
from jaxsyn.data.store import manifests
from jaxsyn.errors import InputError

LINES = [f"the {a} {b}" for a in ("cat", "dog", "owl") for b in ("ran", "sat")]

LOAD = """
import sys
import numpy as np
from benchmarks.faults.harm import HARMS
from jaxsyn.data.sentence.parsers.udpipe import UDPipe
from jaxsyn.errors import InputError
path, harmed = sys.argv[1:]
data = open(path, "rb").read()
right = UDPipe(path)("Two men play.")
for name, harm in HARMS.items():
  with open(harmed, "wb") as file:
    file.write(harm(data, np.random.default_rng(0)))
  try:
    assert UDPipe(harmed)("Two men play.") == right, name
  except InputError as error:
    print(error)
"""


def test_damaged_parsers_are_refused(shared_data, tmp_path):
  model = shared_data / "udpipe" / "english.udpipe"
  if not model.is_file():
    pytest.skip(f"no parser at {model}")
  harmed = tmp_path / "harmed.udpipe"
  done = subprocess.run(
    [sys.executable, "-c", LOAD, str(model), str(harmed)],
    capture_output=True,
    text=True,
    check=False,
    env={"PYTHONPATH": ":".join(sys.path)},
  )
  assert done.returncode == 0, done.stderr
  # What stands behind the end of a model is not read.
  rejected = f"{harmed}: not a (complete) UDPipe 1 model"
  assert done.stdout.count(rejected) == len(HARMS) - 1


@pytest.fixture
def folder(tmp_path):
  """A prepared folder with a real vocabulary, and a parser in name only."""
  (tmp_path / "toy").mkdir()
  vocabulary = train(LINES, tmp_path / "vocabulary.model", Subwords(size=30))
  entry = {
    "file": "vocabulary.model",
    "sha256": vocabulary.sha256,
    "size": vocabulary.size,
  }
  inputs = {"source": entry, "target": entry}
  toy_folders.write(tmp_path, {"vocabulary": inputs})
  return tmp_path


def refused(folder):
  """Why a vocabulary is not taken, by whoever reads its folder."""
  manifest = manifests.read(folder)
  with pytest.raises(InputError) as message:
    vocabulary = Vocabulary(folder / "vocabulary.model")
    manifests.check_vocabulary(manifest, vocabulary)
  with pytest.raises(InputError) as opened:
    manifests.vocabulary(folder, manifest, "source")
  assert str(opened.value) == str(message.value)
  return str(message.value)


def test_damaged_vocabularies_are_refused(folder):
  """SentencePiece takes some of them: their hash does not fit."""
  path = folder / "vocabulary.model"
  data, chosen = path.read_bytes(), 0
  for seed in range(40):
    harmed = mutants.harmed(data, np.random.default_rng(seed))
    if harmed == data:
      continue
    path.write_bytes(harmed)
    message = refused(folder)
    chosen += "is not the source vocabulary of data set toy" in message
    assert str(path) in message
  assert chosen >= 3


def test_a_vocabulary_of_another_data_set_is_refused(folder, tmp_path):
  train(
    [*LINES, "more text"], tmp_path / "other" / "x.model", Subwords(size=35)
  )
  shutil.copy(tmp_path / "other" / "x.model", folder / "vocabulary.model")
  assert "is not the source vocabulary of data set toy" in refused(folder)


def test_a_parser_of_another_data_set_is_refused(folder, shared_data):
  model = shared_data / "udpipe" / "english.udpipe"
  if not model.is_file():
    pytest.skip(f"no parser at {model}")
  shutil.copy(model, folder / "parser.source.udpipe")
  entry = {"file": "parser.source.udpipe", "sha256": "7" * 64, "name": "en"}
  manifest = manifests.read(folder)
  manifest["parser"] = {"source": entry}
  manifest["files"]["parser.source.udpipe"] = {"bytes": 1, "crc32c": "0" * 8}
  manifests.write(folder, manifest)
  manifest = manifests.read(folder)
  for place in ("", str(model)):
    spec = recorded.spec(folder, manifest, "source", place)
    with pytest.raises(
      InputError, match=r"is not the source parser of data se"
    ):
      recorded.open_recorded(spec, manifest, "source")
