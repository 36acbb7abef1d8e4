"""Tests training on sampled trees, from resuming to validation."""

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

STEPS = 6


@pytest.fixture(scope="module")
def made(made_once, prepared):
  """Runs of PASCAL: on sampled trees and on the parser's."""

  def make(folder):
    for name in ("sampled", "parsed"):
      config = quickstart.get_config("pascal")
      config.data.directory, config.data.tree = str(prepared), name
      config.data.sampled.rate = 0.5
      config.model.width = 32
      config.model.transformer.update(
        encoder_layers=1, decoder_layers=1, feed_forward=32, dropout=0.0
      )
      config.batch.update(tokens=12_000, shapes=1)
      config.optimiser.learning_rate = 0.01
      config.optimiser.inverse_sqrt.warmup = 1
      config.train.update(steps=STEPS, evaluate_every=STEPS, save_every=1)
      config.train.update(keep=STEPS, log_every=1, minutes=0.0)
      config.train.selection = "log_likelihood"
      train.run(config, folder / name)

  return made_once("sampled", make)


def test_validation_and_translation_use_the_best_parse(made, prepared):
  """As of the same parameters with the parser's trees, whatever was drawn."""
  session = Session(made / "sampled", checkpoint="last", beam=2)
  plain = Session(made / "parsed", beam=2)
  assert session.sources.tree == plain.sources.tree == "parsed"
  lines = (prepared.parent / "raw" / "test.en").read_text().splitlines()[:5]
  for line in lines:
    one, other = (s.sources.example(line) for s in (session, plain))
    assert "source_parent_mid" in one and one.keys() == other.keys()
    for name in one:
      np.testing.assert_array_equal(one[name], other[name])

  def scores(tree):
    data = dataclasses.replace(session.plan.config.data, tree=tree)
    config = dataclasses.replace(session.plan.config, data=data)
    plan = resolve(config, manifests.read(prepared))
    layout = Layout("jit", config.train.mesh)
    split = Dataset(prepared).split("validation")
    validator = Validator(plan, layout, split)
    return validator(session.params).values["log_likelihood"]

  best = scores(TREES["parsed"]())
  assert scores(TREES["sampled"](1.0)) == best
  assert scores(TREES["random"]()) != best


def test_another_rate_is_another_run(made, tmp_path):
  folder = shutil.copytree(made / "sampled", tmp_path / "run")
  config = Session(folder).plan.config
  tree = TREES["sampled"](0.3)
  data = dataclasses.replace(config.data, tree=tree)
  with pytest.raises(InputError, match=r"config\.data\.sampled\.rate"):
    train.run(dataclasses.replace(config, data=data), folder)


NOTHING = r"config\.data\.tree='sampled' does nothing here: .*'transformer'"


def plan_of(tiny, prepared, system, tree="sampled"):
  config = tiny(system)
  config.data.tree = tree
  return resolve(read_config(config), manifests.read(prepared))


@pytest.mark.parametrize("system", systems.SYSTEMS)
def test_of_every_system_the_trees_that_it_reads_are_drawn(system):
  """Those of which its features are heads, or follow from them."""
  config = quickstart.get_config(system)
  if config.data.second.task != "none":
    return  # refused: test_second_tasks_are_refused
  config.data.tree = "sampled"
  plan = resolve(read_config(config), JOINT)
  due = {
    name.partition("_")[0]
    for name in (COMPUTED_FROM.get(name, name) for name in plan.features)
    if name.endswith(("_head", "_parent_mid", "_tree_distance"))
  }
  assert {*plan.sampled_sides} == due
  assert due or system not in ("pascal", "deps_san", "dasa")


def test_some_system_has_to_read_trees(tiny, prepared):
  plain, reading = (
    plan_of(tiny, prepared, name) for name in ("transformer", "deps_san")
  )
  parsed = plan_of(tiny, prepared, "pascal", "parsed")
  check_trees([plain, reading])
  check_trees([parsed, plan_of(tiny, prepared, "transformer", "parsed")])
  for plans in ([plain], [plain, parsed]):
    with pytest.raises(InputError, match=NOTHING):
      check_trees(plans)


def test_commands_refuse_what_does_nothing(
  tiny, prepared, tmp_path, monkeypatch
):
  config = tiny("transformer")
  config.data.tree = "sampled"
  with pytest.raises(InputError, match=NOTHING):
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
  with pytest.raises(InputError, match=NOTHING):
    train._main(values)
  assert not [*tmp_path.iterdir()]
