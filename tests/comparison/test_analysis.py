"""Comparisons from results: by hand for exact match, and what is rejected."""

import dataclasses
import re

import numpy as np
import pytest
from models_under_test import config_of
from results_made import run_made
from scored import scorer_of
from test_run_result import REFERENCES, run, statistics, translations

from jaxsyn.comparison import analysis, examples, report, results
from jaxsyn.comparison.analysis import control_of
from jaxsyn.comparison.inference import Inference, holm
from jaxsyn.config import as_dict
from jaxsyn.configs import systems
from jaxsyn.data.sentence.controls import Random, Sampled
from jaxsyn.errors import InputError
from jaxsyn.scoring.settings import Settings

SETTINGS = Settings(metrics=("exact",), samples=200)
SCORER = scorer_of("exact", [["a"] * 4])


def scored(**right):
  """System -> number of right sentences of each seed, of four."""
  return {
    system: {
      seed: [SCORER.measure(["a"] * count + ["x"] * (4 - count))]
      for seed, count in enumerate(counts)
    }
    for system, counts in right.items()
  }


def split_of(runs, pairs=(("other", "base"),), facts=None):
  return analysis.test_set(
    "test", runs, pairs, facts or {}, SETTINGS, Inference()
  )


def test_means_deviations_and_pairs_of_seeds():
  runs = scored(base=(1, 2), other=(2, 4))
  result = split_of(runs)
  # 50 and 100: mean 75, deviations of 25 each way: √(2 · 25² / 1).
  _, summary = result.scores
  assert (summary.mean, summary.values) == (75, (50, 100))
  assert summary.seeds == (0, 1)
  assert summary.sd == pytest.approx(2**0.5 * 25)
  (difference,) = result.over_seeds
  assert (difference.by_seed, difference.value) == ((25, 50), 37.5)
  assert 0 <= difference.bootstrap.low < difference.bootstrap.high
  singles = [(s.seed, s.difference.value) for s in result.over_sentences]
  assert singles == [(0, 25), (1, 50)]
  del runs["other"][0]  # a seed that only the baseline has
  result = split_of(runs)
  (d,) = result.over_seeds
  assert (d.seeds, d.by_seed, d.p) == ((1,), (50,), None)
  assert result.scores[1].sd is None
  (d,) = split_of(runs, (("base", "other"),)).over_seeds
  assert (d.seeds, d.by_seed) == ((1,), (-50,))


def test_systems_are_compared_with_their_controls():
  runs = scored(
    transformer=(1,), pascal=(3,), pascal_random_tree=(2,), deps_san=(2,)
  )
  configs = {name: as_dict(config_of(name)) for name in runs}
  controlled = {name: control_of(name, configs) for name in configs}
  pairs = analysis.pairs_to_test(controlled, "transformer")
  differences = split_of(runs, pairs).over_seeds
  assert [(d.system, d.baseline, d.value) for d in differences] == [
    ("pascal", "transformer", 50),
    ("pascal_random_tree", "transformer", 25),
    ("deps_san", "transformer", 25),
    ("pascal", "pascal_random_tree", 25),
  ]


def test_a_control_differs_in_its_trees_alone():
  """All *_tree systems are controls of the system in their name."""
  typed = {name: config_of(name) for name in systems.SYSTEMS}
  configs = {name: as_dict(config) for name, config in typed.items()}
  for name in systems.SYSTEMS:
    of = re.fullmatch(r"(.*)_(linear|random)_tree", name)
    assert control_of(name, configs) == (of[1] if of else "")
  # Also with other names, seeds and options of the tree, but no other options.
  random = dataclasses.replace(typed["dasa"].data, tree=Random())
  mine = dataclasses.replace(typed["dasa"], data=random, seed=7)
  configs["mine"] = as_dict(mine)
  assert control_of("mine", configs) == "dasa"
  sampled = dataclasses.replace(typed["dasa"].data, tree=Sampled(rate=0.3))
  configs["dasa"] = as_dict(dataclasses.replace(typed["dasa"], data=sampled))
  assert control_of("mine", configs) == "dasa"
  train = dataclasses.replace(typed["dasa"].train, steps=9)
  configs["mine"] = as_dict(dataclasses.replace(mine, train=train))
  assert control_of("mine", configs) == ""


def test_buckets_have_all_runs():
  depths = {"tree depth": [1, 2, 9, 9]}
  result = split_of(scored(base=(1, 3), other=(2, 4)), facts=depths).buckets
  first, none, *_, last = result
  assert (first.count, none.count, last.share) == (2, 0, 0.5)
  assert [s.values for s in first.scores] == [(50, 100), (100, 100)]
  assert [s.values for s in last.scores] == [(0, 50), (0, 100)]
  assert none.scores == () and first.differences == ()  # too few to resample


def compared(*runs, settings=None, failed=()):
  settings = settings or Settings(("chrf",), samples=50)
  chosen = ("transformer", "pascal")
  return analysis.of_runs(runs, settings, chosen, failed, inference=Inference())


def other_references():
  lines = [*REFERENCES[:-1], "x"]
  return {"test": statistics(translations(1), references=lines)}


def other_signature():
  test = statistics(translations(1))
  chrf = dataclasses.replace(test.metrics["chrf"], signature="nrefs:1|case:lc")
  metrics = {**test.metrics, "chrf": chrf}
  return {"test": dataclasses.replace(test, metrics=metrics)}


def with_train(**options):
  config = run_made().config
  return {**config, "train": {**config["train"], **options}}


OTHER_DATA = dataclasses.replace(run_made().data, hashes={"records": {}})


@pytest.mark.parametrize(
  ("other", "message"),
  [
    (
      run_made("pascal", 0, other_references()),
      "pascal seed 0 and transformer seed 0, test: their references differ",
    ),
    (
      run_made("pascal", 0, other_signature()),
      "pascal seed 0 and transformer seed 0 have other signatures of chrf",
    ),
    (run_made("pascal", 0), "pascal seed 0 was not scored on test set test"),
    (
      run("pascal", splits=("test", "more")),
      "pascal seed 0 was scored on more",
    ),
    (
      run("transformer", 1, config=with_train(steps=9)),
      r"transformer seed 0 and transformer seed 1 have other configs: train\.",
    ),
    (run("transformer", 1, data=OTHER_DATA), "were trained on different data"),
    (
      run_made("pascal", 0, {"test": statistics(translations(1), ["bleu"])}),
      "pascal seed 0 has no statistics of 'chrf' on test",
    ),
  ],
)
def test_rejects_runs_that_cannot_be_compared(other, message):
  with pytest.raises(InputError, match=message):
    compared(run(), other)


def test_rejects_a_comparison_without_its_baseline():
  failed = [results.FailedRun("transformer", 0, "NaN")]
  with pytest.raises(InputError, match="of the baseline transformer: NaN"):
    compared(run("pascal"), failed=failed)


def test_configs_may_differ_in_neutral_options():
  config = with_train(log_every=9)
  found = compared(run(), run("transformer", 1, config=config))
  assert found.seeds == (0, 1)


def test_runs_are_ordered_by_seed_then_system():
  runs = [run(s, k) for s in ("pascal", "transformer") for k in (1, 0)]
  result = compared(*runs, run("deps_san"))
  assert [(r.system, r.seed) for r in result.runs] == [
    ("transformer", 0),
    ("pascal", 0),
    ("transformer", 1),
    ("pascal", 1),
  ]
  (one,) = result.splits[0].over_seeds
  values = {(r.system, r.seed): r.scores["test"][0].value for r in result.runs}
  assert one.by_seed == pytest.approx(
    [values["pascal", k] - values["transformer", k] for k in (0, 1)]
  )


def test_a_family_is_corrected_together():
  chosen = ("transformer", "pascal", "deps_san", "relative")
  runs = [run(s, k, ("one", "two")) for s in chosen for k in (0, 1, 2)]
  family = (("pascal", "deps_san"), ("relative", "transformer"))
  without_runs = ("pascal", "rotary")
  inference = Inference((*family, without_runs), "pooled", {"chrf": 50.0})
  settings = Settings(("chrf", "bleu"), samples=50)
  result = analysis.of_runs(
    runs, settings, (*chosen, "rotary"), inference=inference
  )
  tests = {}
  for split in result.splits:
    for d in split.over_seeds:
      tests[split.name, d.metric, d.system, d.baseline] = d
  assert len(tests) == 3 * 2 * 4  # three with the baseline, and one more
  inside = [tests["mean of test sets", "chrF", *pair] for pair in family]
  assert [d.adjusted_p for d in inside] == holm([d.p for d in inside])
  for key, d in tests.items():
    assert (d.adjusted_p is None) == (d not in inside), key
    assert (d.margin == 50.0) == (d.metric == "chrF"), key
    assert d.verdict in ("better", "worse", "equivalent", "undecided")
  errors = {e.metric: e for e in result.primary.errors}
  assert set(errors) == {"chrF", "BLEU"} and errors["chrF"].degrees == 3 * 2
  for d in inside:
    assert d.seed_sd**2 == pytest.approx(2 * errors["chrF"].sd ** 2 / 3)
  text = report.markdown(result)
  for expected in (
    "not in the family",
    "in the family of 2 tests (chrF, mean of test sets)",
    "Pooled over 4 systems, with 6 degrees of freedom: ",
    "without a test: pascal against rotary.",
  ):
    assert expected in text, expected
  assert results.from_json(results.to_json(result)) == result


def test_the_mean_of_test_sets():
  runs = [
    run(system, seed, splits=("one", "two"))
    for system in ("transformer", "pascal")
    for seed in (0, 1, 2)
  ]
  result = compared(*runs, settings=Settings(("chrf",), samples=3000))
  one, two, mean = result.splits
  assert (mean.name, mean.sentences) == ("mean of test sets", 10)
  assert mean.buckets == () and mean is result.primary
  for a, b, both in zip(one.scores, two.scores, mean.scores):
    assert both.values == pytest.approx(
      [(x + y) / 2 for x, y in zip(a.values, b.values)]
    )
  (d1,), (d2,), (d,) = (split.over_seeds for split in result.splits)
  assert d.value == pytest.approx((d1.value + d2.value) / 2)
  # Test sets are resampled independently: Var((a + b) / 2) = (Va + Vb) / 4.
  independent = ((d1.sentence_sd**2 + d2.sentence_sd**2) / 4) ** 0.5
  assert d.sentence_sd == pytest.approx(independent, rel=0.05)
  # Not the mean of two standard deviations.
  assert d.seed_sd == pytest.approx(np.std(d.by_seed, ddof=1) / 3**0.5)
  single = mean.over_sentences[0].difference
  assert single.better + single.worse + single.same == 10
  assert single.tests[0].sacrebleu_p is None


def test_examples_have_the_largest_differences():
  sources = ["s one", "s two", "s three"]
  references = ["a red bird", "the old house", "no more"]
  # Line 1: equal. Line 2: only seed 1 differs. Line 3: both seeds differ.
  texts = {
    ("base", 0): references,
    ("base", 1): references,
    ("other", 0): ["a red bird", "the old house", "xx"],
    ("other", 1): ["a red bird", "the odd mouse", "yy"],
  }

  def chosen(*metrics):
    scorers = [scorer_of(name, [references]) for name in metrics]
    runs = {"base": {}, "other": {}}
    for (system, seed), lines in texts.items():
      runs[system][seed] = [scorer.measure(lines) for scorer in scorers]
    return examples.choose(sources, references, runs, texts)

  metric, (first, second) = chosen("bleu", "chrf")
  assert metric == "chrF" and (first.line, second.line) == (3, 2)
  assert (first.source, first.reference) == ("s three", "no more")
  assert second.seed == 1
  assert second.translations == {
    "base": "the old house",
    "other": "the odd mouse",
  }
  single = scorer_of("chrf", [["the old house"]]).measure(["the odd mouse"])
  assert second.scores == pytest.approx({"base": 100, "other": single.value})
  assert chosen("exact", "bleu")[0] == "exact"
