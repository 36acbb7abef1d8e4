"""Runs that begin with the parameters of another run."""

from __future__ import annotations

import dataclasses
import json
import shutil

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from jaxsyn import train
from jaxsyn.config import read_config
from jaxsyn.data import schema
from jaxsyn.data.store import manifests
from jaxsyn.errors import InputError
from jaxsyn.models.contract import arrays_by_name
from jaxsyn.plan import resolve
from jaxsyn.session import parameters, warm_start, workdir
from jaxsyn.session.matching import Named, labels, match
from jaxsyn.training.step import TrainState


@pytest.fixture
def config_of(tiny, runs):
  """A function system -> config of a model like those of `runs`, to be started."""

  def make(system, **start):
    config = tiny(system)
    config.model.transformer.update(encoder_layers=1)
    config.batch.shapes = 1
    # The learning rate has no measurable effect.
    config.optimiser.update(
      name="adam", learning_rate=1e-12, schedule="constant"
    )
    config.train.update(steps=1, evaluate_every=9, save_every=1, ema=0.0)
    config.train.selection = "log_likelihood"
    config.train.start.update({"run": str(runs["pascal"]), **start})
    return config

  return make


def started(config, folder):
  """Returns the warm start of a new run, and a state before it."""
  config = read_config(config)
  manifest = manifests.read(config.data.directory)
  plan = resolve(config, manifest)
  warm = warm_start.read(
    config.train.start, plan, config.data.directory, folder
  )
  features = schema.features_for(manifest, plan.translation_features)
  params = jax.tree.map(
    lambda x: jnp.full(x.shape, 0.5, x.dtype),
    parameters.shapes(plan.recipe, features),
  )
  ema = jax.tree.map(jnp.copy, params) if plan.recipe.ema else None
  zero = jnp.zeros(())
  return warm, TrainState(step=zero, params=params, opt=(), key=zero, ema=ema)


def params_of(folder):
  """Returns the parameters of the last checkpoint, by name."""
  loaded = parameters.read(workdir.open_run(folder), "last")
  return jax.device_get(arrays_by_name(loaded.params))


def test_training_begins_with_the_final_parameters(config_of, runs, tmp_path):
  """A resumed run does not read the other run again."""
  other = shutil.copytree(runs["pascal"], tmp_path / "other")
  config = config_of("pascal", run=str(other), checkpoint="last")
  new = tmp_path / "new"
  train.run(config, new)
  old, current = params_of(other), params_of(new)
  for name, value in old.items():
    np.testing.assert_allclose(current[name], value, atol=1e-9, err_msg=name)
  origin = json.loads((new / warm_start.FILE).read_text())
  assert origin["taken"] == sorted(current) == sorted(old)
  assert not origin["fresh"] and not origin["rows"] and not origin["left"]
  assert origin["sha256"] == warm_start.sha256_of(old)
  assert origin["steps"] == [20] and origin["system"] == "pascal"
  shutil.rmtree(other)
  config.train.steps = 2
  assert train.run(config, new).step == 2
  assert json.loads((new / warm_start.FILE).read_text()) == origin
  config.train.start.run = str(runs["pascal"])  # it did not begin with that
  with pytest.raises(InputError, match=r"config\.train\.start\.run was"):
    train.run(config, new)


def test_new_and_other_parameters_are_random(config_of, runs, tmp_path):
  config = config_of("label_embedding")
  config.model.transformer.update(feed_forward=64, decoder_layers=2)
  config.train.ema = 0.9
  warm, before = started(config, tmp_path)
  state = warm(before)
  after, average = arrays_by_name(state.params), arrays_by_name(state.ema)
  before, old = arrays_by_name(before.params), params_of(runs["pascal"])
  fresh = {name for name in after if name not in old}
  assert "label_embedding/table/embedding" in fresh
  assert any(name.startswith("decoder_1/") for name in fresh)
  differing = warm.origin["differing"]
  name = "encoder_0/feed_forward/inner/kernel"
  assert differing[name] == f"{name} is (32, 32) there and (32, 64) here"
  assert {*warm.origin["fresh"]} == fresh | {*differing}
  for name, value in after.items():
    is_random = name in warm.origin["fresh"]
    expected = before[name] if is_random else old[name]
    np.testing.assert_array_equal(value, expected, err_msg=name)
    np.testing.assert_array_equal(average[name], value, err_msg=name)
    # No buffer can be donated twice.
    pointer = average[name].unsafe_buffer_pointer()
    assert pointer != value.unsafe_buffer_pointer()
  (line,) = (line for line in warm.messages if "shape differs: " in line)
  assert f"{min(differing)} is (" in line


@pytest.mark.parametrize(
  ("start", "message"),
  [
    ({"run": "nowhere"}, r"nowhere is not the folder of a run"),
    ({"run": "new"}, r"is the folder of this run itself"),
    ({"checkpoint": "77"}, r"has no checkpoint '77'. There are: 1"),
    ({"checkpoint": "first"}, r"config.train.start.checkpoint must be"),
    ({}, r"nothing of that run fits. \w+"),
  ],
)
def test_rejects_runs_and_checkpoints_that_do_not_fit(
  config_of, tmp_path, monkeypatch, start, message
):
  monkeypatch.chdir(tmp_path)
  config = config_of("gru_global", **start)
  config.model.update(width=48)
  with pytest.raises(InputError, match=message):
    train.run(config, "new")
  assert not (tmp_path / "new").exists()


# Embeddings of the pieces a, b, c, and of c, d.
ABC = np.array([[1.0, 1.5], [2.0, 2.5], [3.0, 3.5]], np.float32)
CD = np.array([[7.0, 7.5], [8.0, 8.5]], np.float32)
SOURCE, TARGET = "source_table/embedding", "target_table/embedding"


def matched(new, old, unknown="drawn"):
  """Matches two models, each name -> (array, labels of an axis, the axis)."""
  models = [
    Named(
      {name: array for name, (array, _, _) in model.items()},
      {name: {axis: tuple(p)} for name, (_, p, axis) in model.items()},
    )
    for model in (new, old)
  ]
  return match(*models, unknown)


def shape(*sizes):
  return jax.ShapeDtypeStruct(sizes, np.float32)


def test_rows_of_equal_width_match_by_their_pieces():
  new, old = {TARGET: (shape(4, 2), "cxab", 0)}, {TARGET: (ABC, "abc", 0)}
  arrays, differing = matched(new, old)
  result = arrays[TARGET]
  assert not differing and result.rows == (3, 4)
  known = [[True] * 2, [False] * 2, [True] * 2, [True] * 2]
  assert result.known.tolist() == known
  assert result.value[[0, 2, 3]].tolist() == ABC[[2, 0, 1]].tolist()
  result = matched(new, old, "mean")[0][TARGET]
  assert result.known is None and result.rows == (3, 4)
  assert result.value[1].tolist() == [2.0, 2.5]  # (1 + 2 + 3) / 3
  arrays, differing = matched({TARGET: (shape(3, 3), "abc", 0)}, old)
  assert not arrays and "(3, 2) there and (3, 3) here" in differing[TARGET]


def test_shared_and_separate_tables_match():
  shared = {TARGET: (ABC, "abc", 0)}
  # A shared table becomes two, and an output projection.
  new = {SOURCE: (shape(2, 2), "ba", 0), TARGET: (shape(2, 2), "cb", 0)}
  new["output/kernel"] = (shape(2, 2), "ca", 1)
  arrays, _ = matched(new, shared)
  assert arrays[SOURCE].value.tolist() == ABC[[1, 0]].tolist()
  assert arrays[TARGET].value.tolist() == ABC[[2, 1]].tolist()
  assert arrays["output/kernel"].value.tolist() == ABC[[2, 0]].T.tolist()
  # Two tables become one; entries of the target have precedence.
  two = {SOURCE: (ABC, "abc", 0), TARGET: (CD, "cd", 0)}
  result = matched({TARGET: (shape(4, 2), "abcd", 0)}, two)[0][TARGET]
  assert result.known is None
  assert result.value.tolist() == [*ABC[:2].tolist(), *CD.tolist()]


def test_axes_of_subwords_and_relations_have_labels(tiny, prepared):
  config = tiny("label_embedding+multitask")
  config.model.update(tie_embeddings=True, tie_output=False)
  config = read_config(config)
  manifest = manifests.read(prepared)
  result = labels(resolve(config, manifest), manifest, prepared)
  vocabulary = manifests.vocabulary(prepared, manifest, "target")
  pieces = vocabulary.pieces(range(vocabulary.size))
  table = result[TARGET][0]
  assert table[: len(pieces) + 2] == (*pieces, "<TR>", "<PA>")
  assert result["output/kernel"][1] == result["output/bias"][0] == table
  relations = result["label_embedding/table/embedding"][0]
  assert relations == ("", *manifest["relations"]["source"])
  assert set(result) == {
    TARGET,
    "output/kernel",
    "output/bias",
    "label_embedding/table/embedding",
  }


def test_parameters_have_the_sharding_of_the_state(
  config_of, runs, tmp_path, eight_devices
):
  warm, before = started(config_of("pascal"), tmp_path)
  mesh = Mesh(np.reshape(jax.devices(), (4, 2)), ("fsdp", "tensor"))
  specs = {0: (), 1: ("fsdp",), 2: ("tensor", "fsdp"), 3: ("fsdp", "tensor")}

  def shard(x):
    return jax.device_put(x, NamedSharding(mesh, PartitionSpec(*specs[x.ndim])))

  params = jax.tree.map(shard, before.params)
  state = warm(dataclasses.replace(before, params=params))
  after, old = arrays_by_name(state.params), params_of(runs["pascal"])
  for name, value in arrays_by_name(params).items():
    np.testing.assert_array_equal(after[name], old[name], err_msg=name)
    assert after[name].sharding == value.sharding
