"""Properties of every window of the table."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from models_under_test import batch_of, plan_of, sentence, windows_of
from window_under_test import WHERE, drawn, steps

from jaxsyn.configs.systems import SYSTEMS
from jaxsyn.models.contract import sentence_features
from jaxsyn.syntax import WINDOWS, WindowSpec

PAIRS = [
  sentence(5, 6, 1),
  sentence(3, 4, 226, bare=17),  # more words than subwords
  sentence(60, 8, 3),
  sentence(1, 3, 4),
]
ROWS = len(PAIRS)
VIEW = sentence_features(batch_of(PAIRS, extra=2), "source")
SIZE = VIEW.real_BS.shape[1]
RNG = np.random.default_rng(0)
SCORE_BNS = RNG.normal(size=(ROWS, 2, SIZE)).astype(np.float32)
QUERY_BNG = RNG.normal(size=(ROWS, 2, WHERE.width)).astype(np.float32)

# Each with the options of its defaults, and others that change its course.
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
    self.window = self.spec.make(WHERE)
    self.params = drawn(self.window, SCORE_BNS, QUERY_BNG, VIEW)

  def __call__(self, score_BNS=SCORE_BNS, query_BNG=QUERY_BNG, view=VIEW):
    """weight_BNTS of two steps."""
    return self.window.apply(
      {"params": self.params},
      jnp.asarray(score_BNS),
      jnp.asarray(query_BNG),
      view,
      2,
      method=steps,
    )


@pytest.fixture(scope="module", params=VARIANTS)
def case(request):
  return Case(VARIANTS[request.param])


def test_every_window_is_in_a_system():
  used = {name for s in SYSTEMS for name in windows_of(plan_of(s))}
  assert used == set(WINDOWS)


def test_weights_sum_to_at_most_one_without_padding(case):
  weight_BNTS = np.asarray(case())
  assert weight_BNTS.shape == (ROWS, 2, 2, SIZE)
  assert (weight_BNTS >= 0).all()
  assert (weight_BNTS.sum(-1) <= 1 + 1e-5).all()
  assert (weight_BNTS.max(-1) > 0).all()
  pad_BS = ~np.asarray(VIEW.real_BS)
  assert not weight_BNTS.transpose(0, 3, 1, 2)[pad_BS].any()


def test_alone_or_in_a_batch_weights_are_the_same(case):
  combined = case()
  for row in (1, 3):
    expected = slice(row, row + 1)
    single = sentence_features(batch_of(PAIRS[expected]), "source")
    size = single.real_BS.shape[1]
    result = case(SCORE_BNS[expected, :, :size], QUERY_BNG[expected], single)
    np.testing.assert_allclose(result[0], combined[row, ..., :size], atol=1e-6)


def test_hypotheses_are_independent(case):
  score_BNS, query_BNG = np.array(SCORE_BNS), np.array(QUERY_BNG)
  score_BNS[:, 0] = score_BNS[:, 0, ::-1]
  query_BNG[:, 0] += 1
  # Of the same shapes, so that they are rounded alike: a window is steep, and
  # the last bit of its middle, near 40, is the fifth digit of a weight.
  other, expected = case(score_BNS, query_BNG), case()
  np.testing.assert_array_equal(other[:, 1:], expected[:, 1:])
  assert (other[:, 0] != expected[:, 0]).any()


def test_scores_of_pads_make_no_difference(case):
  pad_BNS = np.broadcast_to(~np.asarray(VIEW.real_BS)[:, None], SCORE_BNS.shape)
  other = np.where(pad_BNS, 50.0, SCORE_BNS).astype(np.float32)
  np.testing.assert_array_equal(case(other), case())


def test_gradients_are_finite_in_rows_of_padding_too(case):
  nothing = VIEW.replace(real_BS=VIEW.real_BS.at[1].set(False))

  def value(score_BNS):
    weight_BNTS = case(score_BNS, view=nothing)
    return jnp.sum(weight_BNTS * jnp.arange(SIZE))

  assert np.isfinite(np.asarray(jax.grad(value)(jnp.asarray(SCORE_BNS)))).all()
