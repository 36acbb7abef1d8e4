"""Constructed results of runs and of a comparison, without any training."""

import dataclasses

from models_under_test import config_of

from jaxsyn.comparison import results, run_result
from jaxsyn.comparison.analysis import control_of
from jaxsyn.comparison.hierarchical import Bootstrap, Hierarchical
from jaxsyn.config import as_dict
from jaxsyn.scoring.results import Difference, PairedTest, Score

CONFIG = {
  "seed": 0,
  "system": "transformer",
  "data": {"tree": "parsed"},
  "decode": {
    "checkpoint": "best",
    "beam": 5,
    "length_penalty": "gnmt",
    "alpha": 0.6,
  },
  "train": {"selection": "bleu", "tokenizer": "", "average": 1},
}

DATA = results.DatasetFacts(
  "m_30", "data/m", "en", "de", {"test": 20}, {"records": {"test": "ab" * 32}}
)
FACTS = results.RunFacts(
  step=9,
  reason="steps",
  selection="BLEU (13a)",
  best_step=6,
  best_score=29.5,
  minutes=1.5,
  tokens=900,
  tokens_per_s=700.0,
  parameters=5000,
  machine=results.Machine("cpu", 1, "a chip", 2, "Linux", "3.11", {"jax": "1"}),
)
SCORES = {
  "transformer": (30.0, 31.0),
  "pascal": (31.0, 32.0),
  "pascal_random_tree": (29.0, 30.0),
}


def summary(system, *values):
  mean = sum(values) / len(values)
  sd = 0.5 if len(values) > 1 else None
  seeds = tuple(range(len(values)))
  return results.Summary(system, "BLEU", mean, sd, seeds, values)


def over_seeds(system, value, p, other="transformer", adjusted_p=None):
  return Hierarchical(
    system=system,
    baseline=other,
    metric="BLEU",
    value=value,
    by_seed=(value, value),
    seeds=(0, 1),
    low=value - 1,
    high=value + 1,
    p=p,
    adjusted_p=adjusted_p,
    verdict="better" if value > 0 else "worse",
    seed_sd=0.3,
    sentence_sd=0.2,
    degrees=2.0,
    bootstrap=Bootstrap(value - 0.5, value + 0.5, p / 2, 100),
  )


def split_made():
  """A test set; Holm: 3 · 0.0001, 2 · 0.001, 1 · 0.03."""
  test = PairedTest("bootstrap", 0.04, 0.02, 100, "bs:100")
  difference = Difference(
    "pascal", "transformer", "BLEU", 1.0, 0.1, 1.9, 9, 8, 3, (test,)
  )
  texts = {"transformer": "q", "pascal": "x <y> z", "pascal_random_tree": ""}
  scores = {"transformer": 10.0, "pascal": 60.0, "pascal_random_tree": 20.0}
  small, large = (summary("pascal", 3.0),), (summary("pascal", 4.0),)
  differences = (over_seeds("pascal", 0.7, 0.2),)
  return results.TestSet(
    name="test",
    sentences=20,
    signatures={"BLEU": "case:mixed"},
    scores=tuple(summary(n, *values) for n, values in SCORES.items()),
    over_sentences=(results.SeedDifference(0, difference),),
    over_seeds=(
      over_seeds("pascal", 2.0, 0.0001, "pascal_random_tree", 0.0003),
      over_seeds("pascal", 1.0, 0.03, adjusted_p=0.03),
      over_seeds("pascal_random_tree", -1.0, 0.001, adjusted_p=0.002),
    ),
    errors=(),
    buckets=(
      results.ComparedBucket("depth", "0-2", 4, 0.2, small, ()),
      results.ComparedBucket("depth", "3", 16, 0.8, large, differences),
    ),
    example_metric="chrF",
    examples=(results.Example(7, "a <b> c", "x y z", 1, scores, texts),),
  )


def made(**changes):
  """Three systems, including one control, on one test set."""
  configs = {name: as_dict(config_of(name)) for name in SCORES}
  controlled = {name: control_of(name, configs) for name in SCORES}
  entries = []
  for name, of in controlled.items():
    tree = {"tree": configs[name]["data"]["tree"]}
    config = CONFIG | {"system": name, "data": tree}
    controls = tuple(n for n in SCORES if controlled[n] == name)
    entries.append(results.ComparedSystem(name, config, DATA, controls, of, {}))
  run = results.SeedRun(
    "transformer",
    0,
    "c0ffee",
    "9.9",
    "transformer/seed_0",
    FACTS,
    (results.Point(6, 1.0, {"bleu": 29.5}),),
    {"test": (Score("BLEU", 30.0, "case:mixed"),)},
  )
  content = results.Comparison(
    format=results.FORMAT,
    made="today",
    version="9.9",
    config_file="configs/m.py",
    overrides=("train.steps=9",),
    baseline="transformer",
    seeds=(0, 1),
    metrics=("BLEU",),
    samples=100,
    family=(
      ("pascal", "transformer"),
      ("pascal_random_tree", "transformer"),
      ("pascal", "pascal_random_tree"),
    ),
    variance="separate",
    systems=tuple(entries),
    runs=(run,),
    failed=(results.FailedRun("pascal", 2, "why"),),
    splits=(split_made(),),
    ablation=None,
  )
  return dataclasses.replace(content, **changes)


def run_made(system="transformer", seed=0, tests=None, **changes):
  """Returns the result of a run."""
  content = run_result.RunResult(
    format=run_result.FORMAT,
    version="9.9",
    commit="c0ffee",
    finished="2026-01-01T00:00:00+00:00",
    system=system,
    seed=seed,
    config=CONFIG | {"seed": seed, "system": system},
    published={},
    origin=results.Origin(),
    data=DATA,
    facts=dataclasses.replace(FACTS, minutes=0.5),
    curve=(),
    tests=tests or {},
    files={},
  )
  return dataclasses.replace(content, **changes)
