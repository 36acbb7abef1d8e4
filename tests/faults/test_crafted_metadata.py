"""Crafted metadata of checkpoints and exports is rejected by one message.

Files of a real run and a real export are mutated as JSON, and their checksum is made
again, as an attacker or an older version would.
"""

import os
import shutil

import jax
import jax.numpy as jnp
import mutants
import numpy as np
import pytest

from jaxsyn import export
from jaxsyn.errors import InputError
from jaxsyn.exporting.model import open_model
from jaxsyn.session import parameters, workdir
from jaxsyn.training.checkpoint_writer import CheckpointWriter, Progress

COUNT = int(os.environ.get("JAXSYN_MUTANTS", "12"))  # of each file


@pytest.fixture(scope="module")
def run(runs, tmp_path_factory):
  folder = tmp_path_factory.mktemp("crafted") / "run"
  shutil.copytree(runs["pascal"], folder)
  return folder


def check_mutants(path, read):
  """Asserts that each mutant of a file is read, or rejected by its name."""
  intact = path.read_bytes()
  rejected = 0
  for seed in range(COUNT):
    path.write_bytes(mutants.json_text(intact, np.random.default_rng(seed)))
    try:
      read()
    except InputError as error:
      rejected += 1
      assert str(path.parent) in str(error), (seed, error)
      str(error).encode()
  path.write_bytes(intact)
  read()
  assert rejected >= COUNT // 4


@pytest.mark.parametrize("checkpoint", ["best", "last"])
def test_crafted_checkpoints_are_rejected(run, checkpoint):
  def read():
    opened = workdir.open_run(run)
    parameters.read(opened, checkpoint, reject_corrupt=True)

  folder = {"best": "best", "last": "checkpoints"}[checkpoint]
  check_mutants(run / folder / "20" / "metadata.json", read)


def test_crafted_exports_are_rejected(run, tmp_path):
  pytest.importorskip("safetensors", reason="extra hub")
  export.run(run, tmp_path / "model")
  path = tmp_path / "model" / "model.json"
  check_mutants(path, lambda: open_model(path.parent))


def state(step):
  return {"params": {"w": jnp.full((2, 3), float(step))}}


def test_a_run_resumes_from_another_checkpoint_or_is_rejected(tmp_path):
  """Crafted metadata is set aside where training resumes."""
  checkpoints = CheckpointWriter(tmp_path / "run")
  for step in (1, 2):
    checkpoints.save(step, state(step), Progress(batch=step, best_step=2))
  checkpoints.close()
  steps = []
  for seed in range(2 * COUNT):
    folder = shutil.copytree(tmp_path / "run", tmp_path / str(seed))
    path = folder / "checkpoints" / "2" / "metadata.json"
    rng = np.random.default_rng(seed)
    path.write_bytes(mutants.json_text(path.read_bytes(), rng))
    checkpoints = CheckpointWriter(folder)
    abstract = jax.eval_shape(lambda: state(0))
    try:
      step, result, progress = checkpoints.restore(abstract)
      assert float(result["params"]["w"][0, 0]) == step
      assert type(progress.batch) is int
      steps.append(step)
    except InputError as error:
      assert str(folder) in str(error)
    finally:
      checkpoints.close()
  assert set(steps) == {1, 2}
