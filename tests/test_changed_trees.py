"""Runs on sampled trees and on trees with wrong parents, up to translation."""

import dataclasses
import shutil
import sys
import types

import command_flags
import numpy as np
import pytest
import results_made
from control_trees import replace_trees
from models_under_test import JOINT
from numpy.testing import assert_array_equal
from toy_folders import data_of, opened

from jaxsyn import compare, train
from jaxsyn.comparison import facts, tables
from jaxsyn.config import read_config
from jaxsyn.configs import quickstart, systems
from jaxsyn.data.loader.transforms import wrong_parents
from jaxsyn.data.schema import COMPUTED_FROM
from jaxsyn.data.sentence.controls import TREES, WrongParents
from jaxsyn.data.store import manifests
from jaxsyn.data.store.dataset import Dataset, Split
from jaxsyn.data.store.rows import Rows
from jaxsyn.errors import InputError
from jaxsyn.plan import check_trees, resolve
from jaxsyn.session import Session, workdir
from jaxsyn.training.checkpoint_writer import Progress
from jaxsyn.training.mesh import Layout
from jaxsyn.validation import Validator

SIDES = ("source", "target")
RATE = 0.3


@pytest.fixture(scope="module")
def trained(made_once, prepared):
  """Runs of PASCAL, for one step, on each of the two kinds of trees."""

  def make(folder):
    for tree, rate in (("sampled", 0.5), ("wrong_parents", RATE)):
      config = quickstart.get_config("pascal")
      config.data.update(directory=str(prepared), tree=tree)
      config.data[tree].rate = rate
      config.seed = 5
      config.model.width = 32
      config.model.transformer.update(
        encoder_layers=1, decoder_layers=1, feed_forward=32, dropout=0.0
      )
      config.batch.update(tokens=12_000, shapes=1)
      config.train.update(steps=1, evaluate_every=1, save_every=1, log_every=1)
      config.train.update(minutes=0.0, selection="log_likelihood")
      train.run(config, folder / tree)

  return made_once("changed_trees", make)


def load(records, rate, **options):
  names = ("head", "relation", "parent_mid", "tree_distance")
  required = [f"{side}_{name}" for side in SIDES for name in names]
  data = dataclasses.replace(data_of(), tree=WrongParents(rate))
  return opened(records, required, **{"data": data, "seed": 3, **options})


def with_wrong_parents(records, seed):
  """The examples, with the trees that `replace_trees` gives each example."""
  examples = list(records)
  for side in SIDES:
    examples = [
      replace_trees(one, side, tree=WrongParents(RATE), seed=seed)
      for one in examples
    ]
  return examples


def test_wrong_parents_have_the_rate_and_depend_on_the_seed(prepared):
  records = Dataset(prepared).split("validation")
  found = {}
  for rate, seed in ((0.6, 3), (0.3, 4), (0.3, 3)):
    loader = load(records, rate, seed=seed)
    found[rate, seed] = loader.all_examples.flat["source_head"].tolist()
    data = dataclasses.replace(data_of(), tree=WrongParents(rate))
    assert abs(wrong_parents(records, data, seed)["source"] - rate) < 0.06
  assert len({*map(tuple, found.values())}) == 3
  examples = with_wrong_parents(records, seed=3)
  heads = np.concatenate([one["source_head"] for one in examples])
  assert found[0.3, 3] == heads.tolist()
  # Rate 0 equals parsed trees bit for bit.
  loaders = load(records, 0.0), load(records, 0.0, data=data_of())
  for one, other in zip(*(split.in_order() for split in loaders), strict=True):
    assert one.keys() == other.keys()
    for name in one:
      assert_array_equal(one[name], other[name])
      assert one[name].dtype == other[name].dtype


def test_sentences_without_a_tree_have_no_wrong_parents(prepared):
  class HalfParsed(Split):
    """All words of every second sentence are roots: they cannot be wrong."""

    def rows(self, features):
      for rows in super().rows(features):
        parsed = np.arange(len(rows)) % 2
        words = rows.sizes("source_head")
        own_W = np.concatenate([np.arange(size) for size in words])
        is_root_W = np.repeat(parsed == 0, words)
        head_W = np.where(is_root_W, own_W, rows.flat["source_head"])
        changed = {
          "source_parsed": parsed.astype(np.uint8),
          "source_head": head_W.astype(np.int32),
        }
        yield Rows(rows.flat | changed, rows.start)

  records = HalfParsed(Dataset(prepared), "validation")
  data = dataclasses.replace(data_of(), tree=WrongParents(1.0))
  assert wrong_parents(records, data, 3) == {"source": 1.0, "target": 1.0}


def test_translation_of_raw_text_uses_the_prepared_wrong_parents(
  trained, prepared
):
  session = Session(trained / "wrong_parents", checkpoint="last", beam=2)
  assert session.sources.tree == "wrong_parents"
  for split in ("test", "train"):
    records = list(Dataset(prepared).split(split))[:24]
    lines = (prepared.parent / "raw" / f"{split}.en").read_text().splitlines()
    changed = 0
    examples = with_wrong_parents(records, seed=5)
    for line, one, parsed in zip(lines, examples, records):
      loaded = session.sources.example(line)
      for name in {*loaded} - {"line"}:
        assert_array_equal(loaded[name], one[name], name)
      changed += (loaded["source_head"] != parsed["source_head"]).any()
    assert changed > 15


def test_validation_and_translation_use_the_best_parse_and_no_sample(
  trained, runs, prepared
):
  session = Session(trained / "sampled", checkpoint="last", beam=2)
  plain = Session(runs["pascal"], beam=2)
  assert session.sources.tree == plain.sources.tree == "parsed"
  for line in Dataset(prepared).text("test", "source")[:5]:
    one, other = (s.sources.example(line) for s in (session, plain))
    assert "source_parent_mid" in one and one.keys() == other.keys()
    for name in one:
      assert_array_equal(one[name], other[name])

  def score(tree):
    data = dataclasses.replace(session.plan.config.data, tree=tree)
    config = dataclasses.replace(session.plan.config, data=data)
    plan = resolve(config, manifests.read(prepared))
    split = Dataset(prepared).split("validation")
    validator = Validator(plan, Layout("jit", config.train.mesh), split)
    return validator(session.params[0]).values["log_likelihood"]

  best = score(TREES["parsed"]())
  assert score(TREES["sampled"](1.0)) == best
  assert score(TREES["random"]()) != best


@pytest.mark.parametrize("tree", ["sampled", "wrong_parents"])
def test_another_rate_is_another_run(trained, tree):
  config = Session(trained / tree, checkpoint="last").plan.config
  data = dataclasses.replace(config.data, tree=TREES[tree](0.6))
  with pytest.raises(InputError, match=rf"config\.data\.{tree}\.rate"):
    train.run(dataclasses.replace(config, data=data), trained / tree)


def test_a_run_records_the_rate_of_every_split(
  trained, prepared, tmp_path, capsys
):
  folder = shutil.copytree(trained / "wrong_parents", tmp_path / "run")
  result = workdir.wrong_parents(folder)
  assert [*result] == ["train", "validation", "test"]
  config = Session(folder).plan.config
  longer = dataclasses.replace(config.train, steps=2)
  train.run(dataclasses.replace(config, train=longer), folder)
  output = capsys.readouterr().out
  for split, rates in result.items():
    records = Dataset(prepared).split(split)
    assert rates == wrong_parents(records, config.data, 5)
    assert [*rates] == [*SIDES]
    assert abs(rates["source"] - RATE) < 0.05
    percent = f"{100 * rates['source']:.2f} %"
    assert f"wrong parents of {split}: source {percent}" in output
  job = types.SimpleNamespace(run=folder, records=list)
  outcome = types.SimpleNamespace(step=2, reason="", progress=Progress())
  assert facts.of_run(job, outcome, {}).wrong_parents == result
  path = folder / workdir.WRONG_PARENTS
  path.write_text(path.read_text().replace("0.", "0.1", 1))
  with pytest.raises(InputError, match=r"wrong_parents\.json is corrupt"):
    workdir.wrong_parents(folder)
  path.unlink()
  with pytest.raises(InputError, match=r"wrong_parents\.json is missing"):
    workdir.wrong_parents(folder)


def test_reports_have_the_rates():
  results = results_made.made()
  (plain,) = results.runs
  (split,) = plain.scores
  rates = dataclasses.replace(
    plain.facts, wrong_parents={split: {"source": 0.125}}
  )
  runs = (dataclasses.replace(plain, seed=1, facts=rates), plain)
  table = tables.runs(dataclasses.replace(results, runs=runs))
  assert table.head[-1] == "wrong parents"
  assert [row[-1].text for row in table.rows] == [f"{split} source 12.50 %", ""]


def test_samples_the_trees_that_a_system_reads():
  """Its features are parents of words or follow from them."""
  sampled = {}
  for system in systems.SYSTEMS:
    config = quickstart.get_config(system)
    if config.data.second.task != "none":
      continue  # sampled trees and auxiliary tasks are incompatible
    config.data.tree = "sampled"
    plan = resolve(read_config(config), JOINT)
    stored = [COMPUTED_FROM.get(name, name) for name in plan.features]
    sampled[system] = {*plan.sampled_sides}
    assert sampled[system] == {
      name.partition("_")[0]
      for name in stored
      if name.endswith(("_head", "_parent_mid", "_tree_distance"))
    }
  assert sampled["pascal"] == sampled["deps_san"] == {"source"}
  assert sampled["dbsa"] == {"source", "target"}


UNUSED = r"config\.data\.tree='sampled' does nothing here: .*'transformer'"


def test_a_system_must_read_the_sampled_trees(
  tiny, prepared, tmp_path, monkeypatch
):
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
  # The commands check it.
  config = tiny("transformer")
  config.data.tree = "sampled"
  with pytest.raises(InputError, match=UNUSED):
    compare.run({"transformer": config}, tmp_path / "comparison", 1)
  command = [
    "--config=configs/quickstart.py",
    f"--config.data.directory={config.data.directory}",
    "--config.data.tree=sampled",
    f"--workdir={tmp_path / 'run'}",
  ]
  monkeypatch.setattr(sys, "argv", ["train", *command])
  rejects = pytest.raises(InputError, match=UNUSED)
  with command_flags.parsed(train, *command) as values, rejects:
    train._main(values)
  assert not [*tmp_path.iterdir()]
