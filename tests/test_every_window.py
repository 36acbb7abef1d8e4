"""Properties of all windows of the table."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from models_under_test import PAIRS, batch_of, plan_of, windows_of
from numpy.testing import assert_allclose, assert_array_equal
from window_cases import SITE, random_params, steps

from jaxsyn.configs.systems import SYSTEMS
from jaxsyn.models.contract import sentence_features
from jaxsyn.syntax import WINDOWS, WindowSpec

SENTENCES = [PAIRS[i] for i in (0, 1, 3, 5)]  # see `PAIRS`
ROWS = len(SENTENCES)
FEATURES = sentence_features(batch_of(SENTENCES, extra=2), "source")
SIZE = FEATURES.real_BS.shape[1]
RNG = np.random.default_rng(0)
SCORE_BNS = RNG.normal(size=(ROWS, 2, SIZE)).astype(np.float32)
QUERY_BNG = RNG.normal(size=(ROWS, 2, SITE.width)).astype(np.float32)

# Default options, and others that change the behavior.
VARIANTS = {
  **{name: kind() for name, kind in WINDOWS.items()},
  "flexible, span": WINDOWS["flexible"](span=0.5),
  "syntax, hard": WINDOWS["syntax"](position="hard", apply="add_log"),
  "syntax, expected": WINDOWS["syntax"](position="expected"),
}


@dataclasses.dataclass
class Case:
  """A window with random parameters."""

  spec: WindowSpec

  def __post_init__(self):
    self.window = self.spec.make(SITE)
    inputs = SCORE_BNS, QUERY_BNG, FEATURES
    self.params = random_params(self.window, *inputs)
    self.apply = jax.jit(self.window.apply, static_argnames=("method", "count"))

  def __call__(
    self, score_BNS=SCORE_BNS, query_BNG=QUERY_BNG, features=FEATURES
  ):
    """weight_BNTS of two steps."""
    inputs = jnp.asarray(score_BNS), jnp.asarray(query_BNG), features
    return self.apply({"params": self.params}, *inputs, count=2, method=steps)


@pytest.fixture(scope="module", params=VARIANTS)
def case(request):
  return Case(VARIANTS[request.param])


def test_each_window_is_in_a_system():
  used = {name for s in SYSTEMS for name in windows_of(plan_of(s))}
  assert used == set(WINDOWS)


def test_weights_sum_to_at_most_one_without_padding(case):
  weight_BNTS = np.asarray(case())
  assert weight_BNTS.shape == (ROWS, 2, 2, SIZE)
  assert (weight_BNTS >= 0).all()
  assert (weight_BNTS.sum(-1) <= 1 + 1e-5).all()
  assert (weight_BNTS.max(-1) > 0).all()
  padding_BS = ~np.asarray(FEATURES.real_BS)
  assert not weight_BNTS.transpose(0, 3, 1, 2)[padding_BS].any()
  # Scores of padding have no effect.
  other_BNS = np.where(padding_BS[:, None], np.float32(50), SCORE_BNS)
  assert_array_equal(case(other_BNS), weight_BNTS)


def test_weights_do_not_depend_on_the_batch(case):
  together, rows = case(), slice(1, 3)
  features = sentence_features(batch_of(SENTENCES[rows]), "source")
  size = features.real_BS.shape[1]
  apart = case(SCORE_BNS[rows, :, :size], QUERY_BNG[rows], features)
  assert_allclose(apart, together[rows, ..., :size], atol=1e-6)


def test_hypotheses_are_independent(case):
  score_BNS, query_BNG = np.array(SCORE_BNS), np.array(QUERY_BNG)
  score_BNS[:, 0] = score_BNS[:, 0, ::-1]
  query_BNG[:, 0] += 1
  other, expected = case(score_BNS, query_BNG), case()
  assert_array_equal(other[:, 1:], expected[:, 1:])
  assert (other[:, 0] != expected[:, 0]).any()


def test_rows_of_padding_are_finite(case):
  """Both weights and gradients."""
  empty = FEATURES.replace(real_BS=FEATURES.real_BS.at[1].set(False))

  @jax.jit
  def slopes(score_BNS):
    def value(score_BNS):
      return jnp.sum(case(score_BNS, features=empty) * jnp.arange(SIZE))

    return jax.grad(value)(score_BNS)

  assert np.isfinite(case(features=empty)).all()
  assert np.isfinite(slopes(jnp.asarray(SCORE_BNS))).all()
