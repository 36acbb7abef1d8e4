"""Metadata that somebody crafted is rejected by one message, never a traceback.

Files of a real run, a real export and real data are mutated as JSON, and their
checksum is made again, as an attacker or an older version would.
"""

import copy
import json
import math
import os
import random
import shutil

import jax
import jax.numpy as jnp
import pytest

from jaxsyn import export
from jaxsyn.data.store import manifests
from jaxsyn.errors import InputError
from jaxsyn.exporting.model import open_model
from jaxsyn.plan import resolve
from jaxsyn.storage import checksums
from jaxsyn.trained import parameters, workdir
from jaxsyn.training.checkpoint import Checkpoints, Progress

NUMBER = int(os.environ.get("JAXSYN_MUTANTS", "12"))  # of each file


def nested(depth):
  value = "x"
  for _ in range(depth):
    value = [value]
  return value


VALUES = (
  *(None, True, False, 0, -1, 1, 2**31, 2**53 + 1, 2**70, -(2**70)),
  *(0.5, math.nan, math.inf, -math.inf, 1e308),
  *(
    "",
    "x",
    "0",
    "../../x",
    "/etc/passwd",
    "a\0b",
    "\ud800",
    "\udfffx",
    "\u202e",
  ),
  *("float99", "9:1", "0:0,0:0,0:0", "a" * 9000, [], [[]], {}, {"": {}}),
  *({"\ud800": 1}, nested(200)),
)


def places(document, path=()):
  """Paths of all values in JSON."""
  yield path
  entries = ()
  if isinstance(document, dict):
    entries = document.items()
  elif isinstance(document, list):
    entries = enumerate(document)
  for key, value in entries:
    yield from places(value, (*path, key))


def at(document, path):
  for key in path:
    document = document[key]
  return document


def mutated(document, draw):
  """A copy of JSON with another value, or a key more or less."""
  document = copy.deepcopy(document)
  # By depth first: else most would be in the largest table.
  by_depth = {}
  for path in places(document):
    if path:
      by_depth.setdefault(len(path), []).append(path)
  *above, key = draw.choice(by_depth[draw.choice(sorted(by_depth))])
  parent = at(document, above)
  kind = draw.choice(("value", "value", "value", "remove", "add", "swap"))
  if kind == "remove":
    del parent[key]
  elif kind == "add" and isinstance(parent, dict):
    parent[draw.choice(("x", "\ud800", "", "../x", "a" * 300))] = parent[key]
  elif kind == "swap":
    paths = list(places(document))
    parent[key] = copy.deepcopy(at(document, draw.choice(paths)))
  else:
    parent[key] = draw.choice(VALUES)  # copied as JSON
  return document


def written(document, draw):
  """JSON of a page with its checksum, at times with a name twice."""
  text = json.dumps(checksums.add_checksum(document))
  if draw.random() < 0.05:
    name = json.dumps(draw.choice(list(document)))
    text = text.replace(f"{name}:", f"{name}: 0, {name}:", 1)
  elif draw.random() < 0.05:
    text = text[:-1] + f', "deep": {"[" * 100_000}'
  return text


def reader(checkpoint):
  """A function that reads a checkpoint of a run, and names it."""

  def read(folder):
    run = workdir.open_run(folder)
    plan = resolve(run.config, run.manifest)
    features = manifests.features_for(run.manifest, plan.translation_features)
    loaded = parameters.read(run, plan, features, checkpoint=checkpoint)
    parameters.title(loaded, checkpoint)

  return read


CASES = {
  "best/20/page.json": reader("best"),
  "checkpoints/20/page.json": reader("last"),
  "manifest.json": workdir.open_run,
  "config.json": workdir.open_run,
}


@pytest.fixture(scope="module")
def run(runs, tmp_path_factory):
  folder = tmp_path_factory.mktemp("crafted") / "run"
  shutil.copytree(runs["pascal"], folder)
  return folder


def check_mutants(path, read, seed, number=NUMBER):
  """Asserts that each mutant of a file is read, or rejected by its name."""
  text = path.read_text()
  document = checksums.verify_checksum(json.loads(text))
  draw = random.Random(seed)
  rejected = 0
  try:
    for i in range(number):
      mutant = written(mutated(document, draw), draw)
      path.write_text(mutant)
      try:
        read()
      except InputError as error:
        rejected += 1
        assert str(path.parent) in str(error), error
        str(error).encode()
      except Exception as error:
        (path.parent / "mutant.json").write_text(mutant)
        raise AssertionError(f"mutant {i} of {path.name}") from error
  finally:
    path.write_text(text)
  read()
  assert rejected >= number // 4


@pytest.mark.parametrize("name", CASES)
def test_crafted_files_of_a_run_are_rejected_in_words(run, name):
  check_mutants(run / name, lambda: CASES[name](run), name)


def test_crafted_manifests_of_data_are_rejected_in_words(prepared, tmp_path):
  shutil.copy(prepared / manifests.FILE, tmp_path)
  path = tmp_path / manifests.FILE
  check_mutants(path, lambda: manifests.read(tmp_path), "data", 20 * NUMBER)


def test_crafted_exports_are_rejected_in_words(run, tmp_path):
  pytest.importorskip("safetensors", reason="extra hub")
  export.run(run, tmp_path / "model")
  path = tmp_path / "model" / "model.json"
  check_mutants(path, lambda: open_model(path.parent), "export")


def state(step):
  return {
    "params": {"w": jnp.full((2, 3), float(step))},
    "step": jnp.array(step),
  }


def test_a_run_resumes_from_another_checkpoint_or_is_rejected(tmp_path):
  """Crafted pages are set aside where training resumes."""
  checkpoints = Checkpoints(tmp_path / "run")
  for step in (1, 2):
    checkpoints.save(step, state(step), Progress(batch=step, best_step=2))
  score = {"score": 30.0, "log_likelihood": -1.0}
  score |= {"selection": "bleu", "tokenizer": "13a"}
  checkpoints.save_best(2, state(2)["params"], score)
  checkpoints.close()
  draw, steps = random.Random(0), []
  for i in range(4 * NUMBER):
    shutil.copytree(tmp_path / "run", tmp_path / str(i))
    path = tmp_path / str(i) / ("best", "checkpoints")[i % 2] / "2/page.json"
    document = checksums.verify_checksum(json.loads(path.read_text()))
    path.write_text(written(mutated(document, draw), draw))
    checkpoints = Checkpoints(tmp_path / str(i))
    try:
      step, result, progress = checkpoints.restore(
        jax.eval_shape(lambda: state(0))
      )
      assert float(result["params"]["w"][0, 0]) == step
      assert type(progress.batch) is int
      steps.append(step)
    except InputError as error:
      assert str(tmp_path / str(i)) in str(error)
    finally:
      checkpoints.close()
    shutil.rmtree(tmp_path / str(i))
  assert set(steps) == {1, 2}
