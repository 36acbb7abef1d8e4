"""Continuous batching: sentences that enter, move between and leave slots."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from models_under_test import batch_of, parameters, plan_of, sentence
from tables_under_test import decode_options, request_of, run_search

from jaxsyn.configs.systems import SYSTEMS
from jaxsyn.decode.ensemble import Ensemble
from jaxsyn.decode.pool import Pool
from jaxsyn.decode.programs import DecodingPrograms, PoolSize
from jaxsyn.decode.rank import NEG_INF
from jaxsyn.decode.search import Decoding

PAIRS = [sentence(5, 6, 1), sentence(2, 4, 2), sentence(7, 5, 3)]
SOURCE = {
  name: np.array(value)
  for name, value in batch_of(PAIRS).items()
  if name.startswith("source")
}
LIMITS = np.array([25, 40, 33], np.int32)


def batch_of_indices(indices, size):
  """Returns the batch of sentences, each one of three, and its request."""
  batch = {
    k: np.zeros((size.encode_rows, *v.shape[1:]), v.dtype) if v.ndim else v
    for k, v in SOURCE.items()
  }
  limit_R = np.ones(size.encode_rows, np.int32)
  for row, index in enumerate(indices):
    for name, value in SOURCE.items():
      if value.ndim:
        batch[name][row] = value[index % 3]
    limit_R[row] = LIMITS[index % 3]
  return (batch,), request_of(limit_R)


def programs_of(plan, decode):
  """Returns the programs of a model."""
  return DecodingPrograms(
    Ensemble((plan.recipe.model,)),
    decode,
    lambda size: batch_of_indices([], size),
  )


def translations(programs, params):
  """Translates 20 sentences in 4 slots."""
  size = PoolSize(
    source=SOURCE["source_id_BS"].shape[1],
    words=9,
    length=40,
    slots=4,
    cache_length=4,
    encode_rows=3,
    entering=1,
  )
  pool = Pool(
    programs, [params], range(20), size=size, batch_of=batch_of_indices
  )
  return dict(pool())


@pytest.mark.parametrize(
  "system", ["dependency_relative_both", "gru_double_sdr"]
)
def test_continuous_batching_equals_one_batch(system):
  """The cache grows, and the pool shrinks to one slot."""
  plan = plan_of(system, encoder_layers=1)
  params, decode = parameters(plan, batch_of(PAIRS)), decode_options(2)
  programs = programs_of(plan, decode)
  result = translations(programs, params)
  assert sorted(result) == list(range(20))
  sizes = [key for name, key, _ in programs._programs if name == "search"]
  lengths = {4, 16, 40} if system == "dependency_relative_both" else {40}
  assert {one.slots for one in sizes} == {4, 1}
  assert {one.cache_length for one in sizes} == lengths

  def search(params):
    request = request_of(LIMITS)
    return run_search(
      plan.recipe.model, params, SOURCE, request, decode=decode, length=40
    )

  single = jax.device_get(jax.jit(search)(params))
  for index, hypotheses in result.items():
    expected = jax.tree.map(lambda x, row=index % 3: x[row], single)
    np.testing.assert_array_equal(hypotheses.token_BNT, expected.token_BNT)
    np.testing.assert_allclose(
      hypotheses.score_BN, expected.score_BN, atol=1e-5
    )


def test_a_sentence_with_nan_changes_no_other():
  """Its decoder caches are NaN when the next sentence enters its slot."""
  untied = {"tie_embeddings": False, "tie_output": False}
  plan = plan_of("transformer", decoder_layers=2, **untied)
  params = parameters(plan, batch_of(PAIRS))
  programs = programs_of(plan, decode_options(2))
  expected = translations(programs, params)
  first, *others = SOURCE["source_id_BS"]
  nan_id = next(i for i in first.tolist() if i not in np.ravel(others))
  nan_VD = params["source_table"]["embedding"].at[nan_id].set(jnp.nan)
  result = translations(
    programs, params | {"source_table": {"embedding": nan_VD}}
  )
  for index, hypotheses in result.items():
    if index % 3 == 0:
      assert not (hypotheses.score_BN > NEG_INF / 2).any()
      continue
    np.testing.assert_array_equal(
      hypotheses.token_BNT, expected[index].token_BNT
    )
    np.testing.assert_allclose(
      hypotheses.score_BN, expected[index].score_BN, atol=1e-5
    )


def decoder_of(system):
  """Returns the architecture and the modifiers that a decoder step computes."""
  spec = plan_of(system).spec
  modifiers = (
    tuple(spec.modifiers.modifiers_in(place)) for place in ("decoder", "cross")
  )
  return spec.architecture, *modifiers


# One system for each decoder; the encoder runs only once.
DECODERS = {decoder_of(name): name for name in reversed(SYSTEMS)}


@pytest.mark.parametrize("system", DECODERS.values())
def test_cached_arrays_start_with_the_batch_axis(system):
  plan, decode = plan_of(system), decode_options(2)
  params = jax.eval_shape(lambda: parameters(plan, batch_of(PAIRS)))

  def shapes(rows, cache_length):
    first_rows = {
      k: jnp.asarray(v[:rows]) if v.ndim else v for k, v in SOURCE.items()
    }

    def first_step(params):
      request = request_of([9] * rows)
      decoding = Decoding(Ensemble((plan.recipe.model,)), [params])
      search = decoding.begin(
        (first_rows,),
        request,
        hypotheses=decode.search.hypotheses(decode),
        length=9,
        cache_length=cache_length,
        strategy_state=decode.search.begin(request, decode),
      )
      return decode.search.step(decoding, search, decode)

    search = jax.eval_shape(first_step, params)
    return [x.shape for x in jax.tree.leaves(search)]

  for small, large in zip(shapes(2, 4), shapes(3, 7), strict=True):
    assert (small[0], large[0]) == (2, 3)
    pairs = zip(small[1:], large[1:], strict=True)
    assert all(a == b or (a, b) == (4, 7) for a, b in pairs)
