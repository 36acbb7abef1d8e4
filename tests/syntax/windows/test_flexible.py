"""Flexible attention: loops, and the vision span."""

import jax.numpy as jnp
import numpy as np
import paper_references as papers
import pytest
from cases import SENTENCES, Sentence, features_of
from numpy.testing import assert_array_equal
from window_cases import SITE, check_weights, weights_of

from jaxsyn.syntax.windows.flexible import Flexible


@pytest.mark.parametrize("span", [0.0, 0.4])
def test_weights_of_three_steps_equal_loops(span):
  reference = papers.Flexible(span=span)
  check_weights(Flexible(sigma=1.5, span=span), reference, SENTENCES, count=3)


PARAMS = {  # strength σ(1) for all queries
  "hidden": {
    "kernel": jnp.zeros((SITE.width, SITE.width)),
    "bias": jnp.full(SITE.width, 99.0),
  },
  "strength": {"kernel": jnp.full((SITE.width, 1), 1 / SITE.width)},
}
FEATURES = features_of([Sentence((*range(6), -1), (0,) * 6)])


def test_span_is_off_in_training():
  spec, score = Flexible(sigma=1.5, span=1.0), np.zeros((1, 1, 9))
  trained, evaluated = (
    weights_of(spec, score, params=PARAMS, features=one)[0, 0, 0, :7]
    for one in (FEATURES.replace(train=True), FEATURES)
  )
  # 0.731 · j² / 4.5 is at most 1 up to j = √(4.5 / 0.731) = 2.48.
  assert_array_equal(evaluated > 0, np.arange(7) <= 2)
  assert (trained > 0).all()


def test_the_nearest_subword_is_always_visible():
  window = Flexible(sigma=1.5, span=0.001).make(SITE)
  query, past = jnp.zeros((1, 1, SITE.width)), jnp.full((1, 1), 1.7)
  inputs = jnp.zeros((1, 1, 9)), query, (), past, FEATURES
  weight, attended = window.apply({"params": PARAMS}, *inputs)
  assert_array_equal(weight[0, 0], np.arange(9) == 2)
  assert attended.tolist() == [[2.0]]
