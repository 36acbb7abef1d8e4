"""Facts of small trees by hand; sums over buckets."""

import numpy as np
import pytest
from scored import scorer_of

from jaxsyn.data.sentence import conllu
from jaxsyn.errors import InputError
from jaxsyn.score import in_buckets
from jaxsyn.scoring import buckets
from jaxsyn.scoring.metrics import METRICS
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
# "on the issue" depends on "hearing" across "scheduled".
HEARING = parse(
  "a hearing is scheduled on the issue today",
  [2, 4, 4, 0, 7, 7, 2, 4],
  "det nsubj:pass aux:pass root case det nmod obl:tmod",
)
YES = parse("yes", [0], "root")


def labels(table: buckets.Buckets) -> list[str]:
  return [table.labels[i] for i in table.bucket_B]


def by_tree(*parses: conllu.Parse) -> list[buckets.Buckets]:
  """Tables of depth, dependency length, clauses and projectivity."""
  return buckets.in_buckets(buckets.sentence_facts([], parses))[1:]


def test_length_buckets_include_their_upper_end():
  lengths = [1, 10, 11, 20, 50, 51, 400]
  (table,) = buckets.in_buckets({buckets.LENGTH: lengths})
  assert " ".join(labels(table)) == "1-10 1-10 11-20 11-20 41-50 >50 >50"
  assert " ".join(table.labels) == "1-10 11-20 21-30 31-40 41-50 >50"
  # Empty lines have a bucket, if there are any.
  (table,) = buckets.in_buckets({buckets.LENGTH: [0, 3, 4, 9]}, (3, 4))
  assert labels(table) == ["0", "1-3", "4", ">4"]
  for edges in ((), (0, 5), (5, 5), (9, 3)):
    with pytest.raises(InputError, match="must ascend from 1"):
      buckets.check_edges(edges)


def test_tree_facts_by_hand():
  # DOG: bites > dog > barks > that is 3 edges deep. Distances: the 1, dog 3,
  # that 1, barks 2 (the full stop is left out): 7 / 4. Clauses: bites, barks.
  # HEARING: scheduled > hearing > issue > on; a 1, hearing 2, is 1, on 2,
  # the 1, issue 5, today 4: 16 / 7. issue-hearing spans the root.
  facts = buckets.sentence_facts([], [DOG, HEARING, YES])
  assert facts["tree depth"] == [3, 3, 0]
  assert facts["dependency length"] == [7 / 4, 16 / 7, 0.0]
  assert facts["clauses"] == [2, 1, 1]
  unparsed = conllu.unparsed("no tree here")
  depth, length, clauses, crossing = by_tree(DOG, HEARING, YES, unparsed)
  none = buckets.NO_TREE
  assert labels(depth) == ["3-4", "3-4", "0-2", none]
  assert labels(length) == ["1.5-2", "2-2.5", "<=1.5", none]
  assert labels(clauses) == ["2", "1", "1", none]
  assert " ".join(labels(crossing)[:3]) == (
    "projective non-projective projective"
  )
  assert all(none not in table.labels for table in by_tree(DOG))
  # Clauses are roots and clausal relations.
  relations = "root csubj ccomp xcomp advcl acl parataxis csubj:pass conj obj"
  tree = parse("a b c d e f g h i j", [0, *[1] * 9], relations)
  assert buckets.clauses(tree) == 8
  assert buckets.clauses(parse("a b", [0, 0], "root root")) == 2


def test_buckets_add_up_to_the_whole():
  random = np.random.default_rng(0)
  lines = [
    " ".join(map(str, random.integers(20, size=n)))
    for n in random.integers(0, 60, size=80)
  ]
  scorers = [scorer_of(m, [lines]) for m in METRICS]
  measured = {
    name: [s.measure([w.replace(digit, "x") for w in lines]) for s in scorers]
    for name, digit in (("a", "3"), ("b", "4"))
  }
  scored = {name: {0: value} for name, value in measured.items()}
  parses = [*map(conllu.unparsed, lines[:-3]), DOG, HEARING, YES]
  for table in [
    *buckets.in_buckets(buckets.sentence_facts(lines)),
    *by_tree(*parses),
  ]:
    result = list(in_buckets(table, scored, "a", Settings(samples=20)))
    assert [b.label for b in result] == list(table.labels)
    assert sum(b.count for b in result) == len(lines)
    assert sum(b.share for b in result) == pytest.approx(1.0)
    for index, bucket in enumerate(result):
      check_bucket(bucket, table.bucket_B == index, measured)


def check_bucket(bucket, chosen_B, measured):
  """Scores are those of the bucket's sentences alone."""
  if not bucket.count:
    assert bucket.scores == {} and bucket.differences == ()
  for system in bucket.scores:
    for complete in measured[system]:
      score = bucket.scores[system][complete.scorer.name]
      assert score == complete.part(chosen_B).value
      # For means of sentence scores, a bucket has the mean of its sentences.
      if complete.scorer.name in ("RIBES", "exact"):
        assert score == pytest.approx(complete.sentence_B[chosen_B].mean())
  for d in bucket.differences:
    assert (d.system, d.baseline, d.tests) == ("b", "a", ())
    scores = bucket.scores
    assert d.value == scores["b"][d.metric] - scores["a"][d.metric]
    if bucket.count < buckets.FEWEST:
      assert d.low is d.high is None
    else:
      assert d.low <= d.high


def test_real_trees_are_in_all_buckets(shared_data):
  blocks = list(conllu.read(shared_data / "ud" / "de_pud.conllu.gz"))
  parses = [conllu.attach([block], block.text) for block in blocks]
  for table in by_tree(*parses):
    count = np.bincount(table.bucket_B, minlength=len(table.labels))
    assert count.sum() == 1000 and (count > 0).all(), table.by
