"""The caller's weighting matrix."""

import numpy as np
from cases import FEATURES, SCORE, B, S, normal, rescore
from numpy.testing import assert_array_equal

from jaxsyn.syntax.given_weighting import GivenWeighting


def test_multiplies_selected_heads_by_the_matrix():
  matrix_BSS, matrix_BHSS = normal(B, S, S), normal(B, 3, S, S)
  features = FEATURES.replace(weighting_BSS=matrix_BSS)
  out = np.asarray(rescore(GivenWeighting(heads=(1,)), features=features))
  assert_array_equal(out[:, ::2], SCORE[:, ::2])
  assert_array_equal(out[:, 1], SCORE[:, 1] * matrix_BSS)
  features = FEATURES.replace(weighting_BHSS=matrix_BHSS)
  out = rescore(GivenWeighting(heads=None), features=features)
  assert_array_equal(out, SCORE * matrix_BHSS)
  assert_array_equal(rescore(GivenWeighting(heads=None)), SCORE)
