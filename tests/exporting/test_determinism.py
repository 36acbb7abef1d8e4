"""An export of the same parameters has the same bytes in every process."""

import hashlib
import os
import subprocess
import sys

import pytest

from jaxsyn import train
from jaxsyn.session import exported
from jaxsyn.training.checkpoint_reader import Parameters

pytest.importorskip("safetensors", reason="extra hub")

EXPORT = """
import sys
from jaxsyn import export
for format in sys.argv[3:]:
  export.run(sys.argv[1], f"{sys.argv[2]}/{format}", format)
"""


def digests(folder):
  """SHA-256 of each file below a folder, by relative name."""
  return {
    str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
    for path in sorted(folder.rglob("*"))
    if path.is_file()
  }


def test_processes_export_the_same_bytes(tiny, tmp_path, environment):
  pytest.importorskip("ctranslate2", reason="extra ctranslate2")
  config = tiny("transformer")
  config.batch.shapes = 1
  config.train.update(
    steps=1, evaluate_every=9, save_every=1, selection="log_likelihood"
  )
  train.run(config, tmp_path / "run")
  formats = ("safetensors", "ctranslate2")
  found = []
  for seed in ("0", "1"):
    out = tmp_path / seed
    subprocess.run(
      [sys.executable, "-c", EXPORT, tmp_path / "run", out, *formats],
      env=environment | {"PYTHONHASHSEED": seed},
      check=True,
    )
    found.append(digests(out))
  assert len(found[0]) == 12, sorted(found[0])
  assert found[1] == found[0]


def test_the_file_of_parameters_is_the_same_each_time(tmp_path):
  """Its header is a hash table whose order another process would not repeat."""
  from numpy import arange

  params = {name: arange(3.0) * i for i, name in enumerate("abcdefgh")}
  result = set()
  for index in range(16):
    folder = tmp_path / str(index)
    os.mkdir(folder)
    exported.write(folder, Parameters(params, (1,)), "a title")
    result.add((folder / exported.ARRAYS).read_bytes())
  assert len(result) == 1
