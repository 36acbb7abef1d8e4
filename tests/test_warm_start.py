"""A run that begins with another's parameters: what is taken, and what is said."""

from __future__ import annotations

import json
import shutil

import jax
import numpy as np
import pytest

from jaxsyn import train
from jaxsyn.config import read_config
from jaxsyn.data import schema
from jaxsyn.data.store import manifests
from jaxsyn.errors import InputError
from jaxsyn.plan import resolve
from jaxsyn.session import warm_start, workdir
from jaxsyn.session.matching import Named, labels, match
from jaxsyn.training.array_checksums import arrays_by_name
from jaxsyn.training.checkpoint_reader import CheckpointReader


def briefly(config):
  """One step, at a rate that moves nothing one could see."""
  config.batch.shapes = 1
  config.optimiser.update(name="adam", learning_rate=1e-12, schedule="constant")
  config.train.update(
    steps=1, evaluate_every=9, save_every=1, log_every=1, ema=0.0
  )
  config.train.selection = "log_likelihood"
  return config


@pytest.fixture(scope="module")
def base(made_once, prepared):
  """A function: a copy's folder of a run of the plain Transformer."""
  from jaxsyn.configs import quickstart as config_file

  def make(folder):
    config = briefly(config_file.get_config("transformer"))
    config.data.directory = str(prepared)
    config.model.update(width=32)
    config.model.transformer.update(
      encoder_layers=2, decoder_layers=1, feed_forward=32, heads=4
    )
    config.seed = 7
    train.run(config, folder)

  return made_once("warm_start_base", make)


def begun(config, base, **start):
  config = briefly(config)
  config.train.start.update(run=str(base), **start)
  return config


def params_of(folder):
  """Of the last checkpoint, by name."""
  run = workdir.open_run(folder)
  plan = resolve(run.config, run.manifest)
  from jaxsyn.session import parameters

  features = schema.features_for(run.manifest, plan.translation_features)
  read = parameters.read(run, plan, features, checkpoint="last")
  return jax.device_get(arrays_by_name(read.params))


def said(folder):
  return json.loads((folder / warm_start.FILE).read_text())


def test_the_same_model_begins_where_the_other_ended(tiny, base, tmp_path):
  """And a resumed run does not read the other run again."""
  other = tmp_path / "other"
  shutil.copytree(base, other)
  config = begun(tiny("transformer"), other, checkpoint="last")
  train.run(config, tmp_path / "new")
  existing, current = params_of(base), params_of(tmp_path / "new")
  assert set(existing) == set(current)
  for name, value in existing.items():
    np.testing.assert_allclose(current[name], value, atol=1e-9, err_msg=name)
  page = said(tmp_path / "new")
  assert page["taken"] == sorted(current)
  assert not page["fresh"] and not page["rows"] and not page["left"]
  assert page["sha256"] == warm_start._hash(existing)
  assert page["steps"] == [1] and page["system"] == "transformer"
  shutil.rmtree(other)
  config.train.steps = 2
  assert train.run(config, tmp_path / "new").step == 2
  assert said(tmp_path / "new") == page
  config.train.start.run = str(base)  # it did not begin with that
  with pytest.raises(InputError, match=r"config\.train\.start\.run was"):
    train.run(config, tmp_path / "new")


def test_another_system_draws_what_it_has_beside(tiny, base, tmp_path):
  config = begun(tiny("label_embedding"), base)
  train.run(config, tmp_path / "new")
  page, existing = said(tmp_path / "new"), params_of(base)
  current = params_of(tmp_path / "new")
  assert page["fresh"] == ["label_embedding/table/embedding"]
  for name, value in existing.items():
    np.testing.assert_allclose(current[name], value, atol=1e-9, err_msg=name)


def test_other_sizes_are_named_and_drawn(tiny, base, tmp_path, capsys):
  config = begun(tiny("transformer"), base)
  config.model.transformer.update(feed_forward=64, decoder_layers=2)
  train.run(config, tmp_path / "new")
  page, output = said(tmp_path / "new"), capsys.readouterr()
  name = "encoder_0/feed_forward/inner/kernel"
  assert page["differing"][name] == (
    f"{name} is (32, 32) there and (32, 64) here"
  )
  assert any(name.startswith("decoder_1/") for name in page["fresh"])
  assert "drawn, since its shape differs: " in output.out
  assert f"{sorted(page['differing'])[0]} is (" in output.out


def test_nothing_that_fits_is_an_error_and_leaves_nothing(tiny, base, tmp_path):
  config = begun(tiny("gru_global"), base)
  config.model.update(width=48)
  with pytest.raises(InputError, match=r"nothing of that run fits. \w+"):
    train.run(config, tmp_path / "new")
  assert not (tmp_path / "new").exists()


@pytest.mark.parametrize(
  ("start", "message"),
  [
    ({"run": "nowhere"}, r"nowhere is not the folder of a run"),
    ({"checkpoint": "77"}, r"has no checkpoint '77'. There are: 1"),
    ({"checkpoint": "first"}, r"config.train.start.checkpoint must be"),
  ],
)
def test_rejects_missing_runs_and_checkpoints(
  tiny, base, tmp_path, start, message
):
  config = begun(tiny("transformer"), base)
  config.train.start.update(start)
  with pytest.raises(InputError, match=message):
    train.run(config, tmp_path / "new")
  assert not (tmp_path / "new").exists()


def test_a_run_does_not_begin_with_itself(tiny, tmp_path):
  config = briefly(tiny("transformer"))
  config.train.start.run = str(tmp_path / "new")
  with pytest.raises(InputError, match="folder of this run itself"):
    train.run(config, tmp_path / "new")


def test_the_average_is_begun_with_what_is_taken(tiny, base, tmp_path):
  config = begun(tiny("transformer"), base)
  config.train.update(ema=0.9, steps=1)
  config.optimiser.accumulate = 2  # no update yet
  train.run(config, tmp_path / "new")
  existing, current = params_of(base), params_of(tmp_path / "new")
  for name, value in existing.items():
    np.testing.assert_array_equal(current[name], value, err_msg=name)


def test_parts_of_arrays_on_a_mesh(tiny, base, tmp_path, eight_devices):
  config = begun(tiny("transformer"), base)
  config.train.mesh.update(fsdp=2, tensor=2)
  train.run(config, tmp_path / "new")
  existing, current = params_of(base), params_of(tmp_path / "new")
  for name, value in existing.items():
    np.testing.assert_allclose(current[name], value, atol=1e-9, err_msg=name)


# By hand: two columns, a row a piece.
ONE = np.array([[1.0, 1.5], [2.0, 2.5], [3.0, 3.5]], np.float32)  # a b c
TWO = np.array([[7.0, 7.5], [8.0, 8.5]], np.float32)  # c d


def matched(current, present, unknown="drawn"):
  """Of name -> (array, labels of its first axis)."""
  sides = [
    Named(
      {name: array for name, (array, _) in side.items()},
      {name: {0: tuple(value)} for name, (_, value) in side.items() if value},
    )
    for side in (current, present)
  ]
  return match(*sides, unknown)


def wanted(rows):
  return jax.ShapeDtypeStruct((rows, 2), np.float32)


def test_rows_are_found_by_their_pieces():
  current = {"target_table/embedding": (wanted(4), "cxab")}
  present = {"target_table/embedding": (ONE, "abc")}
  chosen, differing = matched(current, present)
  expected = chosen["target_table/embedding"]
  assert not differing and expected.rows == (3, 4)
  assert expected.known.tolist() == [
    [True] * 2,
    [False] * 2,
    [True] * 2,
    [True] * 2,
  ]
  assert expected.value[[0, 2, 3]].tolist() == ONE[[2, 0, 1]].tolist()
  chosen, _ = matched(current, present, "mean")
  expected = chosen["target_table/embedding"]
  assert expected.known is None and expected.rows == (3, 4)
  assert expected.value[1].tolist() == [2.0, 2.5]  # (1 + 2 + 3) / 3


def test_one_table_becomes_two():
  current = {
    "source_table/embedding": (wanted(2), "ba"),
    "target_table/embedding": (wanted(2), "cb"),
  }
  chosen, _ = matched(current, {"target_table/embedding": (ONE, "abc")})
  assert chosen["source_table/embedding"].value.tolist() == ONE[[1, 0]].tolist()
  assert chosen["target_table/embedding"].value.tolist() == ONE[[2, 1]].tolist()


def test_two_tables_become_one_and_the_targets_is_first():
  current = {"target_table/embedding": (wanted(4), "abcd")}
  present = {
    "source_table/embedding": (ONE, "abc"),
    "target_table/embedding": (TWO, "cd"),
  }
  expected = matched(current, present)[0]["target_table/embedding"]
  assert expected.known is None
  assert expected.value.tolist() == [*ONE[:2].tolist(), *TWO.tolist()]


def test_a_tied_output_becomes_one_of_its_own():
  sides = [
    Named({"output/kernel": jax.ShapeDtypeStruct((2, 2), np.float32)},
          {"output/kernel": {1: ("c", "a")}}),
    Named({"target_table/embedding": ONE},
          {"target_table/embedding": {0: ("a", "b", "c")}}),
  ]  # fmt: skip
  expected = match(*sides, "drawn")[0]["output/kernel"]
  assert expected.value.tolist() == ONE[[2, 0]].T.tolist()


def test_other_widths_differ_whatever_the_pieces():
  current = {"target_table/embedding": (wanted(2), "ab")}
  present = {"target_table/embedding": (np.zeros((2, 3), np.float32), "ab")}
  chosen, differing = matched(current, present)
  assert not chosen
  assert "(2, 3) there and (2, 2) here" in differing["target_table/embedding"]


def test_labels_of_axes_of_parameters(tiny, prepared):
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


def test_steps_of_the_other_run_are_untouched(base):
  assert CheckpointReader(base).steps() == [1]
