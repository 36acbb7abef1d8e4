"""Tests training on sampled trees, from the config to validation."""

import dataclasses
import shutil
import sys

import numpy as np
import pytest
from absl import flags
from ml_collections import config_flags
from models_under_test import JOINT

from jaxsyn import compare, train
from jaxsyn.config import read_config
from jaxsyn.configs import quickstart, systems
from jaxsyn.data.schema import COMPUTED_FROM
from jaxsyn.data.sentence.controls import TREES
from jaxsyn.data.store import manifests
from jaxsyn.data.store.dataset import Dataset
from jaxsyn.errors import InputError
from jaxsyn.plan import check_trees, resolve
from jaxsyn.session import Session
from jaxsyn.training import hosts
from jaxsyn.training.mesh import Layout
from jaxsyn.validation import Validator


@pytest.fixture(scope="module")
def run(prepared, tmp_path_factory):
  """A run of PASCAL on sampled trees, otherwise like the shared run."""
  config = quickstart.get_config("pascal")
  config.data.directory, config.data.tree = str(prepared), "sampled"
  config.data.sampled.rate = 0.5
  config.model.width = 32
  config.model.transformer.update(
    encoder_layers=1, decoder_layers=1, feed_forward=32
  )
  config.batch.update(tokens=1024, shapes=1)
  config.train.update(steps=2, evaluate_every=2, minutes=0.0)
  config.train.selection = "log_likelihood"
  folder = tmp_path_factory.mktemp("sampled") / "run"
  train.run(config, folder)
  return folder


def test_validation_and_translation_use_the_best_parse(run, runs, prepared):
  session = Session(run, checkpoint="last", beam=2)
  plain = Session(runs["pascal"], beam=2)
  assert session.sources.tree == plain.sources.tree == "parsed"
  for line in Dataset(prepared).text("test", "source")[:5]:
    one, other = (s.sources.example(line) for s in (session, plain))
    assert "source_parent_mid" in one and one.keys() == other.keys()
    for name in one:
      np.testing.assert_array_equal(one[name], other[name])

  def score(tree):
    data = dataclasses.replace(session.plan.config.data, tree=tree)
    config = dataclasses.replace(session.plan.config, data=data)
    plan = resolve(config, manifests.read(prepared))
    split = Dataset(prepared).split("validation")
    validator = Validator(plan, Layout("jit", config.train.mesh), split)
    return validator(session.params).values["log_likelihood"]

  best = score(TREES["parsed"]())
  assert score(TREES["sampled"](1.0)) == best
  assert score(TREES["random"]()) != best


def test_another_rate_is_another_run(run, tmp_path):
  folder = shutil.copytree(run, tmp_path / "run")
  config = Session(folder).plan.config
  data = dataclasses.replace(config.data, tree=TREES["sampled"](0.3))
  with pytest.raises(InputError, match=r"config\.data\.sampled\.rate"):
    train.run(dataclasses.replace(config, data=data), folder)


@pytest.mark.parametrize("system", systems.SYSTEMS)
def test_samples_the_trees_that_a_system_reads(system):
  """Its features are parents of words or follow from them."""
  config = quickstart.get_config(system)
  if config.data.second.task != "none":
    return  # sampled trees and auxiliary tasks are incompatible
  config.data.tree = "sampled"
  plan = resolve(read_config(config), JOINT)
  stored = [COMPUTED_FROM.get(name, name) for name in plan.features]
  expected = {
    name.partition("_")[0]
    for name in stored
    if name.endswith(("_head", "_parent_mid", "_tree_distance"))
  }
  assert {*plan.sampled_sides} == expected
  assert expected or system not in ("pascal", "deps_san", "dasa")


UNUSED = r"config\.data\.tree='sampled' does nothing here: .*'transformer'"


def test_a_system_must_read_the_sampled_trees(tiny, prepared):
  def plan_of(system, tree):
    config = tiny(system)
    config.data.tree = tree
    return resolve(read_config(config), manifests.read(prepared))

  unused = plan_of("transformer", "sampled")
  check_trees([unused, plan_of("deps_san", "sampled")])
  check_trees([plan_of("transformer", "parsed")])
  for others in ([], [plan_of("pascal", "parsed")]):
    with pytest.raises(InputError, match=UNUSED):
      check_trees([unused, *others])


def test_commands_reject_trees_that_no_system_reads(
  tiny, prepared, tmp_path, monkeypatch
):
  config = tiny("transformer")
  config.data.tree = "sampled"
  with pytest.raises(InputError, match=UNUSED):
    compare.run({"transformer": config}, tmp_path / "comparison", 1)
  values = flags.FlagValues()
  config_flags.DEFINE_config_file("config", flag_values=values)
  flags.DEFINE_string("workdir", None, "", flag_values=values)
  hosts.define_flags(values)
  words = ["--config=configs/quickstart.py", f"--workdir={tmp_path / 'run'}"]
  words += [f"--config.data.directory={prepared}"]
  words += ["--config.data.tree=sampled", "--config.train.steps=1"]
  monkeypatch.setattr(sys, "argv", ["train", *words])
  values(sys.argv)
  with pytest.raises(InputError, match=UNUSED):
    train._main(values)
  assert not [*tmp_path.iterdir()]
