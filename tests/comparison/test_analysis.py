"""Scores over seeds, by hand: exact matches of four sentences."""

import gzip
import shutil

import numpy as np
import pytest
from models_under_test import config_of

from jaxsyn.comparison import analysis, controls, measure, planned_jobs
from jaxsyn.config import as_dict, read_config
from jaxsyn.configs import quickstart
from jaxsyn.data.store import layout
from jaxsyn.errors import InputError
from jaxsyn.scoring import buckets
from jaxsyn.scoring.metrics import scorer_of
from jaxsyn.scoring.settings import Settings

SETTINGS = Settings(metrics=("exact",), samples=200)
PAIR = [("other", "base")]
SCORER = scorer_of("exact", [["a"] * 4])


def scored(**systems):
  """System -> right sentences of each seed, of four."""
  return {
    system: {
      seed: [SCORER.measure(["a"] * right + ["x"] * (4 - right))]
      for seed, right in enumerate(rights)
    }
    for system, rights in systems.items()
  }


def test_means_and_deviations():
  (one, other) = analysis.summaries(scored(base=(1, 3), single=(2,)))
  # 25 and 75: mean 50, deviations of 25 each way: √(2 · 25² / 1).
  assert (one.mean, one.values, one.seeds) == (50, (25, 75), (0, 1))
  assert one.sd == pytest.approx(2**0.5 * 25)
  assert (other.mean, other.sd) == (50, None)


def test_runs_are_paired_by_seed():
  runs = scored(base=(1, 2), other=(2, 4))
  (result,) = analysis.over_seeds(runs, PAIR, SETTINGS.draws)
  assert (result.by_seed, result.value) == ((25, 50), 37.5)
  singles = analysis.over_sentences(runs, PAIR, SETTINGS)
  assert [(s.seed, s.difference.value) for s in singles] == [(0, 25), (1, 50)]


def test_a_seed_that_one_system_lacks_is_left_out():
  runs = scored(base=(1, 2, 3), other=(2, 4))
  del runs["other"][0]
  (result,) = analysis.over_seeds(runs, PAIR, SETTINGS.draws)
  assert (result.seeds, result.by_seed, result.p) == ((1,), (50,), None)


def test_systems_are_compared_with_their_controls_too():
  runs = scored(
    transformer=(1,), pascal=(3,), pascal_random_tree=(2,), deps_san=(2,)
  )
  configs = {name: as_dict(config_of(name)) for name in runs}
  pairs = controls.pairs(configs, "transformer")
  result = analysis.over_seeds(runs, pairs, SETTINGS.draws)
  assert [(f.system, f.baseline, f.value) for f in result] == [
    ("pascal", "transformer", 50),
    ("pascal_random_tree", "transformer", 25),
    ("deps_san", "transformer", 25),
    ("pascal", "pascal_random_tree", 25),
  ]


def test_buckets_have_all_runs():
  runs = scored(base=(1, 3), other=(2, 4))
  table = buckets.Buckets(
    "half", ("first", "none", "last"), np.array([0, 0, 2, 2])
  )
  first, none, last = analysis.in_buckets(
    table, runs, PAIR, draws=SETTINGS.draws
  )
  assert (first.count, none.count, last.share) == (2, 0, 0.5)
  assert [s.values for s in first.scores] == [(50, 100), (100, 100)]
  assert [s.values for s in last.scores] == [(0, 50), (0, 100)]
  assert none.scores == () and first.differences == ()  # too few to draw from


def test_a_test_set_that_is_not_as_it_was_written_is_refused(
  prepared, tmp_path
):
  """Its lines are as many, and the translations are there."""
  folder = shutil.copytree(prepared, tmp_path / "copy")
  config = quickstart.get_config("transformer")
  config.data.directory = str(folder)
  job = planned_jobs.TrainingJob(
    tmp_path, planned_jobs.System("transformer", read_config(config)), 0
  )
  job.hypotheses("test").parent.mkdir(parents=True)
  job.hypotheses("test").write_text("a\n" * 24)

  def scored():
    return measure.Measurer(SETTINGS.with_defaults("en"))(job, {})["test"]

  complete = scored()
  assert complete.sentences == 24 and "tree depth" in complete.facts
  for file in (
    layout.sentence_file(folder, "text", "test", "source"),
    layout.sentence_file(folder, "text", "test", "target"),
    layout.sentence_file(folder, "conllu", "test", "source"),
  ):
    shutil.copyfile(file, tmp_path / "kept")
    with gzip.open(file, "rt", encoding="utf-8") as stream:
      edited = stream.read().replace("a", "e").replace("\t0\t", "\t1\t")
    with gzip.open(file, "wt", encoding="utf-8") as stream:
      stream.write(edited)
    with pytest.raises(InputError, match=rf"{file} has .* Prepare the data"):
      scored()
    shutil.copyfile(tmp_path / "kept", file)
  assert scored() == complete
