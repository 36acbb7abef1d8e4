"""Corrupt and foreign parser models and vocabularies are rejected."""

import re
import shutil
import subprocess
import sys

import numpy as np
import pytest
import toy_folders
from corruptions import CORRUPTIONS, corrupted

from jaxsyn.data.sentence.parsers import recorded
from jaxsyn.data.sentence.vocabulary import Subwords, train
from jaxsyn.data.store import manifests
from jaxsyn.errors import InputError

LINES = [f"the {a} {b}" for a in ("cat", "dog", "owl") for b in ("ran", "sat")]

LOAD = """
import sys
import numpy as np
from corruptions import CORRUPTIONS
from jaxsyn.data.sentence.parsers.udpipe import UDPipe
from jaxsyn.errors import InputError
path, corrupt = sys.argv[1:]
data = open(path, "rb").read()
right = UDPipe(path)("Two men play.")
for name, corruption in CORRUPTIONS.items():
  with open(corrupt, "wb") as file:
    file.write(corruption(data, np.random.default_rng(0)))
  try:
    assert UDPipe(corrupt)("Two men play.") == right, name
  except InputError as error:
    print(error)
"""


def test_corrupt_parsers_are_rejected(shared_data, tmp_path):
  model = shared_data / "udpipe" / "english.udpipe"
  if not model.is_file():
    pytest.skip(f"no parser at {model}")
  corrupt = tmp_path / "corrupt.udpipe"
  done = subprocess.run(
    [sys.executable, "-c", LOAD, str(model), str(corrupt)],
    capture_output=True,
    text=True,
    check=False,
    env={"PYTHONPATH": ":".join(sys.path)},
  )
  assert done.returncode == 0, done.stderr
  # Data after the end of a model is not read.
  rejected = f"{corrupt}: not a (complete) UDPipe 1 model"
  assert done.stdout.count(rejected) == len(CORRUPTIONS) - 2


@pytest.fixture
def folder(tmp_path):
  """A dataset directory with a real vocabulary, and a parser in name only."""
  (tmp_path / "toy").mkdir()
  vocabulary = train(LINES, tmp_path / "vocabulary.model", Subwords(size=30))
  entry = {
    "file": "vocabulary.model",
    "sha256": vocabulary.sha256,
    "size": vocabulary.size,
  }
  inputs = {"source": entry, "target": entry}
  manifest = toy_folders.manifest_of(tmp_path, vocabulary=inputs)
  manifests.write(tmp_path, manifest)
  return tmp_path


def test_corrupt_and_foreign_vocabularies_are_rejected(folder):
  """SentencePiece opens some of them, but their hash differs."""
  path, manifest = folder / "vocabulary.model", manifests.read(folder)
  foreign = folder / "foreign.model"
  train([*LINES, "more text"], foreign, Subwords(size=35))
  data, opened = path.read_bytes(), 0
  for seed in range(12):
    changed = foreign.read_bytes()
    if seed:
      changed = corrupted(data, np.random.default_rng(seed))
    if changed == data:
      continue
    path.write_bytes(changed)
    with pytest.raises(InputError, match=re.escape(str(path))) as error:
      manifests.vocabulary(folder, manifest, "source")
    differs = "is not the source vocabulary of dataset toy" in str(error.value)
    assert seed or differs
    opened += differs
  assert opened >= 2


def test_a_parser_of_another_dataset_is_rejected(folder, shared_data):
  model = shared_data / "udpipe" / "english.udpipe"
  if not model.is_file():
    pytest.skip(f"no parser at {model}")
  shutil.copy(model, folder / "parser.source.udpipe")
  entry = {"file": "parser.source.udpipe", "sha256": "7" * 64, "name": "en"}
  manifest = manifests.read(folder)
  manifest["parser"] = {"source": entry}
  for place in ("", str(model)):
    spec = recorded.spec(folder, manifest, "source", place)
    with pytest.raises(InputError, match=r"is not the source parser of data"):
      recorded.open_recorded(spec, manifest, "source")
