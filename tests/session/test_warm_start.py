"""Runs that begin with the parameters of another run."""

from __future__ import annotations

import json
import shutil

import jax
import numpy as np
import pytest

from jaxsyn import train
from jaxsyn.config import read_config
from jaxsyn.data.store import manifests
from jaxsyn.errors import InputError
from jaxsyn.plan import resolve
from jaxsyn.session import parameters, warm_start, workdir
from jaxsyn.session.matching import Named, labels, match
from jaxsyn.training.array_checksums import arrays_by_name


def shortened(config):
  """Sets one step, with a learning rate that changes nothing measurable."""
  config.batch.shapes = 1
  config.optimiser.update(name="adam", learning_rate=1e-12, schedule="constant")
  config.train.update(
    steps=1, evaluate_every=9, save_every=1, log_every=1, ema=0.0
  )
  config.train.selection = "log_likelihood"
  return config


@pytest.fixture(scope="module")
def base(made_once, prepared):
  """The directory of a run of the plain Transformer."""
  from jaxsyn.configs import quickstart as config_file

  def make(folder):
    config = shortened(config_file.get_config("transformer"))
    config.data.directory = str(prepared)
    config.model.update(width=32)
    config.model.transformer.update(
      encoder_layers=2, decoder_layers=1, feed_forward=32, heads=4
    )
    config.seed = 7
    train.run(config, folder)

  return made_once("warm_start_base", make)


def started_from(base, config, **start):
  config = shortened(config)
  config.train.start.update({"run": str(base), **start})
  return config


def params_of(folder):
  """Returns the parameters of the last checkpoint, by name."""
  loaded, _ = parameters.read(workdir.open_run(folder), "last")
  return jax.device_get(arrays_by_name(loaded.params))


def origin_of(folder):
  return json.loads((folder / warm_start.FILE).read_text())


def assert_copied(base, folder):
  current = params_of(folder)
  for name, value in params_of(base).items():
    np.testing.assert_allclose(current[name], value, atol=1e-9, err_msg=name)


def test_same_model_begins_with_the_final_parameters(tiny, base, tmp_path):
  """A resumed run does not read the other run again."""
  other = shutil.copytree(base, tmp_path / "other")
  config = started_from(other, tiny("transformer"), checkpoint="last")
  new = tmp_path / "new"
  train.run(config, new)
  assert_copied(base, new)
  existing, origin = params_of(base), origin_of(new)
  assert origin["taken"] == sorted(params_of(new)) == sorted(existing)
  assert not origin["fresh"] and not origin["rows"] and not origin["left"]
  assert origin["sha256"] == warm_start.sha256_of(existing)
  assert origin["steps"] == [1] and origin["system"] == "transformer"
  shutil.rmtree(other)
  config.train.steps = 2
  assert train.run(config, new).step == 2
  assert origin_of(new) == origin
  config.train.start.run = str(base)  # it did not begin with that
  with pytest.raises(InputError, match=r"config\.train\.start\.run was"):
    train.run(config, new)


def test_additional_parameters_are_random(tiny, base, tmp_path):
  config = started_from(base, tiny("label_embedding"))
  train.run(config, tmp_path / "new")
  assert_copied(base, tmp_path / "new")
  fresh = origin_of(tmp_path / "new")["fresh"]
  assert fresh == ["label_embedding/table/embedding"]


def test_names_parameters_of_another_shape(tiny, base, tmp_path, capsys):
  config = started_from(base, tiny("transformer"))
  config.model.transformer.update(feed_forward=64, decoder_layers=2)
  train.run(config, tmp_path / "new")
  origin, output = origin_of(tmp_path / "new"), capsys.readouterr().out
  name = "encoder_0/feed_forward/inner/kernel"
  assert origin["differing"][name] == (
    f"{name} is (32, 32) there and (32, 64) here"
  )
  assert any(name.startswith("decoder_1/") for name in origin["fresh"])
  assert "random, since the shape differs: " in output
  assert f"{sorted(origin['differing'])[0]} is (" in output


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
  tiny, base, tmp_path, monkeypatch, start, message
):
  monkeypatch.chdir(tmp_path)
  config = started_from(base, tiny("gru_global"), **start)
  config.model.update(width=48)
  with pytest.raises(InputError, match=message):
    train.run(config, "new")
  assert not (tmp_path / "new").exists()


def test_moving_average_begins_with_the_same_parameters(tiny, base, tmp_path):
  config = started_from(base, tiny("transformer"))
  config.train.update(ema=0.9, steps=1)
  config.optimiser.accumulate = 2  # no update yet
  train.run(config, tmp_path / "new")
  existing, current = params_of(base), params_of(tmp_path / "new")
  for name, value in existing.items():
    np.testing.assert_array_equal(current[name], value, err_msg=name)


def test_warm_start_on_a_mesh(tiny, base, tmp_path, eight_devices):
  config = started_from(base, tiny("transformer"))
  config.train.mesh.update(fsdp=2, tensor=2)
  train.run(config, tmp_path / "new")
  assert_copied(base, tmp_path / "new")


# Embeddings of the pieces a, b, c, and of c, d.
ABC = np.array([[1.0, 1.5], [2.0, 2.5], [3.0, 3.5]], np.float32)
CD = np.array([[7.0, 7.5], [8.0, 8.5]], np.float32)


def matched(new, old, unknown="drawn"):
  """Matches two models, each name -> (array, labels of its first axis)."""
  models = [
    Named(
      {name: array for name, (array, _) in model.items()},
      {name: {0: tuple(pieces)} for name, (_, pieces) in model.items()},
    )
    for model in (new, old)
  ]
  return match(*models, unknown)


def shape(rows):
  return jax.ShapeDtypeStruct((rows, 2), np.float32)


def test_rows_match_by_their_pieces():
  new = {"target_table/embedding": (shape(4), "cxab")}
  old = {"target_table/embedding": (ABC, "abc")}
  arrays, differing = matched(new, old)
  result = arrays["target_table/embedding"]
  assert not differing and result.rows == (3, 4)
  assert result.known.all(1).tolist() == [True, False, True, True]
  assert result.known.any(1).tolist() == [True, False, True, True]
  assert result.value[[0, 2, 3]].tolist() == ABC[[2, 0, 1]].tolist()
  result = matched(new, old, "mean")[0]["target_table/embedding"]
  assert result.known is None and result.rows == (3, 4)
  assert result.value[1].tolist() == [2.0, 2.5]  # (1 + 2 + 3) / 3


def test_a_shared_table_becomes_two():
  new = {
    "source_table/embedding": (shape(2), "ba"),
    "target_table/embedding": (shape(2), "cb"),
  }
  arrays, _ = matched(new, {"target_table/embedding": (ABC, "abc")})
  assert arrays["source_table/embedding"].value.tolist() == ABC[[1, 0]].tolist()
  assert arrays["target_table/embedding"].value.tolist() == ABC[[2, 1]].tolist()


def test_two_tables_become_one_and_the_target_has_precedence():
  new = {"target_table/embedding": (shape(4), "abcd")}
  old = {
    "source_table/embedding": (ABC, "abc"),
    "target_table/embedding": (CD, "cd"),
  }
  result = matched(new, old)[0]["target_table/embedding"]
  assert result.known is None
  assert result.value.tolist() == [*ABC[:2].tolist(), *CD.tolist()]


def test_a_tied_output_becomes_a_separate_one():
  new = Named(
    {"output/kernel": jax.ShapeDtypeStruct((2, 2), np.float32)},
    {"output/kernel": {1: ("c", "a")}},
  )
  old = Named(
    {"target_table/embedding": ABC},
    {"target_table/embedding": {0: ("a", "b", "c")}},
  )
  result = match(new, old, "drawn")[0]["output/kernel"]
  assert result.value.tolist() == ABC[[2, 0]].T.tolist()


def test_other_widths_differ_even_with_equal_pieces():
  new = {"target_table/embedding": (shape(2), "ab")}
  old = {"target_table/embedding": (np.zeros((2, 3), np.float32), "ab")}
  arrays, differing = matched(new, old)
  assert not arrays
  assert "(2, 3) there and (2, 2) here" in differing["target_table/embedding"]


def test_axes_of_subwords_and_relations_have_labels(tiny, prepared):
  config = tiny("label_embedding+multitask")
  config.model.update(tie_embeddings=True, tie_output=False)
  config = read_config(config)
  manifest = manifests.read(prepared)
  result = labels(resolve(config, manifest), manifest, prepared)
  vocabulary = manifests.vocabulary(prepared, manifest, "target")
  pieces = vocabulary.pieces(range(vocabulary.size))
  table = result["target_table/embedding"][0]
  assert table[: len(pieces)] == tuple(pieces)
  assert table[len(pieces) :][:2] == ("<TR>", "<PA>")
  assert result["output/kernel"][1] == result["output/bias"][0] == table
  relations = result["label_embedding/table/embedding"][0]
  assert relations == ("", *manifest["relations"]["source"])
  assert set(result) == {
    *("target_table/embedding", "output/kernel", "output/bias"),
    "label_embedding/table/embedding",
  }
