"""Pooling by numbers that can be checked by hand."""

import numpy as np
import pytest

from jaxsyn.inspection.pooling import Units, pool, source_units, target_units


def test_a_row_is_a_mean_and_a_column_a_sum():
  # Word a has subwords 0 and 1, word b has subword 2; 3 is EOS.
  units = source_units(("a", "b"), [0, 0, 1, -1])
  assert units.labels == ("a", "b", "</s>")
  assert units.unit_S == (0, 0, 1, 2)
  weight_QM = [
    [0.1, 0.2, 0.3, 0.4],
    [0.5, 0.1, 0.2, 0.2],
    [0.0, 0.0, 1.0, 0.0],
    [0.25, 0.25, 0.25, 0.25],
  ]
  # a: mean of (0.1 + 0.2, 0.3, 0.4) and (0.5 + 0.1, 0.2, 0.2).
  expected = [[0.45, 0.25, 0.3], [0.0, 1.0, 0.0], [0.5, 0.25, 0.25]]
  pooled_HQM = pool(np.array([weight_QM]), units, units)
  np.testing.assert_allclose(pooled_HQM[0], expected)
  # Rows of any shape still sum to 1.
  rng = np.random.default_rng(0)
  weight_HQM = rng.dirichlet(np.ones(7), (4, 5))
  rows = Units(("x", "y", "z"), (0, 1, 1, 1, 2))
  columns = Units(("p", "q"), (1, 0, 0, 1, 1, 1, 0))
  pooled = pool(weight_HQM.astype(np.float32), rows, columns)
  assert pooled.shape == (4, 3, 2)
  np.testing.assert_allclose(pooled.sum(2), 1.0, atol=1e-5)
  # One subword covers the words 0 and 1, so no subword begins in 1.
  units = source_units(("New", "York", "."), [0, 2, -1])
  assert units.labels == ("New", ".", "</s>")
  assert units.unit_S == (0, 1, 2)
  assert units.words == (0, 2, -1)


def decoder(pieces):
  """Returns a function that decodes like SentencePiece, without the first space."""

  def decode(ids):
    return "".join(pieces[i] for i in ids).replace("▁", " ").removeprefix(" ")

  return decode


def test_words_of_a_translation_begin_at_blanks():
  pieces = ["▁the", "▁d", "og", "."]
  rows, columns, subwords = target_units([0, 1, 2, 3], decoder(pieces))
  assert rows.labels == ("the", "dog.", "</s>")
  assert rows.unit_S == (0, 1, 1, 1, 2)
  # The decoder reads BOS and all but EOS.
  assert columns.labels == ("<s>", "the", "dog.")
  assert columns.unit_S == (0, 1, 2, 2, 2)
  assert subwords == ("the", " d", "og", ".", "</s>")


@pytest.mark.parametrize(
  ("pieces", "labels", "row_S", "column_S"),
  [
    # A blank that is a subword of its own.
    (["▁the", "▁", "dog"], ("the", "dog"), (0, 1, 1, 2), (0, 1, 2, 2)),
    # Without blanks every subword is a word.
    (["犬", "が", "いる"], ("犬", "が", "いる"), (0, 1, 2, 3), (0, 1, 2, 3)),
    ([], (), (0,), (0,)),
  ],
)
def test_words_without_blanks_before_them(pieces, labels, row_S, column_S):
  rows, columns, _ = target_units(range(len(pieces)), decoder(pieces))
  assert rows.labels == (*labels, "</s>") and rows.unit_S == row_S
  assert columns.labels == ("<s>", *labels) and columns.unit_S == column_S
