"""Prefixes and phrases against all outputs of tables, and by hand."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tables_under_test import Tables, by, drawn, stepped

from jaxsyn.data.schema import BOS, EOS, PAD
from jaxsyn.decode import phrases
from jaxsyn.decode.prefix import State
from jaxsyn.decode.rank import NEG_INF
from jaxsyn.decode.search import Decoding, Sources
from jaxsyn.decode.terms import Terms, batch_constraints, sizes_of
from jaxsyn.syntax import SentenceFeatures

SIZE = 7  # PAD, UNK, BOS, EOS, and 4, 5, 6
SOURCES = [[7, 5, 3], [9, 3], [6, 6, 6, 3], [8, 3]]
LENGTH = 5


def found_by(terms, decode, sources=SOURCES, limit=LENGTH, ranks=None):
  """(ids, log_p) of each hypothesis of each sentence."""
  id_BS = np.full((len(sources), 4), PAD, np.int32)
  for row, ids in enumerate(sources):
    id_BS[row, : len(ids)] = ids
  request = batch_constraints(
    [limit] * len(sources), terms, rows=len(sources), sizes=sizes_of(terms)
  )
  rank_V = np.arange(SIZE) - 4 if ranks is None else ranks
  params = drawn(SIZE, 0.5)

  def run(params, id_BS, request):
    decoding = Decoding(Tables(SIZE), params, lambda: rank_V)
    inputs = Sources(id_BS, SentenceFeatures(real_BS=id_BS != PAD), request)
    search = decoding.begin(
      inputs,
      hypotheses=decode.search.hypotheses(decode),
      length=limit,
      room=limit,
      strategy_state=decode.search.begin(inputs.request, decode),
    )
    step = decode.search.step
    return jax.lax.while_loop(
      lambda search: search.open_B.any(),
      lambda search: step(decoding, search, decode),
      step(decoding, search, decode),
    ).ended

  result = jax.device_get(jax.jit(run)(params, id_BS, request))
  return [
    [
      (tuple(tokens[tokens != PAD].tolist()), log_p)
      for tokens, log_p, score in zip(*row)
      if score > NEG_INF / 2
    ]
    for row in zip(result.token_BNT, result.log_p_BN, result.score_BN)
  ]


def all_outputs(ids, limit=LENGTH):
  """log p of all there are; EOS is the last of any."""
  log_p, state, step = stepped(drawn(SIZE, 0.5), ids)
  outputs = {}
  for size in range(limit):
    for middle in itertools.product((1, 4, 5, 6), repeat=size):
      now, total = step(state, BOS), 0.0
      for token in (*middle, EOS):
        total += log_p[now % len(log_p), token]
        now = step(now, token)
      outputs[*middle, EOS] = total
  return outputs


def holds(output, phrase):
  size = len(phrase)
  return any(
    output[at : at + size] == phrase for at in range(len(output) - size + 1)
  )


def exact(ids, term, begins=lambda output: True):
  """Outputs that meet the terms, best first."""
  met = [
    (output, log_p)
    for output, log_p in all_outputs(ids).items()
    if begins(output)
    and all(holds(output, phrase) for phrase in term.must)
    and not any(holds(output, phrase) for phrase in term.avoid)
  ]
  return sorted(met, key=lambda one: -one[1])


WIDE = by(300, nbest=300, alpha=0.0, stop="bound")
TERMS = [
  Terms(must=((4, 5),)),
  Terms(must=((4, 4, 5), (4, 5, 6))),  # they overlap
  Terms(must=((6,), (5, 5)), avoid=((5, 6), (4,))),
  Terms(avoid=((1,), (4, 4), (5, 5, 6))),
]


def test_a_wide_beam_finds_all_outputs_with_the_phrases():
  for row, result in enumerate(found_by(TERMS, WIDE)):
    expected = exact(SOURCES[row], TERMS[row])
    assert [one[0] for one in result] == [one[0] for one in expected]
    np.testing.assert_allclose(
      [one[1] for one in result], [one[1] for one in expected], atol=1e-4
    )
    assert len(result) > 3 or row == 1  # there is one output with these


@pytest.mark.parametrize("beam", [1, 2, 4])
def test_a_narrow_beam_meets_all_phrases(beam):
  decode = by(beam, nbest=beam, alpha=1.0)
  for term, result in zip(TERMS, found_by(TERMS, decode, limit=9), strict=True):
    assert result
    for output, _ in result:
      assert all(holds(output, phrase) for phrase in term.must)
      assert not any(holds(output, phrase) for phrase in term.avoid)


def test_a_sentence_without_phrases_is_searched_as_ever():
  terms = [Terms(must=((4, 5),)), *[Terms()] * 3]
  decode = by(3, nbest=3)
  plain = found_by([Terms()] * 4, decode)
  result = found_by(terms, decode)
  for one, other in zip(result[1:], plain[1:], strict=True):
    assert [ids for ids, _ in one] == [ids for ids, _ in other]
  assert result[0] != plain[0]


# "ab" of 4 "a", 5 "ab", 6 "abc": 4 and then what begins with "b" (nothing);
# here the second state is completed by 5 and 6, sorted as they are numbered.
BEGUN = (
  State(0, 0, {4: 1, 6: 2}),
  State(1, 3, {}),
  State(0, 1, {}),
)


def begun(output):
  """By hand: 4 and then 5 or 6; or 6 and then 4."""
  return output[:2] in ((4, 5), (4, 6), (6, 4))


@pytest.mark.parametrize("search", ["beam", "diverse", "sample"])
def test_all_outputs_begin_with_the_prefix(search):
  terms = [Terms(place=i, prefix=BEGUN) for i in range(3)] + [Terms(place=3)]
  decode = by(60, nbest=60, alpha=0.0, search=search, diverse={"groups": 2})
  result = found_by(terms, decode)
  free = found_by([Terms(place=i) for i in range(4)], decode)
  assert [one[0] for one in result[3]] == [one[0] for one in free[3]]
  for row in range(3):
    outputs = all_outputs(SOURCES[row])
    assert {one[0][:2] for one in result[row]} == {(4, 5), (4, 6), (6, 4)}
    for output, log_p in result[row]:
      assert log_p == pytest.approx(outputs[output], abs=1e-4)


def test_a_wide_beam_finds_all_outputs_with_prefix_and_phrase():
  terms = [Terms(prefix=BEGUN, must=((5, 1),), avoid=((1, 1),))] * 4
  for row, result in enumerate(found_by(terms, WIDE)):
    expected = exact(SOURCES[row], terms[row], begun)
    assert [one[0] for one in result] == [one[0] for one in expected]
    assert len(result) > 3


def test_how_far_a_phrase_is_met_by_hand():
  """Of a b a b c: after a b a b comes a, of which a b a is its beginning."""
  made = phrases.batch_of([[(4, 5, 4, 5, 6)]], [[]], (1, 8))
  far = []
  made = jax.tree.map(jnp.asarray, made)
  for token in (4, 5, 4, 5, 4, 5, 6, 4):
    made = made.followed(jnp.zeros((1, 1), int), jnp.full((1, 1), token))
    far.append(int(made.met_BNP[0, 0, 0]))
  assert far == [1, 2, 3, 4, 3, 4, 5, 5]  # once met, met
