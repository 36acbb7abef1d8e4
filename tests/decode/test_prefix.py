"""Automata of prefixes: every way to write what a text begins with."""

import pytest

from jaxsyn.data.sentence import vocabulary
from jaxsyn.data.sentence.vocabulary import Subwords
from jaxsyn.decode.prefix import PrefixCompiler
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


def written(words, automaton, past, maximum):
  """Texts of all ways through an automaton, of at most so many subwords more."""
  pieces = PrefixCompiler(words)._sorted
  ids = {piece: i for i, piece in enumerate(words.pieces(range(words.size)))}

  def on(state, past):
    if state == len(automaton):
      yield past
      return
    if len(past) >= maximum:
      return
    expected = automaton[state]
    for rank in range(expected.first, expected.stop):
      token = ids[pieces[rank]]
      if token not in expected.edges:
        yield from on(len(automaton), (*past, token))
    for token, to in expected.edges.items():
      yield from on(to, (*past, token))

  return list(on(0, past))


@pytest.mark.parametrize("text", ["the far", "the farm ", "a", "du", "the "])
def test_every_path_begins_with_the_prefix(words, text):
  automaton = PrefixCompiler(words)(text)
  ways = written(words, automaton, (), 9)
  assert ways
  for ids in ways:
    ids = [*ids, *words.ids("duck")]  # so that a blank at the end is seen
    assert words.decode(ids).startswith(text)
  # As the vocabulary itself cuts what begins so.
  for line in ("the farmer saw", "the farm", "the farm and", "a duck", "ducks"):
    if line.startswith(text) and not (text == "a" and line != "a duck"):
      ids = words.ids(line)
      assert any(tuple(ids[: len(way)]) == way for way in ways), line


def test_all_continuing_subwords_are_allowed(words):
  """Of "far": by any subwords, also those that go on beyond it."""
  ways = written(words, PrefixCompiler(words)("far"), (), 9)
  pieces = words.pieces(range(words.size))
  expected = {i for i, piece in enumerate(pieces) if piece.startswith("▁far")}
  assert expected <= {way[0] for way in ways if len(way) == 1}
  assert len(ways) == len(set(ways)) >= (1 if words.whole_words else 3)


def test_an_empty_prefix_allows_everything(words):
  assert PrefixCompiler(words)("") == PrefixCompiler(words)("  ") == ()


def test_rejects_text_outside_the_vocabulary(words):
  for text in ("the ☃", "☃ duck "):
    with pytest.raises(InputError, match="cannot be written with the subwords"):
      PrefixCompiler(words)(text)
  if words.whole_words:
    with pytest.raises(InputError, match="cannot be written"):
      PrefixCompiler(words)("the xyz")
