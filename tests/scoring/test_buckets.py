"""Facts of small trees by hand; buckets add up to the whole."""

import itertools

import numpy as np
import pytest

from jaxsyn.data.sentence import conllu
from jaxsyn.errors import InputError
from jaxsyn.score import in_buckets
from jaxsyn.scoring import buckets
from jaxsyn.scoring.metrics import METRICS, scorer_of
from jaxsyn.scoring.settings import Settings


def parse(words: str, heads: list[int], relations: str) -> conllu.Parse:
  """A tree; heads from 1, 0 for a root."""
  rows = zip(words.split(), heads, relations.split())
  text = "".join(
    f"{i}\t{word}\t_\t_\t_\t_\t{head}\t{relation}\t_\t_\n"
    for i, (word, head, relation) in enumerate(rows, start=1)
  )
  (block,) = conllu.blocks_of_text(text, "tree")
  return conllu.attach([block], block.text)


# Edges: the-dog, dog-bites, that-barks, barks-dog, .-bites.
DOG = parse(
  "the dog that barks bites .",
  [2, 5, 4, 2, 0, 5],
  "det nsubj nsubj acl:relcl root punct",
)
# A hearing is scheduled today on the issue: "on the issue" hangs under
# "hearing" across "scheduled".
HEARING = parse(
  "a hearing is scheduled on the issue today",
  [2, 4, 4, 0, 7, 7, 2, 4],
  "det nsubj:pass aux:pass root case det nmod obl:tmod",
)
YES = parse("yes", [0], "root")


def labels(table: buckets.Buckets) -> list[str]:
  return [table.labels[i] for i in table.bucket_B]


def test_lengths_fall_into_buckets_that_hold_their_upper_end():
  result = buckets.by_length([1, 10, 11, 20, 50, 51, 400])
  assert labels(result) == [
    *("1-10", "1-10", "11-20", "11-20", "41-50", ">50", ">50")
  ]
  assert result.labels == ("1-10", "11-20", "21-30", "31-40", "41-50", ">50")
  # An empty line has a bucket of its own, where there is one.
  assert labels(buckets.by_length([0, 3, 4, 9], (3, 4))) == [
    *("0", "1-3", "4", ">4")
  ]


@pytest.mark.parametrize("edges", [(), (0, 5), (5, 5), (9, 3)])
def test_edges_that_do_not_ascend_are_refused(edges):
  with pytest.raises(InputError, match="must ascend from 1"):
    buckets.by_length([1], edges)


def test_facts_of_trees_are_those_counted_by_hand():
  # DOG: bites > dog > barks > that is 3 edges deep. Distances: the 1, dog 3,
  # that 1, barks 2 (the full stop is left out): 7 / 4. Clauses: bites, barks.
  # HEARING: scheduled > hearing > issue > on; a 1, hearing 2, is 1, on 2,
  # the 1, issue 5, today 4: 16 / 7. issue-hearing spans the root.
  depth, length, clauses, crossing = buckets.by_tree([DOG, HEARING, YES])
  assert labels(depth) == ["3-4", "3-4", "0-2"]
  assert buckets.dependency_length(DOG) == 7 / 4
  assert buckets.dependency_length(HEARING) == 16 / 7
  assert buckets.dependency_length(YES) == 0.0
  assert labels(length) == ["1.5-2", "2-2.5", "<=1.5"]
  assert labels(clauses) == ["2", "1", "1"]
  assert labels(crossing) == ["projective", "non-projective", "projective"]


def test_every_relation_of_a_clause_counts_and_no_other():
  relations = "root csubj ccomp xcomp advcl acl parataxis csubj:pass conj obj"
  result = buckets.by_tree(
    [parse("a b c d e f g h i j", [0, *[1] * 9], relations)]
  )
  assert buckets._clauses(parse("a b", [0, 1], "root conj")) == 1
  assert buckets._clauses(parse("a b", [0, 0], "root root")) == 2
  assert labels(result[2]) == [">3"]
  tree = parse("a b c d e f g h i j", [0, *[1] * 9], relations)
  assert buckets._clauses(tree) == 8


def test_lines_without_a_tree_have_a_bucket():
  empty, flat = conllu.unparsed(""), conllu.unparsed("no tree here")
  for table in buckets.by_tree([DOG, empty, flat]):
    assert labels(table)[1:] == [buckets.NO_TREE] * 2
    assert table.labels[-1] == buckets.NO_TREE
  for table in buckets.by_tree([DOG]):
    assert buckets.NO_TREE not in table.labels


def test_buckets_add_up_to_the_whole():
  random = np.random.default_rng(0)
  lines = [
    " ".join(map(str, random.integers(20, size=n)))
    for n in random.integers(0, 60, size=80)
  ]
  meant = [lines]
  faulty = [[w.replace(str(k), "x") for w in lines] for k in (3, 4)]
  scorers = [scorer_of(m, meant) for m in METRICS]
  measured = {
    name: [scorer.measure(message) for scorer in scorers]
    for name, message in zip("ab", faulty)
  }
  runs = {name: {0: value} for name, value in measured.items()}
  words = [len(line.split()) for line in lines]
  parses = [conllu.unparsed(line) for line in lines[:-3]] + [
    DOG,
    HEARING,
    YES,
  ]
  tables = [buckets.by_length(words), *buckets.by_tree(parses)]
  for table in tables:
    result = list(
      in_buckets(table, runs, [("b", "a")], settings=Settings(samples=20))
    )
    assert [b.label for b in result] == list(table.labels)
    assert sum(b.count for b in result) == len(lines)
    assert sum(b.share for b in result) == pytest.approx(1.0)
    for system, position in itertools.product("ab", range(len(scorers))):
      complete = measured[system][position]
      parts = [
        complete.part(table.bucket_B == i) for i in range(len(table.labels))
      ]
      sums = [part.statistic_BI.sum(axis=0) for part in parts]
      np.testing.assert_allclose(sum(sums), complete.statistic_BI.sum(axis=0))
      # Means of sentences: the buckets' weighted mean is the score itself.
      if complete.scorer.name in ("RIBES", "exact"):
        mean = sum(
          b.share * b.scores[system][complete.scorer.name]
          for b in result
          if b.count
        )
        assert mean == pytest.approx(complete.value)
      for bucket, part in zip(result, parts):
        if bucket.count:
          assert bucket.scores[system][complete.scorer.name] == part.value
        else:
          assert bucket.scores == {} and bucket.differences == ()
    for bucket in result:
      for d in bucket.differences:
        assert (d.system, d.baseline, d.tests) == ("b", "a", ())
        scores = bucket.scores
        assert d.value == scores["b"][d.metric] - scores["a"][d.metric]
        if bucket.count < buckets.FEWEST:
          assert d.low is d.high is None
        else:
          assert d.low <= d.high


def test_real_trees_fall_into_all_kinds_of_buckets(shared_data):
  blocks = list(conllu.read(shared_data / "ud" / "de_pud.conllu.gz"))
  parses = [conllu.attach([block], block.text) for block in blocks]
  for table in buckets.by_tree(parses):
    count = np.bincount(table.bucket_B, minlength=len(table.labels))
    assert count.sum() == 1000 and (count > 0).all(), table.by
