"""Tests that trees with wrong parents are equal throughout a run and recorded."""

import dataclasses
import shutil
import types

import numpy as np
import pytest
import results_made
from control_trees import replace_trees
from toy_folders import data_of, opened

from jaxsyn import train
from jaxsyn.comparison import facts, tables
from jaxsyn.comparison.controls import control_of
from jaxsyn.config import as_dict, read_config
from jaxsyn.configs import quickstart
from jaxsyn.data.loader.batch_sampler import Position
from jaxsyn.data.loader.loader import HostShard
from jaxsyn.data.loader.transforms import wrong_parents
from jaxsyn.data.sentence.controls import Linear, Parsed, Random, WrongParents
from jaxsyn.data.store.dataset import Dataset, Split
from jaxsyn.data.store.rows import Rows
from jaxsyn.errors import InputError
from jaxsyn.session import Session, workdir
from jaxsyn.training.checkpoint_writer import Progress

READS = tuple(
  f"{side}_{name}"
  for side in ("source", "target")
  for name in ("head", "relation", "parent_mid", "tree_distance")
)
RATE = 0.3


def data(rate=RATE):
  return dataclasses.replace(data_of(), tree=WrongParents(rate))


def expected(records, seed, rate=RATE):
  """Number of the example -> the features that `replace_trees` gives it."""
  return [
    replace_trees(
      replace_trees(one, "source", tree=WrongParents(rate), seed=seed),
      "target",
      tree=WrongParents(rate),
      seed=seed,
    )
    for one in records
  ]


def check(batch, ids, wanted):
  """Compares rows of a batch with examples, feature by feature."""
  for row, index in enumerate(ids):
    for side, axis in (("source", "S"), ("target", "T")):
      one = wanted[index]
      words = len(one[f"{side}_head"])
      for name, letters in (
        ("head", "W"),
        ("relation", "W"),
        ("parent_mid", axis),
      ):
        full = one[f"{side}_{name}"]
        result = batch[f"{side}_{name}_B{letters}"][row, : len(full)]
        np.testing.assert_array_equal(result, full)
      square = batch[f"{side}_tree_distance_BWW"][row, :words, :words]
      np.testing.assert_array_equal(
        square.ravel(), one[f"{side}_tree_distance"].ravel()
      )


def test_batches_have_the_same_trees_in_any_epoch_window_and_host(prepared):
  records = Dataset(prepared).split("train")
  wanted = expected(records, seed=3)
  parsed = list(records)
  edited = sum(
    (a["source_head"] != b["source_head"]).any() for a, b in zip(wanted, parsed)
  )
  assert edited > 500  # of 600
  for memory_gib, tokens, hosts in ((1.0, 4000, 1), (3e-4, 1500, 2)):
    split = opened(
      records,
      READS,
      data=data(),
      seed=3,
      memory_gib=memory_gib,
      tokens=tokens,
      row_multiple=2,
    )
    assert split.in_memory == (memory_gib == 1)
    for part in range(hosts):
      share = HostShard((part,), hosts)
      values = dataclasses.replace(split, shard=share)
      for epoch in (0, 2):
        for planned, train_batch in zip(
          split.batch_sampler.epoch(epoch), values.batches(Position(epoch))
        ):
          rows = share.rows(planned.shape.rows)
          ids = planned.ids[rows[rows < len(planned.ids)]]
          check(train_batch.batch, ids.tolist(), wanted)
  evaluation = opened(records, READS, data=data(), seed=3, training=False)
  for planned, batch in zip(
    evaluation.batch_sampler.in_order(), evaluation.in_order()
  ):
    check(batch, planned.ids.tolist(), wanted)


def test_a_rate_of_0_equals_parsed_trees_bit_for_bit(prepared):
  records = Dataset(prepared).split("validation")
  splits = [
    opened(records, READS, data=one, seed=3) for one in (data(0.0), data_of())
  ]
  for one, other in zip(*(split.in_order() for split in splits), strict=True):
    assert one.keys() == other.keys()
    for name in one:
      np.testing.assert_array_equal(one[name], other[name])
      assert one[name].dtype == other[name].dtype


def test_rates_and_seeds_have_trees_of_their_own(prepared):
  records = Dataset(prepared).split("validation")
  found = {}
  for rate, seed in ((0.3, 3), (0.6, 3), (0.3, 4), (0.3, 3)):
    split = opened(records, READS, data=data(rate), seed=seed)
    heads = split.all_examples.flat["source_head"].tolist()
    assert found.setdefault((rate, seed), heads) == heads
    counted = wrong_parents(records, data(rate), seed)
    assert abs(counted["source"] - rate) < 0.06
  assert len({*map(tuple, found.values())}) == 3


def test_sentences_without_a_tree_do_not_count(prepared):
  class HalfParsed(Split):
    """All words of the other half are roots: they cannot be wrong."""

    def rows(self, features):
      for rows in super().rows(features):
        parsed = np.arange(len(rows)) % 2
        head_W = rows.flat["source_head"].copy()
        words = rows.sizes("source_head")
        own_W = np.arange(len(head_W))
        own_W -= np.repeat(rows.start["source_head"][:-1], words)
        is_root_W = np.repeat(parsed == 0, words)
        head_W[is_root_W] = own_W[is_root_W]
        flat = rows.flat | {
          "source_parsed": parsed.astype(np.uint8),
          "source_head": head_W,
        }
        yield Rows(flat, rows.start)

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
    config.train.update(steps=2, evaluate_every=2, save_every=1, log_every=1)
    config.train.update(minutes=0.0, selection="log_likelihood")
    train.run(config, folder / "run")

  return made_once("wrong_parents", make) / "run"


def test_translation_of_raw_text_uses_the_prepared_trees(trained, prepared):
  session = Session(trained, checkpoint="last", beam=2)
  assert session.sources.tree == "wrong_parents"
  for split in ("test", "train"):
    records = Dataset(prepared).split(split)
    lines = (prepared.parent / "raw" / f"{split}.en").read_text().splitlines()
    wanted = expected(records, seed=5)
    differ = 0
    for line, one, parsed in list(zip(lines, wanted, records))[:24]:
      loaded = session.sources.example(line)
      for name in loaded:
        if name != "line":
          np.testing.assert_array_equal(loaded[name], one[name], name)
      differ += (loaded["source_head"] != parsed["source_head"]).any()
    assert differ > 15


def test_records_the_rate_of_every_split(trained, prepared):
  result = workdir.wrong_parents(trained)
  assert [*result] == ["train", "validation", "test"]
  config = Session(trained).plan.config
  for split, rates in result.items():
    records = Dataset(prepared).split(split)
    assert rates == wrong_parents(records, config.data, 5)
    assert [*rates] == ["source", "target"]
    assert abs(rates["source"] - RATE) < 0.05


def test_rejects_a_corrupt_record_of_rates(trained, tmp_path):
  folder = shutil.copytree(trained, tmp_path / "run")
  path = folder / workdir.WRONG_PARENTS
  path.write_text(path.read_text().replace("0.", "0.1", 1))
  with pytest.raises(InputError, match=r"wrong_parents\.json is corrupt"):
    workdir.wrong_parents(folder)
  path.unlink()
  with pytest.raises(InputError, match=r"wrong_parents\.json is missing"):
    workdir.wrong_parents(folder)


def test_logs_the_rates_and_rejects_another_rate(trained, tmp_path, capsys):
  folder = shutil.copytree(trained, tmp_path / "run")
  config = Session(folder).plan.config
  longer = dataclasses.replace(
    config, train=dataclasses.replace(config.train, steps=3)
  )
  train.run(longer, folder)
  rates = workdir.wrong_parents(folder)
  output = capsys.readouterr().out
  for split in ("train", "validation", "test"):
    assert (
      f"wrong parents of {split}: source {100 * rates[split]['source']:.2f} %"
    ) in output
  with pytest.raises(InputError, match=r"config\.data\.wrong_parents\.rate"):
    other = dataclasses.replace(config.data, tree=WrongParents(0.6))
    train.run(dataclasses.replace(config, data=other), folder)


def test_wrong_parents_are_not_a_control_and_have_none(tiny):
  plain = read_config(tiny("neighbour_heads"))

  def on(tree):
    data = dataclasses.replace(plain.data, tree=tree)
    return as_dict(dataclasses.replace(plain, data=data))

  configs = {
    "wrong": on(WrongParents()),
    "plain": on(Parsed()),
    "random": on(Random()),
    "linear": on(Linear()),
  }
  assert [control_of(name, configs) for name in configs] == [
    *("", "", "plain", "plain")
  ]


def test_results_and_reports_have_the_rates(trained):
  job = types.SimpleNamespace(run=trained, records=list)
  outcome = types.SimpleNamespace(step=2, reason="", progress=Progress())
  rates = facts.of_run(job, outcome, {}, ()).wrong_parents
  assert rates == workdir.wrong_parents(trained)
  results = results_made.made()
  (plain,) = results.runs
  (split,) = plain.scores
  of_run = dataclasses.replace(
    plain.facts, wrong_parents={split: {"source": 0.125}}
  )
  runs = (dataclasses.replace(plain, seed=1, facts=of_run), plain)
  table = tables.runs(dataclasses.replace(results, runs=runs))
  assert table.head[-1] == "wrong parents"
  shares = [row[-1].text for row in table.rows]
  assert shares == [f"{split} source 12.50 %", ""]
