"""A real run: moving average, exact resume, profile, average of checkpoints.

The test reads the checkpoints with Orbax only.
"""

import itertools
import shutil

import jax
import numpy as np
import orbax.checkpoint as ocp
import pytest
from jax.profiler import ProfileData

from jaxsyn import train
from jaxsyn.configs import quickstart as config_file
from jaxsyn.errors import InputError
from jaxsyn.session import Session
from jaxsyn.training.profile import Profile
from jaxsyn.training.step import moving_average

DECAY, STEPS, KEPT, EVERY = 0.9, 7, 4, 2  # batches an update


def read(workdir, step):
  """The state of a checkpoint, as NumPy arrays."""
  with ocp.StandardCheckpointer() as reader:
    path = workdir / "checkpoints" / str(step) / "state"
    return jax.tree.map(np.asarray, reader.restore(path))


@pytest.mark.parametrize("steps", ["0-3", "5-4", "100-101"])
def test_rejects_invalid_profile_steps(steps, tmp_path):
  with pytest.raises(InputError, match=f"profile='{steps}'"):
    Profile(steps, tmp_path, run_steps=100)


@pytest.fixture(scope="module")
def make(prepared):
  """A function that trains with two batches per update."""

  def run(workdir, **options):
    config = config_file.get_config("sisa")
    config.data.directory = str(prepared)
    config.batch.shapes = 1
    config.model.update(width=16)
    config.model.transformer.update(
      encoder_layers=1, decoder_layers=1, feed_forward=16, heads=2
    )
    config.optimiser.update(
      name="adam", accumulate=EVERY, learning_rate=0.05, schedule="constant"
    )
    config.train.update(
      ema=DECAY,
      evaluate_every=4,
      save_every=1,
      log_every=1,
      selection="log_likelihood",  # which translates nothing
      **options,
    )
    assert train.run(config, workdir).step == options["steps"]
    return workdir

  return run


@pytest.fixture(scope="module")
def straight(make, tmp_path_factory):
  """An uninterrupted run, and its states by step."""
  workdir = tmp_path_factory.mktemp("runs") / "straight"
  make(workdir, steps=STEPS, keep=STEPS)
  return workdir, {step: read(workdir, step) for step in range(1, STEPS + 1)}


@pytest.fixture(scope="module")
def resumed(straight, make, tmp_path_factory):
  """The same run, resumed after three steps, between two updates."""
  workdir = tmp_path_factory.mktemp("runs") / "resumed"
  shutil.copytree(straight[0], workdir, ignore=shutil.ignore_patterns("best"))
  for step in range(4, STEPS + 1):
    shutil.rmtree(workdir / "checkpoints" / str(step))
  return make(workdir, steps=STEPS, keep=KEPT, average=2, profile="5-6")


def test_the_moving_average_against_its_definition(straight):
  _, states = straight
  for n in (1, 2, 3):
    after = [states[EVERY * i]["params"] for i in range(1, n + 1)]
    total = sum(DECAY ** (n - i) for i in range(1, n + 1))

    def mean(*params, total=total):
      weighted = 0.0
      for p in params:
        weighted = DECAY * weighted + np.float64(p)
      return weighted / total

    expected = jax.tree.map(mean, *after)
    moved = 0.0
    for step in (EVERY * n, EVERY * n + 1):  # and until the next update
      for result, wanted, newest in zip(
        *map(jax.tree.leaves, (states[step]["ema"], expected, after[-1]))
      ):
        np.testing.assert_allclose(result, wanted, atol=1e-6)
        moved = max(moved, np.abs(wanted - newest).max())
    assert (moved > 0.01) == (n > 1)


def test_a_moving_average_with_a_decay_near_1_is_the_mean():
  average = np.float32(100)  # the initial value has no weight
  for n, p in enumerate([1, 4, 10]):
    average = moving_average(
      average, np.float32(p), decay=0.99999, updates=np.int32(n + 1)
    )
  assert float(average) == pytest.approx(5.0, rel=1e-4)


def test_evaluation_and_translation_use_the_average(straight):
  workdir, states = straight
  (best,) = Session(workdir, checkpoint="best", beam=1).params
  (last,) = Session(workdir, checkpoint="last", beam=1).params
  (step,) = (int(p.name) for p in (workdir / "best").glob("[0-9]*"))
  for result, state in ((best, states[step]), (last, states[STEPS])):
    jax.tree.map(np.testing.assert_array_equal, result, state["ema"])


def test_resumes_exactly_between_two_updates(straight, resumed):
  _, states = straight
  for of_term in states[3]["pending"].values():
    assert any(np.any(x) for x in jax.tree.leaves(of_term))
  jax.tree.map(
    np.testing.assert_array_equal, read(resumed, STEPS), states[STEPS]
  )


def test_profiles_the_requested_steps(resumed):
  (path,) = (resumed / "plugins" / "profile").glob("*/*.xplane.pb")
  data = ProfileData.from_file(str(path))
  lines = itertools.chain.from_iterable(plane.lines for plane in data.planes)
  names = [event.name for line in lines for event in line.events]
  assert sum("PjitFunction" in name or "Execute" in name for name in names) >= 2


def test_translation_uses_the_mean_of_the_newest_two_checkpoints(resumed):
  steps = sorted(int(p.name) for p in (resumed / "checkpoints").glob("[0-9]*"))
  assert steps == [4, 5, 6, 7]
  *oldest, before, last = (read(resumed, step)["ema"] for step in steps)
  result = Session(resumed, beam=1).params
  mean = jax.tree.map(lambda a, b: (np.float64(a) + b) / 2, before, last)
  for x, wanted, *old in zip(*map(jax.tree.leaves, (result, mean, *oldest))):
    np.testing.assert_allclose(x, wanted, atol=1e-7)
    if wanted.any():
      assert np.abs(wanted - np.mean(old, axis=0)).max() > 1e-3
