"""Tests that batches are complete, bounded in shapes and reproducible."""

import itertools

import numpy as np
import pytest

from jaxsyn.data.loader import batch_sampler, batch_shapes
from jaxsyn.data.loader.batch_sampler import Position
from jaxsyn.data.loader.batch_shapes import LengthCounts, by_area
from jaxsyn.data.store.rows import Lengths
from jaxsyn.errors import InputError


def BatchSampler(source, target, *words, **sizes):
  none = np.zeros(len(source), int)
  lengths = Lengths(source, target, *(words or (none, none)))
  sizes = {"row_multiple": 8, "length_multiple": 1, **sizes}
  return batch_sampler.BatchSampler(lengths, **sizes)


@pytest.fixture
def lengths():
  """Lengths of 3,000 pairs whose sides are about equally long."""
  rng = np.random.default_rng(1)
  source = rng.integers(3, 40, 3000)
  return source, np.maximum(source + rng.integers(-3, 6, 3000), 2)


def test_plans_four_pairs_of_two_lengths():
  # Pairs (2,2) x3 and (4,4) x1. One shape (4,4): 4 pairs · 8 = 32 positions.
  # Adding (2,2) saves 3 · 4 = 12; nothing else is on the grid.
  source, none = np.array([2, 2, 2, 4]), np.zeros(4, int)
  active = LengthCounts.of(Lengths(source, source, none, none)).rounded(1)
  assert by_area(active.greedy(1)) == [(4, 4)]
  assert by_area(active.greedy(5)) == [(2, 2), (4, 4)]


def test_chooses_more_shapes_for_more_pairs(lengths):
  """The chosen number minimizes the cost of positions and programs."""
  for copies, wanted in ((1, 4), (4, 8), (12, 12)):
    pairs = [np.tile(side, copies) for side in lengths]
    cost = {
      k: sum(p.shape.positions for p in plan.epoch(0))
      + batch_shapes.MIN_GAIN * len(plan.shapes)
      for k in range(1, batch_shapes.MAX_SHAPES + 1)
      for plan in [BatchSampler(*pairs, tokens=2048, shapes=k, seed=1)]
    }
    plan = BatchSampler(*pairs, tokens=2048, shapes=0, seed=5)
    chosen = len(plan.shapes)
    assert cost[chosen] <= min(cost.values()) * 1.001
    assert chosen == wanted
    again = BatchSampler(*pairs, tokens=2048, shapes=chosen, seed=0)
    assert plan.shapes == again.shapes  # whatever the seed


@pytest.mark.parametrize("start", [Position(), Position(3, 2)])
def test_returns_shapes_in_the_order_of_their_first_use(lengths, start):
  plan = BatchSampler(*lengths, tokens=512, shapes=8, seed=0)
  coming = [p.shape for _, p in itertools.islice(plan.walk(start), 900)]
  used = plan.first_used(start, 900)
  assert len(used) == 8
  assert used == {shape: coming.index(shape) for shape in plan.shapes}
  assert list(used.values()) == sorted(used.values())
  small_set = plan.first_used(start, 3)
  assert list(small_set) == list(dict.fromkeys(coming[:3]))


def test_rows_stay_within_the_token_budget(lengths):
  plan = BatchSampler(*lengths, tokens=512, shapes=5, seed=0)
  assert len(plan.shapes) == 5
  for shape in plan.shapes:
    assert shape.rows % 8 == 0
    assert shape.rows * max(shape.source, shape.target) <= 512


@pytest.mark.parametrize("epoch", [0, 1])
def test_every_pair_is_in_exactly_one_batch_that_holds_it(lengths, epoch):
  some = [side[:2997] for side in lengths]  # no multiple of the rows
  plan = BatchSampler(*some, tokens=512, shapes=5, seed=0)
  batches = plan.epoch(epoch)
  ids = np.concatenate([b.ids for b in batches])
  assert sorted(ids) == list(range(2997))
  for batch in batches:
    assert 0 < len(batch.ids) <= batch.shape.rows
    assert lengths[0][batch.ids].max() <= batch.shape.source
    assert lengths[1][batch.ids].max() <= batch.shape.target
  assert sum(len(b.ids) < b.shape.rows for b in batches) <= 1


@pytest.mark.parametrize("multiple", [1, 8])
def test_shapes_hold_the_words_of_all_pairs_that_fit(lengths, multiple):
  rng = np.random.default_rng(2)
  words = [rng.integers(0, 60, 3000), rng.integers(0, 9, 3000)]
  plan = BatchSampler(
    *lengths, *words, tokens=512, shapes=5, seed=0, length_multiple=multiple
  )
  source, target = lengths
  for shape in plan.shapes:
    fits = (source <= shape.source) & (target <= shape.target)
    for of, size in zip(words, (shape.source_words, shape.target_words)):
      assert size % multiple == 0
      assert size - multiple < of[fits].max() <= size
  # Those that moved on to a larger shape too.
  for batch in plan.epoch(0):
    assert words[0][batch.ids].max() <= batch.shape.source_words
    assert words[1][batch.ids].max() <= batch.shape.target_words


def test_data_without_trees_has_no_words(lengths):
  plan = BatchSampler(*lengths, tokens=512, shapes=2, seed=0)
  assert {(s.source_words, s.target_words) for s in plan.shapes} == {(1, 1)}


def test_order_depends_on_seed_and_epoch_alone(lengths):
  def ids(seed, epoch):
    plan = BatchSampler(*lengths, tokens=512, shapes=5, seed=seed)
    return np.concatenate([b.ids for b in plan.epoch(epoch)]).tolist()

  assert ids(0, 3) == ids(0, 3)
  assert ids(0, 3) != ids(1, 3)
  assert ids(0, 3) != ids(0, 4)


def test_positions_continue_into_the_next_epoch(lengths):
  plan = BatchSampler(*lengths, tokens=512, shapes=5, seed=0)
  batches = [*plan.epoch(0), *plan.epoch(1)]
  last = len(plan.epoch(0)) - 1
  after, walked = zip(
    *itertools.islice(plan.walk(Position()), len(batches)), strict=True
  )
  assert after[0] == Position(0, 1) and after[last] == Position(1, 0)
  for one, other in zip(batches, walked, strict=True):
    assert one.shape == other.shape and (one.ids == other.ids).all()
  for start, planned in zip(after[3:last], walked[4:]):
    assert (next(plan.walk(start))[1].ids == planned.ids).all()


def test_more_shapes_reduce_padding(lengths):
  shares = [
    BatchSampler(*lengths, tokens=512, shapes=k, seed=0).padding()
    for k in (1, 4, 12)
  ]
  assert shares[0] > shares[1] > shares[2]
  # By hand for one shape: positions are rows of 39 + 44 at most.
  plan = BatchSampler(*lengths, tokens=512, shapes=1, seed=0)
  shape = plan.shapes[0]
  batches = -(-3000 // shape.rows)
  real = lengths[0].sum() + lengths[1].sum()
  assert plan.padding() == pytest.approx(1 - real / (batches * shape.positions))


def test_evaluation_reads_every_pair_once_longest_first(lengths):
  batches = BatchSampler(*lengths, tokens=512, shapes=5, seed=0).in_order()
  assert sorted(np.concatenate([b.ids for b in batches])) == list(range(3000))
  areas = [b.shape.source + b.shape.target for b in batches]
  assert areas == sorted(areas, reverse=True)


def test_rejects_a_pair_beyond_the_token_budget():
  with pytest.raises(InputError, match=r"config.batch.tokens=64 cannot hold"):
    BatchSampler(
      np.array([5, 9]), np.array([5, 5]), tokens=64, shapes=2, seed=0
    )


def test_rejects_a_split_without_pairs():
  with pytest.raises(InputError, match="no examples"):
    BatchSampler(np.array([]), np.array([]), tokens=64, shapes=2, seed=0)
