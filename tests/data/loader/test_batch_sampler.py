"""Tests that batches are complete, bounded in shapes and reproducible."""

import itertools

import numpy as np
import pytest

from jaxsyn.data.loader import batch_shapes
from jaxsyn.data.loader.batch_sampler import BatchSampler, Position
from jaxsyn.data.loader.batch_shapes import LengthCounts, choose_shapes
from jaxsyn.data.store.rows import Lengths
from jaxsyn.errors import InputError


def sampler_of(source, target, *words, **options):
  none = np.zeros(len(source), int)
  lengths = Lengths(source, target, *(words or (none, none)))
  options = {
    **{"tokens": 512, "shapes": 5, "seed": 0},
    **{"row_multiple": 8, "length_multiple": 1},
    **options,
  }
  return BatchSampler(lengths, **options)


@pytest.fixture(scope="module")
def lengths():
  """Lengths of 2,997 pairs whose sides are about equally long.

  The number is not a multiple of the rows of a batch.
  """
  rng = np.random.default_rng(1)
  source = rng.integers(3, 40, 2997)
  return source, np.maximum(source + rng.integers(-3, 6, 2997), 2)


def test_plans_four_pairs_of_two_lengths():
  # Pairs (2,2) x3 and (4,4) x1. One shape (4,4): 4 pairs · 8 = 32 positions.
  # Adding (2,2) saves 3 · 4 = 12; no other shape is on the grid.
  source, none = np.array([2, 2, 2, 4]), np.zeros(4, int)
  active = LengthCounts.of(Lengths(source, source, none, none)).rounded(1)
  for limit, lengths in ((1, [(4, 4)]), (5, [(2, 2), (4, 4)])):
    assert choose_shapes(active, limit, lambda s, t: 8) == lengths


@pytest.mark.parametrize(("copies", "expected"), [(1, 4), (12, 12)])
def test_chooses_the_number_of_shapes_with_the_lowest_cost(
  lengths, copies, expected
):
  """The cost is that of positions and of compiled programs."""
  pairs = [np.tile(side, copies) for side in lengths]
  samplers = [
    sampler_of(*pairs, tokens=2048, shapes=count, seed=1)
    for count in range(1, batch_shapes.MAX_SHAPES + 1)
  ]
  costs = [
    sum(planned.shape.positions for planned in sampler.epoch(0))
    + batch_shapes.MIN_GAIN * len(sampler.shapes)
    for sampler in samplers
  ]
  chosen = sampler_of(*pairs, tokens=2048, shapes=0, seed=5)
  assert len(chosen.shapes) == expected
  assert costs[expected - 1] <= min(costs) * 1.001
  assert chosen.shapes == samplers[expected - 1].shapes  # for any seed


def test_long_sentences_have_at_most_64_distinct_lengths():
  source, none = np.arange(1, 601), np.zeros(600, int)
  counts = LengthCounts.of(Lengths(source, source, none, none))
  # 600 / 64 is 9.4, so lengths are rounded to 10, or to 16 as a multiple of 8.
  for multiple, step in ((1, 10), (8, 16)):
    sides = np.unique(counts.rounded(multiple).length_C2[:, 0])
    assert sides.tolist() == [*range(step, 601, step), *([608] * (step == 16))]


@pytest.mark.parametrize("start", [Position(), Position(3, 2)])
def test_returns_shapes_in_the_order_of_their_first_use(lengths, start):
  sampler = sampler_of(*lengths, shapes=8)
  coming = [p.shape for p in itertools.islice(sampler.walk(start), 900)]
  used = sampler.first_used(start, 900)
  assert used == {shape: coming.index(shape) for shape in sampler.shapes}
  assert list(used.values()) == sorted(used.values())
  assert list(sampler.first_used(start, 3)) == list(dict.fromkeys(coming[:3]))


def test_looks_for_the_first_use_of_shapes_in_two_epochs():
  """The nine short examples, which fill no batch of 16, move on."""
  source = np.array([2] * 9 + [4])
  sampler = sampler_of(source, source, tokens=32, row_multiple=1)
  unused, used = sampler.shapes
  assert (unused.rows, used.rows) == (16, 8)
  assert len(sampler.epoch(0)) == len(sampler.epoch(1)) == 2
  assert sampler.first_used(Position(), 4) == {used: 0}
  assert sampler.first_used(Position(), 9) == {used: 0, unused: 9}


@pytest.mark.parametrize("multiple", [1, 8])
def test_batches_hold_each_example_once_within_the_token_budget(
  lengths, multiple
):
  rng = np.random.default_rng(2)
  words = [rng.integers(0, 60, 2997), rng.integers(0, 9, 2997)]
  if multiple > 1:  # pairs of a long and a short side fit in few shapes
    lengths = [rng.permutation(side) for side in lengths]
  sampler = sampler_of(*lengths, *words, length_multiple=multiple)
  assert len(sampler.shapes) == 5
  for shape in sampler.shapes:
    assert shape.rows % 8 == 0
    assert shape.rows * max(shape.source, shape.target) <= 512
    fits = (lengths[0] <= shape.source) & (lengths[1] <= shape.target)
    for of, size in zip(words, (shape.source_words, shape.target_words)):
      assert size % multiple == 0
      assert size - multiple < of[fits].max() <= size
  for epoch in (0, 1):
    batches = sampler.epoch(epoch)
    ids = np.concatenate([planned.ids for planned in batches])
    assert sorted(ids) == list(range(2997))
    for planned in batches:
      shape, some = planned.shape, planned.ids
      assert 0 < len(some) <= shape.rows
      assert lengths[0][some].max() <= shape.source
      assert lengths[1][some].max() <= shape.target
      assert words[0][some].max() <= shape.source_words
      assert words[1][some].max() <= shape.target_words
    assert sum(len(p.ids) < p.shape.rows for p in batches) <= 1


def test_order_depends_on_seed_and_epoch_alone(lengths):
  def ids(seed, epoch):
    batches = sampler_of(*lengths, seed=seed).epoch(epoch)
    return np.concatenate([planned.ids for planned in batches]).tolist()

  assert ids(0, 3) == ids(0, 3)
  assert ids(0, 3) != ids(1, 3)
  assert ids(0, 3) != ids(0, 4)


def test_positions_continue_into_the_next_epoch(lengths):
  sampler = sampler_of(*lengths)
  batches = [*sampler.epoch(0), *sampler.epoch(1)]
  last = len(sampler.epoch(0)) - 1
  walked = [*itertools.islice(sampler.walk(Position()), len(batches))]
  after = [planned.after for planned in walked]
  assert after[0] == Position(0, 1) and after[last] == Position(1, 0)
  for one, other in zip(batches, walked, strict=True):
    assert one.shape == other.shape and (one.ids == other.ids).all()
  for start in (after[3], after[last]):
    resumed = itertools.islice(sampler.walk(start), last + 2)
    expected = walked[after.index(start) + 1 :]
    for one, other in zip(resumed, expected):
      assert (one.ids == other.ids).all()


def test_more_shapes_reduce_padding(lengths):
  single, *others = (sampler_of(*lengths, shapes=k) for k in (1, 4, 12))
  # By hand for one shape: every position of every batch.
  (shape,) = single.shapes
  positions = -(-2997 // shape.rows) * shape.positions
  real = lengths[0].sum() + lengths[1].sum()
  assert single.padding() == pytest.approx(1 - real / positions)
  assert single.padding() > others[0].padding() > others[1].padding()
  for shape in others[1].shapes:  # the data has no trees
    assert (shape.source_words, shape.target_words) == (1, 1)


def test_evaluation_reads_every_pair_once_longest_first(lengths):
  batches = sampler_of(*lengths).in_order()
  ids = np.concatenate([planned.ids for planned in batches])
  assert sorted(ids) == list(range(2997))
  areas = [p.shape.source + p.shape.target for p in batches]
  assert areas == sorted(areas, reverse=True)


def test_rejects_long_examples_and_empty_splits():
  none = np.zeros(0, int)
  with pytest.raises(InputError, match=r"config.batch.tokens=64 cannot hold"):
    sampler_of(np.array([5, 9]), np.array([5, 5]), tokens=64)
  with pytest.raises(InputError, match="no examples"):
    sampler_of(none, none)
