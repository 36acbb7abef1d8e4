"""Prefixes: all ways to write one in subwords, and searches that begin with it."""

import itertools

import numpy as np
import pytest
from tables_under_test import (
  TableStates,
  decode_options,
  random_params,
  search_tables,
)

from jaxsyn.data.schema import EOS
from jaxsyn.data.sentence import vocabulary
from jaxsyn.data.sentence.vocabulary import Subwords
from jaxsyn.decode.prefix import (
  PrefixCompiler,
  State,
  batch_prefixes,
  padded_sizes,
)
from jaxsyn.decode.search import DecodeRequest
from jaxsyn.errors import InputError

LINES = [
  "the farmer saw the farmers and the farm",
  "a far duck saw a duck that the farmer fed",
  "ducks and farmers far and near",
] * 5


@pytest.fixture(scope="module", params=["bpe", "word"])
def words(request, tmp_path_factory):
  path = tmp_path_factory.mktemp("prefix") / "model"
  return vocabulary.train(
    LINES, path, Subwords(size=40, type=request.param, joint=True)
  )


def paths(words, automaton):
  """Returns all paths through an automaton of at most 9 subwords."""
  pieces = words.pieces(range(words.size))
  ids = {rank: i for i, rank in enumerate(PrefixCompiler(words).rank_V)}
  assert sorted(pieces[i] for rank, i in ids.items() if rank >= 0) == [
    pieces[ids[rank]] for rank in range(len(ids) - 1)
  ]

  def continued(state, past):
    if state == len(automaton):
      yield past
      return
    if len(past) >= 9:
      return
    expected = automaton[state]
    for rank in range(expected.first, expected.stop):
      if ids[rank] not in expected.edges:
        yield from continued(len(automaton), (*past, ids[rank]))
    for token, to in expected.edges.items():
      yield from continued(to, (*past, token))

  return list(continued(0, ()))


@pytest.mark.parametrize(
  "text", ["the far", "far", "the farm ", "a", "du", "the "]
)
def test_the_paths_are_all_ways_to_begin_with_the_prefix(words, text):
  found = paths(words, PrefixCompiler(words)(text))
  assert found and len(found) == len(set(found))
  for ids in found:
    ids = [*ids, *words.ids("duck")]  # so that a blank at the end is visible
    assert words.decode(ids).startswith(text)
  # The usual split of a text that begins with the prefix is one of the paths.
  for line in ("the farmer saw", "the farm", "the farm and", "a duck", "ducks"):
    if line.startswith(text) and not (text == "a" and line != "a duck"):
      ids = words.ids(line)
      assert any(tuple(ids[: len(way)]) == way for way in found), line
  if " " not in text:  # a subword may extend beyond the prefix
    pieces = enumerate(words.pieces(range(words.size)))
    longer = {i for i, piece in pieces if piece.startswith(f"▁{text}")}
    assert longer <= {way[0] for way in found}


def test_rejects_text_outside_the_vocabulary(words):
  compile_prefix = PrefixCompiler(words)
  assert compile_prefix("") == compile_prefix("  ") == ()
  for text in ("the ☃", "☃ duck ", "the xyz"):
    with pytest.raises(InputError, match=f"prefix '{text}' cannot be written"):
      compile_prefix(text)


SIZE = 7  # PAD, UNK, BOS, EOS, and 4, 5, 6
SOURCES = [[7, 5, 3], [9, 3], [6, 6, 6, 3], [8, 3]]
LENGTH = 5
PARAMS = random_params(SIZE, 0.5)
# Begins with (4, 5), (4, 6) or (6, 4): after 4 the pieces 1 and 2 in alphabetical
# order (5 and 6) complete the prefix, after 6 piece 0 does (4).
PREFIX = (
  State(0, 0, {4: 1, 6: 2}),
  State(1, 3, {}),
  State(0, 1, {}),
)
BEGINNINGS = {(4, 5), (4, 6), (6, 4)}


def search_all(prefixes, decode):
  request = DecodeRequest(
    np.full(len(SOURCES), LENGTH, np.int32),
    np.arange(len(SOURCES), dtype=np.int32),
    batch_prefixes(prefixes, padded_sizes(prefixes)) if any(prefixes) else None,
  )
  rank_V = np.arange(SIZE) - 4
  return search_tables(
    PARAMS,
    SOURCES,
    request,
    decode,
    length=LENGTH,
    piece_rank=lambda: rank_V,
  )


def all_outputs(ids):
  """Returns the log probability of every output, EOS included."""
  table, outputs = TableStates(PARAMS, ids), {}
  for size in range(LENGTH):
    for middle in itertools.product((1, 4, 5, 6), repeat=size):
      output = (*middle, EOS)
      outputs[output] = sum(
        table.log_p_after(output[:i])[token] for i, token in enumerate(output)
      )
  return outputs


@pytest.mark.parametrize("search", ["diverse", "sample"])
def test_only_outputs_with_a_prefix_begin_with_it(search):
  decode = decode_options(
    60, nbest=60, alpha=0.0, search=search, diverse={"groups": 2}
  )
  result = search_all([PREFIX, PREFIX, PREFIX, ()], decode)
  free = search_all([(), (), (), ()], decode)
  assert [x.tokens for x in result[3]] == [x.tokens for x in free[3]]
  for row in range(3):
    outputs = all_outputs(SOURCES[row])
    assert {one.tokens[:2] for one in result[row]} == BEGINNINGS
    for one in result[row]:
      assert one.log_p == pytest.approx(outputs[one.tokens], abs=1e-4)


def test_a_wide_beam_finds_every_output_with_the_prefix():
  decode = decode_options(300, nbest=300, alpha=0.0, stop="bound")
  for ids, result in zip(SOURCES, search_all([PREFIX] * 4, decode)):
    expected = [
      pair for pair in all_outputs(ids).items() if pair[0][:2] in BEGINNINGS
    ]
    expected.sort(key=lambda pair: -pair[1])
    assert [one.tokens for one in result] == [tokens for tokens, _ in expected]
    np.testing.assert_allclose(
      [one.log_p for one in result], [p for _, p in expected], atol=1e-4
    )
