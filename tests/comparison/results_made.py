"""Results of runs and of a comparison that never was, to write reports of."""

import dataclasses

from models_under_test import config_of

from jaxsyn.comparison import results, run_result
from jaxsyn.comparison.controls import control_of, controls
from jaxsyn.comparison.hierarchical import Bootstrap, Hierarchical
from jaxsyn.config import as_dict
from jaxsyn.scoring.results import Difference, PairedTest, Score

DECODE = {
  "checkpoint": "best",
  "beam": 5,
  "length_penalty": "gnmt",
  "alpha": 0.6,
}
TRAIN = {"selection": "bleu", "tokenizer": "", "average": 1}
MACHINE = results.Machine("cpu", 1, "a chip", 2, "Linux", "3.11", {"jax": "1"})


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


def made(**changes):
  """Three systems, of which one is a control, on one split."""
  data = results.DataSet(
    "m_30", "data/m", "en", "de", {"test": 20}, {"records": {"test": "ab" * 32}}
  )
  names = ("transformer", "pascal", "pascal_random_tree")
  configs = {name: as_dict(config_of(name)) for name in names}
  scores = ((30.0, 31.0), (31.0, 32.0), (29.0, 30.0))
  test = PairedTest("bootstrap", 0.04, 0.02, 100, "bs:100")
  split = results.TestSet(
    *("test", 20),
    {"BLEU": "case:mixed"},
    tuple(summary(n, *v) for n, v in zip(names, scores)),
    (
      results.OneSeed(
        0,
        Difference(
          *("pascal", "transformer", "BLEU", 1.0, 0.1, 1.9),
          *(9, 8, 3, (test,)),
        ),
      ),
    ),
    (
      # Three tests: 3 · 0.0001, 2 · 0.001, 1 · 0.03.
      over_seeds("pascal", 2.0, 0.0001, "pascal_random_tree", 0.0003),
      over_seeds("pascal", 1.0, 0.03, adjusted_p=0.03),
      over_seeds("pascal_random_tree", -1.0, 0.001, adjusted_p=0.002),
    ),
    (),
    (
      results.BucketOfRuns(
        "depth", "0-2", 4, 0.2, (summary("pascal", 3.0),), ()
      ),
      results.BucketOfRuns(
        *("depth", "3", 16, 0.8, (summary("pascal", 4.0),)),
        (over_seeds("pascal", 0.7, 0.2),),
      ),
    ),
    "chrF",
    (
      results.Example(
        7,
        "a <b> c",
        "x y z",
        1,
        {"transformer": 10.0, "pascal": 60.0, "pascal_random_tree": 20.0},
        {"transformer": "q", "pascal": "x <y> z", "pascal_random_tree": ""},
      ),
    ),
  )
  facts = results.RunFacts(
    *(9, "steps", "BLEU (13a)", 6, 29.5, 1.5, 900, 700.0, 5000, MACHINE)
  )
  run = results.SeedRun(
    *("transformer", 0, "c0ffee", "9.9", "transformer/seed_0", facts),
    (results.Point(6, 1.0, {"bleu": 29.5}),),
    {"test": (Score("BLEU", 30.0, "case:mixed"),)},
  )
  content = results.Comparison(
    *(results.FORMAT, "today", "9.9", "configs/m.py", ("train.steps=9",)),
    *("transformer", (0, 1)),
    *(("BLEU",), 100),
    (
      ("pascal", "transformer"),
      ("pascal_random_tree", "transformer"),
      ("pascal", "pascal_random_tree"),
    ),
    "separate",
    tuple(
      results.Entry(
        n,
        {"seed": 0, "decode": DECODE, "train": TRAIN},
        data,
        controls(n, configs),
        control_of(n, configs),
        {},
      )
      for n in names
    ),
    (run,),
    (results.FailedRun("pascal", 2, "why"),),
    (split,),
    None,
  )
  return dataclasses.replace(content, **changes)


def run_made(system="transformer", seed=0, tests=None, **changes):
  """The result of a run without any training."""
  content = run_result.RunResult(
    format=run_result.FORMAT,
    version="9.9",
    commit="c0ffee",
    finished="2026-01-01T00:00:00+00:00",
    system=system,
    seed=seed,
    config={
      "seed": seed,
      "system": system,
      "data": {"tree": "parsed"},
      "decode": DECODE,
      "train": TRAIN,
    },
    published={},
    origin=results.Origin(),
    data=results.DataSet(
      "m", "data/m", "en", "de", {"test": 20}, {"records": {"test": "ab" * 32}}
    ),
    facts=results.RunFacts(
      *(6, "steps", "BLEU (13a)", 3, 1.5, 0.5, 9, 2.0, 7, MACHINE)
    ),
    curve=(),
    tests=tests or {},
    files={},
  )
  return dataclasses.replace(content, **changes)
