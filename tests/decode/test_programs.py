"""Searches that move between pool sizes, and continuous batching."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from models_under_test import batch_of, parameters, plan_of, sentence
from tables_under_test import decode_options, request_of, run_search

from jaxsyn.configs.systems import SYSTEMS
from jaxsyn.decode.pool import Pool
from jaxsyn.decode.programs import DecodingPrograms, PoolSize
from jaxsyn.decode.rank import NEG_INF
from jaxsyn.decode.search import Decoding

PAIRS = [sentence(5, 6, 1), sentence(2, 4, 2), sentence(7, 5, 3)]
LIMITS = np.array([25, 40, 33], np.int32)


def source_of(batch):
  return {k: np.asarray(v) for k, v in batch.items() if k.startswith("source")}


@pytest.mark.parametrize(
  "system", ["dependency_relative_both", "gru_double_sdr"]
)
def test_a_search_continues_in_another_size(system):
  plan = plan_of(system)
  batch = batch_of(PAIRS)
  params = parameters(plan, batch)
  source = source_of(batch)
  shape = source["source_id_BS"].shape

  def padding_batch(size):
    empty = {k: np.zeros_like(v) for k, v in source.items()}
    return empty, request_of(np.ones(shape[0]))

  def size(slots, cache_length):
    return PoolSize(
      source=shape[1],
      words=9,
      length=40,
      slots=slots,
      cache_length=cache_length,
      encode_rows=3,
      entering=3,
    )

  programs = DecodingPrograms(
    plan.recipe.model, decode_options(2), padding_batch
  )
  read = programs.encode(size(3, 40), params, source, request_of(LIMITS))
  all_slots = np.arange(3, dtype=np.int32)
  no_slot = np.full(3, 99, np.int32)

  def search_in(sizes, slots_of):
    """Returns the search after moves to other sizes and slots."""
    now = sizes[0]
    search = programs.empty(now, params)
    search = programs.search(
      now, params, search, read, all_slots, all_slots, now.slots
    )
    for size, slot_B in zip(sizes[1:], slots_of, strict=True):
      search = programs.move(
        now, size, params, search, np.array(slot_B, np.int32)
      )
      now = size
      search = programs.search(
        now, params, search, read, all_slots, no_slot, now.slots
      )
    return jax.device_get(search)

  complete = search_in([size(3, 40)], [])
  assert (
    not complete.open_B.any() and (complete.ended.score_BN > NEG_INF / 2).all()
  )
  assert (complete.position_B > 16).all()
  # The cache of 16 positions is full, then that of 32, with more slots in another
  # order.
  moved = search_in(
    [size(3, 16), size(5, 32), size(4, 40)], [[2, 0, 1, 3, 3], [1, 0, 2, 9]]
  )
  for row, slot in enumerate([0, 2, 1]):
    np.testing.assert_array_equal(
      moved.ended.token_BNT[slot], complete.ended.token_BNT[row]
    )
    np.testing.assert_allclose(
      moved.ended.score_BN[slot], complete.ended.score_BN[row], atol=1e-5
    )


@pytest.mark.parametrize("system", ["transformer", "gru_global"])
def test_continuous_batching_equals_one_batch(system):
  """Ten sentences in four slots; the cache grows, and the pool shrinks to one."""
  plan = plan_of(system)
  params = parameters(plan, batch_of(PAIRS))
  source = source_of(batch_of(PAIRS))

  def batch_of_indices(indices, size):
    batch = {
      k: np.zeros((size.encode_rows, *v.shape[1:]), v.dtype) if v.ndim else v
      for k, v in source.items()
    }
    limit_R = np.ones(size.encode_rows, np.int32)
    for row, index in enumerate(indices):
      for name, value in source.items():
        if value.ndim:
          batch[name][row] = value[index % 3]
      limit_R[row] = LIMITS[index % 3]
    return batch, request_of(limit_R)

  decode = decode_options(2)
  programs = DecodingPrograms(
    plan.recipe.model, decode, lambda size: batch_of_indices([], size)
  )
  shape = source["source_id_BS"].shape
  size = PoolSize(
    source=shape[1],
    words=9,
    length=40,
    slots=4,
    cache_length=16,
    encode_rows=3,
    entering=1,
  )
  pool = Pool(programs, params, range(10), size=size, batch_of=batch_of_indices)
  result = dict(pool())
  assert sorted(result) == list(range(10))
  sizes = [key for name, key, _ in programs._programs if name == "search"]
  grows = system == "transformer"
  assert {one.slots for one in sizes} == {4, 1}
  assert {one.cache_length for one in sizes} == (
    {16, 32, 40} if grows else {40}
  )
  request = request_of(LIMITS)
  single = jax.device_get(
    jax.jit(
      lambda params: run_search(
        plan.recipe.model, params, source, request, decode=decode, length=40
      )
    )(params)
  )
  for index, hypotheses in result.items():
    np.testing.assert_array_equal(
      hypotheses.token_BNT, single.token_BNT[index % 3]
    )
    np.testing.assert_allclose(
      hypotheses.score_BN, single.score_BN[index % 3], atol=1e-5
    )


# One system for each model; some systems differ only in their trees.
MODELS = {plan_of(name).spec: name for name in reversed(SYSTEMS)}


@pytest.mark.parametrize("system", MODELS.values())
def test_cached_arrays_start_with_the_batch_axis(system):
  plan = plan_of(system)
  batch, decode = batch_of(PAIRS), decode_options(2)
  source = source_of(batch)

  def shapes(rows, cache_length):
    first_rows = {
      k: jnp.asarray(v[:rows]) if v.ndim else v for k, v in source.items()
    }

    def first_step(params):
      request = request_of([9] * rows)
      decoding = Decoding(plan.recipe.model, params)
      search = decoding.begin(
        first_rows,
        request,
        hypotheses=decode.search.hypotheses(decode),
        length=9,
        cache_length=cache_length,
        strategy_state=decode.search.begin(request, decode),
      )
      return decode.search.step(decoding, search, decode)

    params = jax.eval_shape(lambda: parameters(plan, batch))
    return [
      x.shape for x in jax.tree.leaves(jax.eval_shape(first_step, params))
    ]

  sizes = shapes(2, 4), shapes(3, 4), shapes(2, 7)
  for two, three, seven in zip(*sizes, strict=True):
    assert (two[0], three[0]) == (2, 3) and two[1:] == three[1:]
    assert all(a == b or (a, b) == (4, 7) for a, b in zip(two, seven))
