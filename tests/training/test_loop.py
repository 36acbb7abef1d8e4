"""The end of training and the best parameters, with given validation scores.

Model, data, steps, checkpoints and log are real.
"""

import contextlib
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
from jaxsyn.training.checkpoint_writer import CheckpointWriter
from jaxsyn.training.mesh import Layout
from jaxsyn.training.profile import Profile
from jaxsyn.training.runtime import enough_memory
from jaxsyn.utils import progress


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
    """Does not compile."""

  def __call__(self, params):
    bleu, likelihood = self._scores[len(self.params)]
    self.params.append(jax.device_get(params))
    if len(self.params) == self._stop_at:
      os.kill(os.getpid(), signal.SIGTERM)
    values = {"bleu": bleu, "log_likelihood": likelihood}
    return loop.ValidationScores(values, (bleu, likelihood))


class Gated(Layout):
  """A layout that calls a function before it compiles the step for a shape.

  The arguments are the index of the shape, and `compilations`.

  Attributes:
    pairs: (Source, target) subwords of the sentences in each placed batch.
  """

  def __init__(self, config, gate, devices):
    super().__init__("jit", config, jax.devices()[:devices])
    self._gate, self._seen, self.pairs = gate, itertools.count(), []

  def compile_train(self, step, state, batch):
    self._gate(next(self._seen), self.compilations)
    return super().compile_train(step, state, batch)

  def place_batch(self, batch):
    real_B = batch["weight_B"] > 0
    if real_B.any():  # not a batch of padding, to compile with
      sides = (batch[name][real_B] for name in ("source_id_BS", "target_id_BT"))
      pairs = zip(*sides, strict=True)
      self.pairs.append(
        [[ids[ids > 0].tolist() for ids in pair] for pair in pairs]
      )
    return super().place_batch(batch)


def open_gate(index, compilations):
  """Compiles at once."""


@pytest.fixture
def train(tiny, prepared, tmp_path):
  """A function that trains in a folder with a given validation."""
  records = Dataset(prepared).split("train")

  def run(
    validation,
    *,
    gate=open_gate,
    folder=tmp_path,
    devices=1,
    batch=(),
    **changes,
  ):
    config = tiny("transformer")
    config.model.update(width=16)
    config.model.transformer.update(encoder_layers=1, feed_forward=16)
    config.batch.update({"shapes": 1, "tokens": 600, **dict(batch)})
    config.train.update(steps=40, evaluate_every=1, save_every=100, keep=1)
    config.train.update(changes)
    config = with_defaults(read_config(config))
    plan = resolve(config, records.dataset.manifest)
    layout = Gated(config.train.mesh, gate, devices)
    loader = open_loader(
      records,
      (),
      data=config.data,
      batch=config.batch,
      seed=0,
      shard=layout.host_shard,
    )
    checkpoints = CheckpointWriter(folder, config.train.keep)
    training = loop.Training(
      config=config,
      recipe=plan.recipe,
      layout=layout,
      loader=loader,
      checkpoints=checkpoints,
      validate=validation,
      profile=Profile("", folder, run_steps=0),
    )
    with contextlib.closing(checkpoints):
      end = loop.train(training)
    run.layout, run.loader = layout, loader
    return end

  return run


def logged(folder, kind="validation") -> list[dict]:
  lines = (folder / "log.jsonl").read_text().splitlines()
  return [r for r in map(json.loads, lines) if r["kind"] == kind]


def test_patience_counts_validations_since_the_best(train, tmp_path):
  """The likelihood breaks ties; a perfect tie is no improvement."""
  validation = GivenScores(
    (0.0, -7.0),
    (0.0, -6.0),
    (0.0, -5.0),
    (0.0, -5.5),
    (0.1, -6.5),
    (0.1, -6.4),
    (0.0, -4.0),
    (0.1, -6.4),
  )
  ended = train(validation, patience=2)
  assert (ended.reason, ended.step) == ("patience", 8)
  assert len(validation.params) == 8
  records = logged(tmp_path)
  assert [r["best_step"] for r in records] == [1, 2, 3, 3, 5] + [6] * 3
  assert [r["best_bleu"] for r in records] == [0.0] * 4 + [0.1] * 4
  assert (ended.progress.bad, ended.progress.best_rank) == (2, [0.1, -6.4])
  # The run is finished: no step is evaluated again.
  again = train(GivenScores(), patience=2)
  assert (again.reason, again.step, again.compilations) == ("patience", 8, 0)


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


def test_saves_the_parameters_with_the_best_score(train, tmp_path):
  validation = GivenScores(1.0, 7.0, 3.0, 2.0)
  ended = train(validation, steps=4)
  assert (ended.reason, ended.step, ended.progress.bad) == ("steps", 4, 2)
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


def steps_of(folder) -> list[tuple]:
  return [(r["step"], r["loss"]) for r in logged(folder, "train")]


def test_compilation_and_signals_during_it_do_not_change_training(
  train, tmp_path, capsys, monkeypatch, request
):
  monkeypatch.setattr(progress, "REDRAW_SECONDS", 0.02)
  options = {"steps": 6, "evaluate_every": 6, "log_every": 1}
  options["batch"] = {"shapes": 2}
  validation = GivenScores(1.0)
  ended = train(validation, gate=lambda index, _: time.sleep(index), **options)
  assert (ended.step, ended.compilations) == (6, 2)
  error = capsys.readouterr().err
  # The first state, two shapes, and the validation.
  assert "compiling programs: 3 of 4" in error
  # The remaining time is in all records from the end of the compilation.
  with_time = ["eta_minutes" in record for record in logged(tmp_path, "train")]
  assert with_time == sorted(with_time) and with_time[-1] > with_time[0]
  losses, params = steps_of(tmp_path), validation.params[0]
  shutil.rmtree(tmp_path)
  tmp_path.mkdir()
  compilers = threading.Event()
  request.addfinalizer(compilers.set)  # or Python would wait at its exit

  def stuck(at):
    def gate(index, compilations):
      if index != at:
        return
      while not at and not compilations["first state"]:
        time.sleep(0.1)
      time.sleep(0.5)  # then the loop waits for this program
      os.kill(os.getpid(), signal.SIGTERM)
      compilers.wait()

    return gate

  first = train(GivenScores(), gate=stuck(0), **options)
  assert (first.reason, first.step, first.compilations) == ("SIGTERM", 0, 0)
  assert not list((tmp_path / "checkpoints").iterdir())
  second = train(GivenScores(), gate=stuck(1), **options)
  assert (second.reason, second.compilations) == ("SIGTERM", 1)
  assert 0 < second.step < 6
  compilers.set()
  validation = GivenScores(1.0)
  assert train(validation, **options).reason == "steps"
  assert steps_of(tmp_path) == losses
  jax.tree.map(np.testing.assert_array_equal, validation.params[0], params)


def test_an_error_of_a_compiler_thread_ends_the_run(train):
  def fail(index, compilations):
    if index:
      raise jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: 9 GiB")

  with (
    pytest.raises(
      InputError, match=r"memory \(RESOURCE_EXHAUSTED: 9 GiB\) a\."
    ),
    enough_memory("a", "b"),
  ):
    train(GivenScores(), batch={"shapes": 2}, gate=fail, evaluate_every=100)


@pytest.mark.usefixtures("eight_devices")
def test_resumes_an_epoch_on_twice_as_many_devices(train, prepared, tmp_path):
  batch = {"row_multiple": 8, "tokens": 2400}
  options = {"batch": batch, "evaluate_every": 100, "log_every": 1}

  def pairs_of(name, devices, steps):
    paths = {"folder": tmp_path / name, "devices": devices}
    train(GivenScores(1.0), steps=steps, **paths, **options)
    return train.layout.pairs

  first, rest = pairs_of("moved", 4, 8), pairs_of("moved", 8, 28)
  assert first + rest == pairs_of("straight", 1, 28)
  epoch = len(train.loader.batch_sampler.epoch(0))
  assert 8 < epoch < 28
  trained = itertools.chain.from_iterable((first + rest)[:epoch])
  corpus = [
    [example[f"{side}_id"].tolist() for side in ("source", "target")]
    for example in Dataset(prepared).split("train")
  ]
  assert sorted(trained) == sorted(corpus)
  moved, straight = (steps_of(tmp_path / n) for n in ("moved", "straight"))
  assert len(moved) == 28
  np.testing.assert_allclose(moved, straight, rtol=1e-6)
