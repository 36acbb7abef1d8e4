"""Automata of prefixes: all ways to write a prefix in subwords."""

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


def paths(words, automaton, past, maximum):
  """Returns all paths through an automaton of at most `maximum` subwords."""
  pieces = PrefixCompiler(words)._sorted
  ids = {piece: i for i, piece in enumerate(words.pieces(range(words.size)))}

  def continued(state, past):
    if state == len(automaton):
      yield past
      return
    if len(past) >= maximum:
      return
    expected = automaton[state]
    for rank in range(expected.first, expected.stop):
      token = ids[pieces[rank]]
      if token not in expected.edges:
        yield from continued(len(automaton), (*past, token))
    for token, to in expected.edges.items():
      yield from continued(to, (*past, token))

  return list(continued(0, past))


@pytest.mark.parametrize("text", ["the far", "the farm ", "a", "du", "the "])
def test_every_path_begins_with_the_prefix(words, text):
  automaton = PrefixCompiler(words)(text)
  found = paths(words, automaton, (), 9)
  assert found
  for ids in found:
    ids = [*ids, *words.ids("duck")]  # so that a blank at the end is visible
    assert words.decode(ids).startswith(text)
  # The usual split of a text that begins with the prefix is one of the paths.
  for line in ("the farmer saw", "the farm", "the farm and", "a duck", "ducks"):
    if line.startswith(text) and not (text == "a" and line != "a duck"):
      ids = words.ids(line)
      assert any(tuple(ids[: len(way)]) == way for way in found), line


def test_all_continuing_subwords_are_allowed(words):
  """The subwords may extend beyond the prefix."""
  found = paths(words, PrefixCompiler(words)("far"), (), 9)
  pieces = words.pieces(range(words.size))
  expected = {i for i, piece in enumerate(pieces) if piece.startswith("▁far")}
  assert expected <= {way[0] for way in found if len(way) == 1}
  assert len(found) == len(set(found)) >= (1 if words.whole_words else 3)


def test_an_empty_prefix_allows_everything(words):
  assert PrefixCompiler(words)("") == PrefixCompiler(words)("  ") == ()


def test_rejects_text_outside_the_vocabulary(words):
  for text in ("the ☃", "☃ duck "):
    with pytest.raises(InputError, match="cannot be written with the subwords"):
      PrefixCompiler(words)(text)
  if words.whole_words:
    with pytest.raises(InputError, match="cannot be written"):
      PrefixCompiler(words)("the xyz")
