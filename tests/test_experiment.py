"""Tests the driver of the experiment with runs on a small corpus."""

import dataclasses
import functools
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
from jaxsyn.comparison.run_result import PackedArray
from jaxsyn.config import read_config
from jaxsyn.errors import InputError
from jaxsyn.scoring.settings import Settings

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

# The results of the runs are collected, so the second call has no work to do.
DRIVER = """
import pathlib, shutil, sys
from benchmarks.experiment.blocks import BLOCKS, CORPORA, Block, Corpus
from benchmarks.experiment.runs import run
from benchmarks.experiment.systems import Experiment

work, config = map(pathlib.Path, sys.argv[1:])
CORPORA["tiny"] = Corpus(str(config), "raw")
BLOCKS["E0"] = Block("tiny", 20, 1, ("pascal",))
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


def test_collects_results_once(driven):
  results = Experiment(driven, driven / "results").read_results("E0")
  assert [result.name for result in results] == ["pascal seed 0"]
  assert results[0].facts.step == 20
  assert set(results[0].tests["test"].metrics) >= set(METRICS)
  assert results[0].config["data"]["directory"] == "tiny"
  (path,) = driven.glob("results/E0/*.json")
  assert str(driven) not in path.read_text()
  # The folder of the runs was removed after they were collected.
  assert not [*driven.glob("runs/*/*/seed_0")]


@pytest.fixture(scope="module")
def template():
  """A collected result, with 40 sentences of one test set."""
  path = ROOT / "results" / "E0" / "neighbour_heads_default.seed_0.json"
  result = run_result.read(path)
  return with_rows(result, lambda name, rows: rows[:40])


def with_rows(result, edit):
  """A result with edited statistics of its first test set."""
  name, test = next(iter(result.tests.items()))
  metrics = {
    metric: dataclasses.replace(
      stored,
      sentences=PackedArray.of(edit(metric, stored.sentences.unpacked())),
    )
    for metric, stored in test.metrics.items()
  }
  test = dataclasses.replace(test, sentences=40, metrics=metrics, facts={})
  return dataclasses.replace(result, tests={name: test})


@pytest.fixture(scope="module", params=["neighbour_heads"])
def complete(template, tmp_path_factory, request):
  """Result files of E0, E1a and E1b with known scores; the parameter is T."""
  folder = tmp_path_factory.mktemp("complete")
  scores = {"half_rate": -1.0, request.param: -1.2, "rotary": -1.1}
  rng = np.random.default_rng(0)
  for name in ("E0", "E1a", "E1b"):
    block = BLOCKS[name]
    (folder / "results" / name).mkdir(parents=True)
    for text, seed in itertools.product(block.systems, range(block.seeds)):
      system = text.partition("=")[0]
      matches = (s for end, s in scores.items() if system.endswith(end))
      facts = dataclasses.replace(
        template.facts, best_score=next(matches, -2.0)
      )
      chosen = rng.integers(40, size=40)  # runs differ
      result = with_rows(template, lambda _, rows, chosen=chosen: rows[chosen])
      result = dataclasses.replace(
        result, system=system, seed=seed, facts=facts
      )
      file = folder / "results" / name / f"{system}.seed_{seed}.json"
      run_result.write(file, result)
  return Experiment(folder, folder / "results")


def test_chooses_recipe_and_systems_by_validation(complete):
  assert best_trial(complete) == "half_rate"
  assert best_system(WITH_TREES, complete) == "neighbour_heads"
  assert best_system(WITHOUT_TREES, complete) == "rotary"


@pytest.mark.parametrize("complete", ["pascal"], indirect=True)
def test_all_systems_of_all_blocks_have_valid_configs(complete, monkeypatch):
  read_once = functools.cache(Experiment.read_results)
  monkeypatch.setattr(Experiment, "read_results", read_once)
  for name, block in BLOCKS.items():
    systems = systems_of(name, complete)
    names = [system.name for system in systems]
    assert len(set(names)) == len(names)  # also where T is pascal
    for system in systems:
      train = system.config.train
      assert train.steps == block.updates
      assert (train.patience, train.minutes) == (0, 0.0)
      if name != "E0" and block.corpus != "generated":
        assert system.config.optimiser.learning_rate == 0.005
      if "random_tree" in system.name:
        assert type(system.config.data.tree).__name__ == "Random"


def test_a_block_waits_for_the_blocks_that_it_depends_on(complete, tmp_path):
  shutil.copytree(complete.results, tmp_path / "results")
  complete = Experiment(tmp_path, tmp_path / "results")
  for file in (complete.results / "E1b").glob("*seed_7.json"):
    file.unlink()
  with pytest.raises(InputError, match="E1b is not complete: 28 of 32 results"):
    systems_of("E5_hau", complete)


def test_spread_is_pooled_over_systems(template):
  """Two systems of three runs: variances 1 and 3 give sqrt(2)."""

  def run(system, value):
    result = with_rows(template, lambda *_: np.tile([value, 1.0], (40, 1)))
    return dataclasses.replace(result, system=system)

  results = [run("a", v) for v in (-1.0, -2.0, -3.0)]
  results += [run("b", v) for v in (-2.0, -2.0, -5.0)]
  assert reports.spread(results, "log_likelihood") == "1.414"
  assert reports.spread(results[:2], "log_likelihood") == ""


@pytest.mark.parametrize(
  "values, update",
  [
    # Within 0.5 % of -2.000 is above -2.010.
    ((-4.0, -3.0, -2.011, -2.009, -2.005, -2.003, -2.001, -2.0), "400"),
    ((-4.0, -3.0, -2.5, -2.3, -2.2, -2.1, -2.05, -2.0), "-"),
    ((-4.0, -2.01, -2.0, -2.1, -2.2, -2.3, -2.4, -2.5), "200"),  # overfits
  ],
)
def test_flat_from(values, update):
  points = [
    Point(100 * i, 0.0, {"log_likelihood": value})
    for i, value in enumerate(values, 1)
  ]
  assert reports.flat_from(points) == update


def test_rejects_a_collected_result_of_another_config(driven, prepared):
  result = run_result.read(next(driven.glob("results/E0/pascal*.json")))
  result.config["data"]["directory"] = str(prepared)
  config = read_config(result.config)
  train = dataclasses.replace(config.train, steps=21)
  same, edited = (
    planned_jobs.TrainingJob(driven, planned_jobs.System("pascal", one), 0)
    for one in (config, dataclasses.replace(config, train=train))
  )
  assert runs._is_collected(same, driven / "results" / "E0")
  with pytest.raises(InputError, match=r"train\.steps was 20 and is now 21"):
    runs._is_collected(edited, driven / "results" / "E0")


def test_report_tests_the_hypotheses_of_the_design(complete, monkeypatch):
  """H1 to H3 for each system with trees of E1a; `rotary` is L."""
  settings = functools.partial(Settings, samples=20)
  monkeypatch.setattr(reports, "Settings", settings)
  folder = reports.report("E1a", complete)
  loaded = from_json((folder / "report.json").read_text())
  assert {tuple(pair) for pair in loaded.family} == {
    (system, other)
    for system in ("pascal", "deps_san", "neighbour_heads")
    for other in ("transformer", f"{system}_random_tree", "rotary")
  }
  assert (folder / "report.html").is_file()
