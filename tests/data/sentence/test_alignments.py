"""Word alignments: links, and the subwords of linked words."""

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from jaxsyn.data.loader.collate import Shape, collate
from jaxsyn.data.loader.tasks import ParsingTask
from jaxsyn.data.schema import LINKED
from jaxsyn.data.sentence.alignments import (
  parse_links,
  pharaoh,
  units_of_pieces,
  units_of_words,
)
from jaxsyn.data.sentence.example import insert_tags, rearrange_source
from jaxsyn.data.sentence.linearise import CLOSE, opening
from jaxsyn.data.sentence.vocabulary import Pieces, Subwords, train
from jaxsyn.data.store.rows import Rows
from jaxsyn.errors import InputError


def test_reads_sure_and_possible_links():
  sure, links = parse_links(" 0-0 1?2\t2p1  10-3", "x:1", possible=True)
  assert sure == ((0, 0), (10, 3))
  assert links == ((0, 0), (1, 2), (2, 1), (10, 3))
  assert pharaoh(links[:2]) == "0-0 1-2"
  assert parse_links("", "x:1", possible=False) == ((), ())


@pytest.mark.parametrize("link", ["0-", "0:1", "-1-0", "0-0,1-1", "0?1", "٣-1"])
def test_rejects_malformed_links(link):
  with pytest.raises(InputError, match=r"^x:7: '.*' is not a link") as error:
    parse_links(f"0-0 {link}", "x:7", possible=False)
  assert repr(link) in str(error.value)


def test_units_are_blank_separated_words(tmp_path):
  text = "a dog, so."  # ▁ a ▁ d o g , ▁ s o . and EOS
  vocabulary = train([text], tmp_path / "v", Subwords(size=99, type="char"))
  units = units_of_pieces(text, vocabulary.encode(text))
  assert units == [0, 0, 1, 1, 1, 1, 1, 2, 2, 2, 2, -1]
  # One subword of the first two words: it belongs to the first.
  pieces = Pieces([5, 6], [0, 6], [6, 12])
  assert units_of_pieces("in the house", pieces) == [0, 2, -1]
  # Words without visible characters count, so that 3 is above the number of
  # subwords.
  far = "\u200b \u200b \u200b x"
  assert units_of_pieces(far, Pieces([5], [6], [7])) == [-1, -1]
  # "It" "'s" "a" "dog" "."
  words = units_of_words([0, 2, 5, 7, 10], [2, 4, 6, 10, 11], "It's a dog.")
  assert words == [0, 0, 1, 2, 2]


def example(source, target, links):
  values = source, target, [end for link in links for end in link]
  return {k: np.array(v, np.int32) for k, v in zip(LINKED, values)}


EXAMPLES = [
  # More words than subwords: words 1 and 9 of the source have no subword.
  example([0, 2, -1], [0, 0, 1, -1], [(0, 0), (1, 0), (2, 1), (9, 1)]),
  example([0, 0, 1, -1], [0, -1], [(0, 0), (1, 0)]),
  example([-1], [-1], []),
  # In another order, as in a source with brackets.
  example([-1, 1, 0, -1, 0, -1], [1, 0, -1], [(1, 0)]),
]


def test_a_batch_links_the_subwords_of_linked_words():
  examples, order = Rows.of(EXAMPLES, LINKED), [3, 0, 2, 1]
  batch = collate(examples, LINKED, np.array(order), Shape(6, 7, 5), rows=5)
  expected = np.zeros((5, 5, 7), np.uint8)
  for row, index in enumerate(order):
    source, target, links = EXAMPLES[index].values()
    pairs = {*zip(links[::2].tolist(), links[1::2].tolist())}
    for t, s in np.ndindex(len(target), len(source)):
      expected[row, t, s] = (int(source[s]), int(target[t])) in pairs
  assert_array_equal(batch["links_BTS"], expected)
  assert batch["links_BTS"].dtype == np.uint8


def test_inserted_subwords_belong_to_no_word():
  """Tags and brackets; brackets as a target have no links."""
  pair = {
    **example([0, 0, 1, -1], [0, 1, -1], [(0, 0)]),
    "source_id": np.array([5, 6, 7, 3], np.int32),
    "target_id": np.array([5, 6, 3], np.int32),
  }
  empty = {**pair, "source_id": np.array([3]), "source_unit": np.array([-1])}
  rows = Rows.of([pair, empty], ["source_id", "source_unit"])
  tagged = insert_tags(rows, 9).examples()
  assert tagged[0]["source_id"].tolist() == [9, 5, 6, 7, 9, 3]
  assert tagged[0]["source_unit"].tolist() == [-1, 0, 0, 1, -1, -1]
  assert tagged[1]["source_unit"].tolist() == [-1]
  at_start = insert_tags(rows, 9, at_end=False).examples()
  assert at_start[0]["source_unit"].tolist() == [-1, 0, 0, 1, -1]
  moved = rearrange_source(pair, np.array([2, -1, 0, 1, 3]), np.full(5, 8))
  assert moved["source_unit"].tolist() == [1, -1, 0, 0, -1]
  tree = np.array([opening(1), 0, 1, CLOSE])
  sizes = {"source": 10, "target": 10}
  parse = ParsingTask().make(pair, tree, "constituency", sizes)
  assert parse["target_unit"].tolist() == [-1] * len(parse["target_id"])
