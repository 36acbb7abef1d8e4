"""Tests the driver of the experiment with runs on a small corpus."""

import dataclasses
import itertools
import pathlib
import shutil
import subprocess
import sys

import numpy as np
import pytest

from benchmarks.experiment import reports, runs
from benchmarks.experiment.blocks import (
  BLOCKS,
  METRICS,
  WITH_TREES,
  WITHOUT_TREES,
)
from benchmarks.experiment.systems import (
  Experiment,
  best_system,
  best_trial,
  systems_of,
)
from jaxsyn.comparison import planned_jobs, run_result
from jaxsyn.comparison.results import Point, from_json
from jaxsyn.config import read_config
from jaxsyn.errors import InputError

ROOT = pathlib.Path(__file__).resolve().parent.parent

CONFIG = """
from jaxsyn.configs import quickstart

def get_config(system="transformer"):
  config = quickstart.get_config(system)
  config.model.update(width=32)
  config.model.transformer.update(
    encoder_layers=1, decoder_layers=1, feed_forward=32
  )
  config.batch.update(tokens=1024, shapes=1)
  config.decode.update(beam=2, max_length_factor=1.0, max_length_offset=4)
  return config
"""

# The results of the runs are collected, so the second call has nothing to do.
DRIVER = """
import pathlib, shutil, sys
from benchmarks.experiment.blocks import BLOCKS, CORPORA, Block, Corpus
from benchmarks.experiment.runs import run
from benchmarks.experiment.systems import Experiment

work, config = map(pathlib.Path, sys.argv[1:])
CORPORA["tiny"] = Corpus(str(config), "raw")
BLOCKS["E0"] = Block("tiny", 20, 1, ("transformer", "pascal"))
experiment = Experiment(work, work / "results", nice=0)
run("E0", experiment)
shutil.rmtree(work / "runs")
run("E0", experiment)
"""


@pytest.fixture(scope="module")
def driven(tmp_path_factory, prepared, environment):
  """The work folder of a block that was run twice."""
  work = tmp_path_factory.mktemp("experiment")
  config = work / "tiny.py"
  config.write_text(CONFIG)
  (work / "data").mkdir()
  (work / "data" / "tiny").symlink_to(prepared)
  subprocess.run(
    [sys.executable, "-c", DRIVER, str(work), str(config)],
    env=environment | {"PYTHONPATH": str(ROOT)},
    start_new_session=True,
    check=True,
    timeout=600,
  )
  return work


def test_collects_results(driven):
  results = Experiment(driven, driven / "results").read_results("E0")
  assert sorted(r.name for r in results) == [
    "pascal seed 0",
    "transformer seed 0",
  ]
  for result in results:
    assert result.facts.step == 20
    assert set(result.tests["test"].metrics) >= set(METRICS)
    assert result.config["data"]["directory"] == "tiny"
  for path in driven.glob("results/E0/*.json"):
    assert str(driven) not in path.read_text()


def test_does_not_repeat_runs_whose_results_are_collected(driven):
  """The folder of the runs was removed after they were collected."""
  assert not [*driven.glob("runs/*/*/seed_0")]


@pytest.fixture(scope="module", params=["neighbour_heads"])
def complete(driven, tmp_path_factory, request):
  """Result files of E0, E1a and E1b with known scores; the parameter is T."""
  folder = tmp_path_factory.mktemp("complete")
  template = run_result.read(next(driven.glob("results/E0/pascal*.json")))
  scores = {"half_rate": -1.0, request.param: -1.2, "rotary": -1.1}

  def write(name, system, seed, score):
    facts = dataclasses.replace(template.facts, best_score=score)
    result = dataclasses.replace(
      template, system=system, seed=seed, facts=facts
    )
    block = folder / "results" / name
    block.mkdir(parents=True, exist_ok=True)
    run_result.write(block / f"{system}.seed_{seed}.json", result)

  for name in ("E0", "E1a", "E1b"):
    block = BLOCKS[name]
    for text, seed in itertools.product(block.systems, range(block.seeds)):
      system = text.partition("=")[0]
      score = next(
        (s for end, s in scores.items() if system.endswith(end)), -2.0
      )
      write(name, system, seed, score)
  return Experiment(folder, folder / "results")


def test_chooses_recipe_and_systems_by_validation(complete):
  assert best_trial(complete) == "half_rate"
  best = best_system
  assert best(WITH_TREES, complete) == "neighbour_heads"
  assert best(WITHOUT_TREES, complete) == "rotary"


@pytest.mark.parametrize("complete", WITH_TREES, indirect=True)
@pytest.mark.parametrize("name", BLOCKS)
def test_all_systems_of_a_block_have_valid_configs(name, complete):
  systems = systems_of(name, complete)
  names = [system.name for system in systems]
  assert len(set(names)) == len(names)  # also where T is pascal
  for system in systems:
    train, corpus = system.config.train, BLOCKS[name].corpus
    assert train.steps == BLOCKS[name].updates
    assert (train.patience, train.minutes) == (0, 0.0)
    rate = system.config.optimiser.learning_rate
    if name != "E0" and corpus != "generated":
      assert rate == 0.005
    if "random_tree" in system.name:
      assert type(system.config.data.tree).__name__ == "Random"


def test_a_block_waits_for_the_blocks_that_it_depends_on(complete, tmp_path):
  shutil.copytree(complete.results, tmp_path / "results")
  complete = Experiment(tmp_path, tmp_path / "results")
  for file in (complete.results / "E1b").glob("*seed_7.json"):
    file.unlink()
  with pytest.raises(InputError, match="E1b is not complete: 28 of 32 results"):
    systems_of("E5_hau", complete)


def test_spread_is_pooled_over_systems(driven):
  """Two systems of three runs: variances 1 and 3 give sqrt(2)."""
  template = run_result.read(next(driven.glob("results/E0/pascal*.json")))
  test = template.tests["test"]
  stored = test.metrics["log_likelihood"]

  def run(system, value):
    rows = np.tile([value, 1.0], (test.sentences, 1))
    metrics = {
      "log_likelihood": dataclasses.replace(
        stored, sentences=run_result.PackedArray.of(rows)
      )
    }
    tests = {"test": dataclasses.replace(test, metrics=metrics)}
    return dataclasses.replace(template, system=system, tests=tests)

  results = [run("a", v) for v in (-1.0, -2.0, -3.0)]
  results += [run("b", v) for v in (-2.0, -2.0, -5.0)]
  assert reports.spread(results, "log_likelihood") == "1.414"
  assert reports.spread(results[:2], "log_likelihood") == ""


def points(*values):
  return [
    Point(100 * i, 0.0, {"log_likelihood": value})
    for i, value in enumerate(values, 1)
  ]


@pytest.mark.parametrize(
  ("values", "update"),
  [
    # Within 0.5 % of -2.000 is above -2.010.
    ((-4.0, -3.0, -2.011, -2.009, -2.005, -2.003, -2.001, -2.0), "400"),
    ((-4.0, -3.0, -2.5, -2.3, -2.2, -2.1, -2.05, -2.0), "-"),
    ((-4.0, -2.01, -2.0, -2.1, -2.2, -2.3, -2.4, -2.5), "200"),  # overfits
  ],
)
def test_flat_from(values, update):
  assert reports.flat_from(points(*values)) == update


def test_rejects_a_collected_result_of_another_config(driven, prepared):
  path = next(driven.glob("results/E0/pascal*.json"))
  result = run_result.read(path)
  result.config["data"]["directory"] = str(prepared)
  config = read_config(result.config)
  job = planned_jobs.TrainingJob(
    driven / "runs", planned_jobs.System("pascal", config), result.seed
  )
  assert runs._is_collected(job, driven / "results" / "E0")
  train = dataclasses.replace(config.train, steps=21)
  edited = dataclasses.replace(config, train=train)
  job = planned_jobs.TrainingJob(
    driven / "runs", planned_jobs.System("pascal", edited), result.seed
  )
  with pytest.raises(InputError, match=r"train\.steps was 20 and is now 21"):
    runs._is_collected(job, driven / "results" / "E0")


def test_report_tests_the_hypotheses_of_the_design(driven, tmp_path):
  """H1 to H3 for each system with trees of E1a; `rotary` is L."""
  template = run_result.read(next(driven.glob("results/E0/pascal*.json")))
  results = tmp_path / "results"
  rng = np.random.default_rng(0)
  for name in ("E0", "E1a", "E1b"):
    for text, seed in itertools.product(
      BLOCKS[name].systems, range(BLOCKS[name].seeds)
    ):
      system = text.partition("=")[0]
      score = -1.0 if system == "rotary" else -2.0
      facts = dataclasses.replace(template.facts, best_score=score)
      test = template.tests["test"]
      metrics = {}
      for metric, stored in test.metrics.items():
        rows = stored.sentences.unpacked()
        # Runs differ: each has sentences of its own of the template.
        rows = rows[rng.integers(len(rows), size=len(rows))]
        packed = run_result.PackedArray.of(rows)
        metrics[metric] = dataclasses.replace(stored, sentences=packed)
      (results / name).mkdir(parents=True, exist_ok=True)
      run_result.write(
        results / name / f"{system}.seed_{seed}.json",
        dataclasses.replace(
          template,
          system=system,
          seed=seed,
          facts=facts,
          tests={"test": dataclasses.replace(test, metrics=metrics)},
        ),
      )
  folder = reports.report("E1a", Experiment(tmp_path, results))
  loaded = from_json((folder / "report.json").read_text())
  family = {tuple(pair) for pair in loaded.family}
  expected = {
    (system, other)
    for system in ("pascal", "deps_san", "neighbour_heads")
    for other in ("transformer", f"{system}_random_tree", "rotary")
  }
  assert family == expected
  assert (folder / "report.html").is_file()
