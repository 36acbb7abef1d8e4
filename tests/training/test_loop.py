"""The end of training and the best parameters, with given validation scores.

Model, data, steps, checkpoints and log are real.
"""

import dataclasses
import itertools
import json
import os
import shutil
import signal
import threading
import time

import jax
import numpy as np
import pytest

from jaxsyn.config import read_config, with_defaults
from jaxsyn.data.loader.loader import open_loader
from jaxsyn.data.store.dataset import Dataset
from jaxsyn.errors import InputError
from jaxsyn.plan import resolve
from jaxsyn.training import loop
from jaxsyn.training.checkpoint_writer import CheckpointWriter, Progress
from jaxsyn.training.mesh import Layout
from jaxsyn.training.profile import Profile
from jaxsyn.training.runtime import enough_memory
from jaxsyn.training.stopping import finish_reason


class GivenScores:
  """A validation that returns given scores: BLEU, or (BLEU, likelihood).

  Attributes:
    params: Parameters of each call.
  """

  def __init__(self, *scores, stop_at=None):
    """Stops the run with a signal in call number `stop_at`."""
    self._scores = [s if isinstance(s, tuple) else (s, -9.0) for s in scores]
    self._stop_at, self.params = stop_at, []

  def compile(self, params):
    """Compiles nothing."""

  def __call__(self, params):
    bleu, likelihood = self._scores[len(self.params)]
    self.params.append(jax.device_get(params))
    if len(self.params) == self._stop_at:
      os.kill(os.getpid(), signal.SIGTERM)
    values = {"bleu": bleu, "log_likelihood": likelihood}
    return loop.ValidationScores(values, (bleu, likelihood))


class Gated(Layout):
  """A layout that calls a function with the index of a shape before compiling it."""

  def __init__(self, config, gate):
    super().__init__("jit", config)
    self._gate, self._seen = gate, itertools.count()

  def compile_train(self, step, state, batch):
    self._gate(next(self._seen))
    return super().compile_train(step, state, batch)


@pytest.fixture
def train(tiny, prepared, tmp_path):
  """A function that trains in one folder with a given validation."""
  records = Dataset(prepared).split("train")

  def run(validation, *, shapes=1, gate=lambda index: None, **changes):
    config = tiny("transformer")
    config.model.update(width=16)
    config.model.transformer.update(encoder_layers=1, feed_forward=16)
    config.batch.update(shapes=shapes, tokens=600)
    config.train.update(steps=40, evaluate_every=1, save_every=100, keep=1)
    config.train.update(changes)
    config = with_defaults(read_config(config))
    plan = resolve(config, records.dataset.manifest)
    layout = Gated(config.train.mesh, gate)
    loader = open_loader(
      records,
      (),
      data=config.data,
      batch=config.batch,
      seed=0,
      shard=layout.host_shard,
    )
    checkpoints = CheckpointWriter(tmp_path, config.train.keep)
    try:
      return loop.train(
        loop.Training(
          config=config,
          recipe=plan.recipe,
          layout=layout,
          loader=loader,
          checkpoints=checkpoints,
          validate=validation,
          profile=Profile("", tmp_path, run_steps=0),
        )
      )
    finally:
      checkpoints.close()

  return run


def logged(folder) -> list[dict]:
  lines = (folder / "log.jsonl").read_text().splitlines()
  return [r for r in map(json.loads, lines) if r["kind"] == "validation"]


def test_patience_counts_validations_since_the_best(train, tmp_path):
  validation = GivenScores(5.0, 4.0, 6.0, 6.0, 3.0, 5.9)
  ended = train(validation, patience=3)
  assert (ended.reason, ended.step, len(validation.params)) == (
    "patience",
    6,
    6,
  )
  progress = ended.progress
  assert (progress.bad, progress.best_step, progress.best_score) == (3, 3, 6.0)
  records = logged(tmp_path)
  assert [r["best_bleu"] for r in records] == [5.0, 5.0, 6.0, 6.0, 6.0, 6.0]
  assert [r["best_step"] for r in records] == [1, 1, 3, 3, 3, 3]
  # The run is finished: nothing is evaluated again.
  again = train(GivenScores(), patience=3)
  assert (again.reason, again.step, again.compilations) == ("patience", 6, 0)


def test_without_patience_a_run_ends_at_its_last_step(train):
  ended = train(GivenScores(5.0, 4.0, 3.0, 2.0), steps=4)
  assert (ended.reason, ended.step, ended.progress.bad) == ("steps", 4, 3)


def test_patience_is_counted_over_resumed_parts(train):
  first = train(GivenScores(5.0, 4.0, 4.5, stop_at=3), patience=4)
  assert (first.reason, first.step, first.progress.bad) == ("SIGTERM", 3, 2)
  validation = GivenScores(5.0, 1.0)  # a tie is no improvement
  ended = train(validation, patience=4)
  assert (ended.reason, ended.step, ended.progress.bad) == ("patience", 5, 4)
  assert (ended.progress.best_step, len(validation.params)) == (1, 2)


def test_lost_evaluations_are_counted_once(train, tmp_path):
  validation = GivenScores(5.0, 4.0, 3.0, 2.0, stop_at=4)
  train(validation, save_every=2, keep=2)
  shutil.rmtree(tmp_path / "checkpoints" / "4")  # as if killed before it
  ended = train(GivenScores(3.0, 2.0), patience=3)
  assert (ended.reason, ended.step) == ("patience", 4)
  assert [r["step"] for r in logged(tmp_path)] == [1, 2, 3, 4]


def test_the_likelihood_breaks_ties(train, tmp_path):
  validation = GivenScores(
    *((0.0, -7.0), (0.0, -6.0), (0.0, -5.0), (0.0, -5.5), (0.1, -6.5)),
    *((0.1, -6.4), (0.0, -4.0), (0.1, -6.4)),
  )
  ended = train(validation, patience=2)
  # Neither a better likelihood at a lower score nor a perfect tie is better.
  assert [r["best_step"] for r in logged(tmp_path)] == [1, 2, 3, 3, 5] + [6] * 3
  assert (ended.reason, ended.step) == ("patience", 8)
  assert ended.progress.best_rank == [0.1, -6.4]


def test_saves_the_parameters_with_the_best_score(train, tmp_path):
  validation = GivenScores(1.0, 7.0, 3.0, 2.0)
  train(validation, steps=4)
  checkpoints = CheckpointWriter(tmp_path)
  abstract = jax.eval_shape(lambda: validation.params[0])
  best = checkpoints.restore_params("best", abstract, False)
  result = jax.device_get(best.params)
  assert best.steps == (2,)
  assert best.score == {
    "selection": "bleu",
    "tokenizer": "13a",
    "score": 7.0,
    "log_likelihood": -9.0,
  }
  checkpoints.close()
  jax.tree.map(np.testing.assert_array_equal, result, validation.params[1])
  for other in (0, 2, 3):
    assert not np.array_equal(
      result["target_table"]["embedding"],
      validation.params[other]["target_table"]["embedding"],
    )


def test_nan_is_never_the_best_score(train):
  message = "validation loss became NaN or infinite at step 2.*checkpoint: 1 in"
  with pytest.raises(InputError, match=message):
    train(GivenScores(5.0, (6.0, float("nan"))), save_every=1)


@pytest.fixture
def straight(train, tmp_path):
  """Losses of six steps with two shapes, and the final parameters."""
  validation = GivenScores(1.0)
  ended = train(validation, shapes=2, steps=6, evaluate_every=6, log_every=1)
  assert (ended.step, ended.compilations) == (6, 2)
  losses = steps_of(tmp_path)
  shutil.rmtree(tmp_path)
  tmp_path.mkdir()
  return losses, validation.params[0]


def steps_of(folder) -> list[tuple]:
  lines = map(json.loads, (folder / "log.jsonl").read_text().splitlines())
  return [(r["step"], r["loss"]) for r in lines if r["kind"] == "train"]


def test_the_order_of_batches_does_not_depend_on_compilation(
  train, straight, tmp_path, capsys
):
  def late(index):
    time.sleep(1.0 * index)

  validation = GivenScores(1.0)
  train(validation, shapes=2, gate=late, steps=6, evaluate_every=6, log_every=1)
  assert steps_of(tmp_path) == straight[0]
  jax.tree.map(np.testing.assert_array_equal, validation.params[0], straight[1])
  assert capsys.readouterr().out.count("waits until its shape") == 1


def test_a_signal_during_compilation_stops_at_once(train, straight, tmp_path):
  compilers = threading.Event()

  def stuck(at):
    def gate(index):
      if index == at:
        os.kill(os.getpid(), signal.SIGTERM)
        compilers.wait()

    return gate

  options = {"shapes": 2, "steps": 6, "evaluate_every": 6, "log_every": 1}
  first = train(GivenScores(), gate=stuck(0), **options)
  assert (first.reason, first.step, first.compilations) == ("SIGTERM", 0, 0)
  assert not list((tmp_path / "checkpoints").iterdir())
  second = train(GivenScores(), gate=stuck(1), **options)
  assert (second.reason, second.compilations) == ("SIGTERM", 1)
  assert 0 < second.step < 6
  compilers.set()
  validation = GivenScores(1.0)
  assert train(validation, **options).reason == "steps"
  assert steps_of(tmp_path) == straight[0]
  jax.tree.map(np.testing.assert_array_equal, validation.params[0], straight[1])


def test_an_error_of_a_compiler_thread_ends_the_run(train):
  def fail(index):
    if index:
      raise jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: 9 GiB")

  with (
    pytest.raises(
      InputError, match=r"memory \(RESOURCE_EXHAUSTED: 9 GiB\) a\."
    ),
    enough_memory("a", "b"),
  ):
    train(GivenScores(), shapes=2, gate=fail, evaluate_every=100)


def test_finish_reason(tiny):
  config = read_config(tiny("transformer"))
  edit = dataclasses.replace(config.train, steps=9, patience=2, minutes=1.0)
  config = dataclasses.replace(config, train=edit)

  def reason(step=0, **known):
    return finish_reason(config, step, Progress(**known))

  assert reason(8, bad=1, minutes=0.9) == ""
  assert reason(9) == "steps"
  assert reason(1, minutes=1.0) == "minutes"
  assert reason(1, bad=2) == "patience"
