"""Tests reading of word alignments and their mapping to subwords."""

import numpy as np
import pytest

from jaxsyn.data.loader.batch_shapes import Shape
from jaxsyn.data.loader.collate import collate
from jaxsyn.data.loader.tasks import ParsingTask
from jaxsyn.data.schema import LINKED
from jaxsyn.data.sentence import alignments
from jaxsyn.data.sentence.alignments import parse_links, pharaoh, units_of_words
from jaxsyn.data.sentence.example import (
  insert_tag,
  insert_tags,
  rearrange_source,
)
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


@pytest.mark.parametrize(
  "line", ["0-", "a-b", "0:1", "0--1", "-1-0", "1.5-2", "0-0,1-1", "0?1", "٣-1"]
)
def test_rejects_malformed_links(line):
  bad = line.split()[0]
  with pytest.raises(
    InputError, match=r"^x:7: '.*' is not a link\. .* i-j"
  ) as e:
    parse_links(f"0-0 {line}", "x:7", possible=False)
  assert repr(bad) in str(e.value)


def test_units_are_blank_separated_words(tmp_path):
  """▁ a ▁ d o g , ▁ s o . as subwords: marks are of the word they stand at."""
  text = "a dog, so."
  vocabulary = train([text], tmp_path / "v", Subwords(size=99, type="char"))
  result = alignments.units_of_pieces(text, vocabulary.encode(text))
  assert result == [0, 0, 1, 1, 1, 1, 1, 2, 2, 2, 2, -1]
  assert alignments.units_of_pieces("", vocabulary.encode("")) == [-1]


def test_subword_of_several_words_belongs_to_the_first():
  # "in the house": one subword of the first two words.
  pieces = Pieces([5, 6], [0, 6], [6, 12])
  assert alignments.units_of_pieces("in the house", pieces) == [0, 2, -1]
  # Words of nothing to see count in an alignment, and no subword is of them.
  far = "\u200b \u200b \u200b x"
  assert alignments.units_of_pieces(far, Pieces([5], [6], [7])) == [-1, -1]


def test_regrouped_maps_parsed_words_to_blank_separated_words():
  text = "It's a dog."
  assert units_of_words([0, 2, 5, 7, 10], [2, 4, 6, 10, 11], text) == [
    0,
    0,
    1,
    2,
    2,
  ]


def by_loops(example, shape):
  """links_BTS of an example: subwords of linked words, all with all."""
  links_TS = np.zeros((shape.target, shape.source), np.uint8)
  pairs = set(zip(example["links"][::2], example["links"][1::2]))
  for t, target in enumerate(example["target_unit"]):
    for s, source in enumerate(example["source_unit"]):
      links_TS[t, s] = (source, target) in pairs
  return links_TS


def example(source, target, links):
  values = source, target, [end for link in links for end in link]
  return {k: np.array(v, np.int32) for k, v in zip(LINKED, values)}


EXAMPLES = [
  # More words than subwords: word 1 of the source has none, nor word 9.
  example([0, 2, -1], [0, 0, 1, -1], [(0, 0), (1, 0), (2, 1), (9, 1)]),
  example([0, 0, 1, -1], [0, -1], [(0, 0), (1, 0)]),
  example([-1], [-1], []),
  example([0, -1], [0, 1, 2, -1], []),
  # In another order, as in a source that has its tree with it.
  example([-1, 1, 0, -1, 0, -1], [1, 0, -1], [(1, 0)]),
]


def test_a_batch_links_the_subwords_of_linked_words():
  examples, shape = Rows.of(EXAMPLES, LINKED), Shape(6, 7, 5)
  order = np.array([4, 0, 2, 1, 3])
  batch = collate(examples, LINKED, order, shape, rows=6)
  assert batch["links_BTS"].dtype == np.uint8
  for row, index in enumerate(order):
    wanted = by_loops(EXAMPLES[index], shape)
    np.testing.assert_array_equal(batch["links_BTS"][row], wanted)
  assert batch["links_BTS"][1, :3, :2].tolist() == [[1, 0], [1, 0], [0, 1]]
  assert not batch["links_BTS"][5].any()
  no_ids = np.empty(0, np.int64)
  nobody = collate(examples, LINKED, no_ids, shape, rows=2)
  assert (
    nobody["links_BTS"].shape == (2, 5, 7) and not nobody["links_BTS"].any()
  )


def test_inserted_subwords_belong_to_no_word():
  """Tags, brackets and a mixture's tag; brackets as a target have no links."""
  pair = {
    **example([0, 0, 1, -1], [0, 1, -1], [(0, 0)]),
    "source_id": np.array([5, 6, 7, 3], np.int32),
    "target_id": np.array([5, 6, 3], np.int32),
  }
  new = insert_tag(pair, 9)
  assert new["source_id"].tolist() == [9, 5, 6, 7, 9, 3]
  assert new["source_unit"].tolist() == [-1, 0, 0, 1, -1, -1]
  turned = rearrange_source(pair, np.array([2, -1, 0, 1, 3]), np.full(5, 8))
  assert turned["source_unit"].tolist() == [1, -1, 0, 0, -1]
  tree = np.array([opening(1), 0, 1, CLOSE])
  sizes = {"source": 10, "target": 10}
  parse = ParsingTask().make(pair, tree, "constituency", sizes)
  assert set(parse["target_unit"].tolist()) == {-1}
  assert len(parse["target_unit"]) == len(parse["target_id"])
  rows = Rows.of(
    [pair, {**pair, "source_unit": np.array([-1])}], ["source_unit"]
  )
  new = insert_tags(rows, 9, at_end=False)
  flat, start = new.flat["source_unit"], new.start["source_unit"]
  assert flat.tolist() == [-1, 0, 0, 1, -1, -1] and start.tolist() == [0, 5, 6]
