"""Trees with wrong parents are equal throughout a run, and recorded."""

import dataclasses
import shutil
import types

import numpy as np
import pytest
import results_made
from control_trees import replace_trees
from numpy.testing import assert_array_equal
from toy_folders import data_of, opened

from jaxsyn import train
from jaxsyn.comparison import facts, tables
from jaxsyn.configs import quickstart
from jaxsyn.data.loader.transforms import wrong_parents
from jaxsyn.data.sentence.controls import WrongParents
from jaxsyn.data.store.dataset import Dataset, Split
from jaxsyn.data.store.rows import Rows
from jaxsyn.errors import InputError
from jaxsyn.session import Session, workdir
from jaxsyn.training.checkpoint_writer import Progress

SIDES = ("source", "target")
FEATURES = ("head", "relation", "parent_mid", "tree_distance")
RATE = 0.3


def data(rate=RATE):
  return dataclasses.replace(data_of(), tree=WrongParents(rate))


def load(records, rate=RATE, **options):
  required = [f"{side}_{name}" for side in SIDES for name in FEATURES]
  options = {"data": data(rate), "seed": 3, **options}
  return opened(records, required, **options)


def with_wrong_parents(records, seed):
  """The examples, with the trees that `replace_trees` gives each of them."""
  examples = list(records)
  for side in SIDES:
    examples = [
      replace_trees(one, side, tree=WrongParents(RATE), seed=seed)
      for one in examples
    ]
  return examples


def test_trees_depend_on_rate_and_seed(prepared):
  records = Dataset(prepared).split("validation")
  found = {}
  for rate, seed in ((0.3, 3), (0.6, 3), (0.3, 4), (0.3, 3)):
    loader = load(records, rate, seed=seed)
    heads = loader.all_examples.flat["source_head"].tolist()
    assert found.setdefault((rate, seed), heads) == heads
    counted = wrong_parents(records, data(rate), seed)
    assert abs(counted["source"] - rate) < 0.06
  assert len({*map(tuple, found.values())}) == 3
  examples = with_wrong_parents(records, seed=3)
  heads = np.concatenate([one["source_head"] for one in examples])
  assert found[0.3, 3] == heads.tolist()
  # Rate 0 equals parsed trees bit for bit.
  loaders = load(records, 0.0), load(records, data=data_of())
  for one, other in zip(*(split.in_order() for split in loaders), strict=True):
    assert one.keys() == other.keys()
    for name in one:
      assert_array_equal(one[name], other[name])
      assert one[name].dtype == other[name].dtype


def test_sentences_without_a_tree_do_not_count(prepared):
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
  rates = wrong_parents(records, data(1.0), 3)
  assert rates == {"source": 1.0, "target": 1.0}


@pytest.fixture(scope="module")
def trained(made_once, prepared):
  """A run of PASCAL on trees with wrong parents."""

  def make(folder):
    config = quickstart.get_config("pascal")
    config.data.directory, config.data.tree = str(prepared), "wrong_parents"
    config.data.wrong_parents.rate = RATE
    config.seed = 5
    config.model.width = 32
    config.model.transformer.update(
      encoder_layers=1, decoder_layers=1, feed_forward=32, dropout=0.0
    )
    config.batch.update(tokens=12_000, shapes=1)
    config.train.update(steps=1, evaluate_every=1, save_every=1, log_every=1)
    config.train.update(minutes=0.0, selection="log_likelihood")
    train.run(config, folder / "run")

  return made_once("wrong_parents", make) / "run"


def test_translation_of_raw_text_uses_the_prepared_trees(trained, prepared):
  session = Session(trained, checkpoint="last", beam=2)
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


def test_a_run_records_the_rate_of_every_split(trained, prepared):
  result = workdir.wrong_parents(trained)
  assert [*result] == ["train", "validation", "test"]
  config = Session(trained).plan.config
  for split, rates in result.items():
    records = Dataset(prepared).split(split)
    assert rates == wrong_parents(records, config.data, 5)
    assert [*rates] == [*SIDES]
    assert abs(rates["source"] - RATE) < 0.05
  job = types.SimpleNamespace(run=trained, records=list)
  outcome = types.SimpleNamespace(step=2, reason="", progress=Progress())
  assert facts.of_run(job, outcome, {}, ()).wrong_parents == result


def test_rejects_a_corrupt_record_of_rates(trained, tmp_path):
  folder = shutil.copytree(trained, tmp_path / "run")
  path = folder / workdir.WRONG_PARENTS
  path.write_text(path.read_text().replace("0.", "0.1", 1))
  with pytest.raises(InputError, match=r"wrong_parents\.json is corrupt"):
    workdir.wrong_parents(folder)
  path.unlink()
  with pytest.raises(InputError, match=r"wrong_parents\.json is missing"):
    workdir.wrong_parents(folder)


def test_a_resumed_run_logs_the_rates_and_rejects_others(
  trained, tmp_path, capsys
):
  folder = shutil.copytree(trained, tmp_path / "run")
  config = Session(folder).plan.config
  other = dataclasses.replace(config.data, tree=WrongParents(0.6))
  with pytest.raises(InputError, match=r"config\.data\.wrong_parents\.rate"):
    train.run(dataclasses.replace(config, data=other), folder)
  longer = dataclasses.replace(config.train, steps=2)
  capsys.readouterr()
  train.run(dataclasses.replace(config, train=longer), folder)
  output = capsys.readouterr().out
  for split, rates in workdir.wrong_parents(folder).items():
    percent = f"{100 * rates['source']:.2f} %"
    assert f"wrong parents of {split}: source {percent}" in output


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
