"""Tests validation of decoded examples that do not belong to a dataset."""

import numpy as np
import pytest
from toy_folders import SIDES, example, manifest_of

from jaxsyn.data import schema
from jaxsyn.data.store.example_check import check
from jaxsyn.data.store.rows import InvalidExampleError, Rows

MANIFEST = manifest_of(sides=SIDES, brackets={"source": ["NP", "S"]})
OPTIONAL = {
  name: np.zeros(0, np.int32)
  for name in (
    "source_other_head",
    "source_other_relation",
    "source_brackets",
    "links",
  )
}
EXAMPLES = [example(i) | OPTIONAL for i in range(11)]
FEATURES = tuple(EXAMPLES[0])
NAN = float("nan")

# Values of example 5, whose source has four words and EOS, and the error.
WRONG = [
  ("line", 0, "line must be from 1 to"),
  ("source_id", [], "source_id is empty"),
  ("source_id", [10, 11, 12, 13, 14], "source_id does not end in EOS"),
  ("source_id", [10, 1000, 12, 13, 3], "source_id must be from 0 to 999"),
  ("source_id", [10, -1, 12, 13, 3], "source_id must be from 0 to 999"),
  ("source_id", [10, 3], "source_word has another number of values"),
  ("target_id", [2**31 - 1, 3], "target_id must be .* 999, got 2147483647"),
  ("target_id", [], "target_id is empty"),
  ("source_word", [0, 1, 2, 4, -1], "source_word must be from -1 to 3"),
  ("source_word", [0, 1, -2, 3, -1], "source_word must be from -1 to 3"),
  ("source_head", [0, 0, 0, 4], "source_head must be from 0 to 3"),
  ("source_head", [0, 0, 0, -1], "source_head must be from 0 to 3"),
  ("source_head", [0, 2, 3, 1], "source_head has a cycle"),
  ("source_head", [1, 0, 2, 3], "source_head has a cycle"),
  ("source_head", [0, 0, 0], "source_relation has another number"),
  ("source_relation", [0, 1, 2, 9], "source_relation must be from 0 to 8"),
  ("source_relation", [0, 1, 2, -1], "source_relation must be from 0 to 8"),
  ("source_parent_mid", [0, 0, 0, 0, 4.5], "parent_mid must be from 0 to 4"),
  ("source_parent_mid", [NAN] * 5, "source_parent_mid must be from 0 to 4"),
  ("source_parent_mid", [-0.5, 0, 0, 0, 4], "parent_mid must be from 0 to 4"),
  ("source_parent_mid", [0.5] * 4, "parent_mid has another number of values"),
  ("source_parsed", 2, "source_parsed must be from 0 to 1, got 2"),
  ("source_tree_distance", [1, 2, 3], "source_tree_distance has another numb"),
  ("source_word_end", [10, 20, 30], "source_word_end has another number"),
  ("source_word_end", [10, 20, -1, 40], "source_word_end must be from 0"),
  ("source_other_head", [0, 0, 0], "source_other_head has a part of a parse"),
  ("source_other_head", [0, 0, 0, 0], "other_relation has another number"),
  ("links", [0, 1, 2], "links has half a link"),
  ("links", [0, -1], "links must be from 0"),
  ("source_brackets", [-2, 0, -1, -1, -2], "brackets that do not match"),
  ("source_brackets", [-2, -3, 0, -1], "brackets that do not match"),
  ("source_brackets", [-2, 4, -1], "source_brackets must be from -4 to 3"),
  ("source_brackets", [-5, 0, -1], "source_brackets must be from -4 to 3"),
]
# The smallest and the largest values.
VALID = [
  ("source_id", [999, 0, 1, 2, 3]),
  ("source_word", [3, -1, 3, -1, -1]),
  ("source_relation", [8, 0, 8, 8]),
  ("source_parent_mid", [0, 4, 4, 0.25, 4]),
  ("source_head", [1, 2, 3, 3]),
  ("line", 2**62),
  ("links", [0, 2**31 - 1]),
  ("source_brackets", [-4, 0, -3, 3, -1, -1]),
]


def rows_with(**values):
  """Returns all examples; the sixth has other values."""
  arrays = {k: np.array(v, schema.FEATURES[k].dtype) for k, v in values.items()}
  changed = EXAMPLES[5] | arrays
  return Rows.of([*EXAMPLES[:5], changed, *EXAMPLES[6:]], FEATURES)


@pytest.mark.parametrize(("name", "value", "message"), WRONG)
def test_names_the_first_example_with_a_wrong_value(name, value, message):
  with pytest.raises(InvalidExampleError, match=message) as error:
    check(rows_with(**{name: value}), MANIFEST)
  assert error.value.index == 5


@pytest.mark.parametrize(("name", "value"), VALID)
def test_accepts_the_smallest_and_the_largest_values(name, value):
  check(rows_with(**{name: value}), MANIFEST)
  check(Rows.of([], FEATURES), MANIFEST)


def test_checks_every_alternative_parse():
  first, cycle = [0, 0, 1, 2], [1, 2, 1, 3]

  def rows(*parses):
    heads = np.concatenate(parses)
    relations = np.zeros(len(heads))
    return rows_with(source_other_head=heads, source_other_relation=relations)

  check(rows(first, first), MANIFEST)
  with pytest.raises(InvalidExampleError, match="other_head has a cycle"):
    check(rows(first, cycle), MANIFEST)
