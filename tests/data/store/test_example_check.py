"""Tests validation of decoded examples that do not belong to a dataset."""

import numpy as np
import pytest
from toy_folders import SIDES, example, manifest_of

from jaxsyn.data import schema
from jaxsyn.data.store.example_check import check
from jaxsyn.data.store.rows import InvalidExampleError, Rows

EXAMPLES = [example(i) for i in range(11)]
FEATURES = tuple(EXAMPLES[0])
MANIFEST = manifest_of(sides=SIDES)
NAN = float("nan")

# Values of example 5, whose source has four words and EOS, and the fault.
WRONG = [
  ("line", 0, "line must be from 1 to"),
  ("line", -1, "line must be from 1 to"),
  ("source_id", [], "source_id is empty"),
  ("source_id", [10, 11, 12, 13, 14], "source_id does not end in EOS"),
  ("source_id", [10, 1000, 12, 13, 3], "source_id must be from 0 to 999"),
  ("source_id", [10, -1, 12, 13, 3], "source_id must be from 0 to 999"),
  ("source_id", [10, 3], "source_word has another number of values"),
  (
    "target_id",
    [2**31 - 1, 3],
    "target_id must be from 0 to 999, got 2147483647",
  ),
  ("target_id", [], "target_id is empty"),
  ("source_word", [0, 1, 2, 4, -1], "source_word must be from -1 to 3"),
  ("source_word", [0, 1, -2, 3, -1], "source_word must be from -1 to 3"),
  ("source_word", [2**31 - 1] * 5, "source_word must be from -1 to 3"),
  ("source_head", [0, 0, 0, 4], "source_head must be from 0 to 3"),
  ("source_head", [0, 0, 0, -1], "source_head must be from 0 to 3"),
  ("source_head", [0, 2, 3, 1], "source_head has a cycle"),
  ("source_head", [0, 0, 0], "source_relation has another number"),
  ("source_relation", [0, 1, 2, 9], "source_relation must be from 0 to 8"),
  ("source_relation", [0, 1, 2, -1], "source_relation must be from 0 to 8"),
  (
    "source_parent_mid",
    [0, 0, 0, 0, 4.5],
    "source_parent_mid must be from 0 to 4",
  ),
  ("source_parent_mid", [NAN] * 5, "source_parent_mid must be from 0 to 4"),
  (
    "source_parent_mid",
    [-0.5, 0, 0, 0, 4],
    "source_parent_mid must be from 0 to 4",
  ),
  ("source_parent_mid", [0.5] * 4, "parent_mid has another number of values"),
  ("source_parsed", 2, "source_parsed must be from 0 to 1, got 2"),
  ("source_tree_distance", [1, 2, 3], "source_tree_distance has another numb"),
  ("source_word_end", [10, 20, 30], "source_word_end has another number"),
  ("source_word_end", [10, 20, -1, 40], "source_word_end must be from 0"),
]


def rows_with(name, value):
  """All examples, of which the sixth has another value."""
  changed = EXAMPLES[5] | {name: np.array(value, schema.FEATURES[name].dtype)}
  return Rows.of([*EXAMPLES[:5], changed, *EXAMPLES[6:]], FEATURES)


@pytest.mark.parametrize(("name", "value", "message"), WRONG)
def test_names_the_first_example_with_a_wrong_value(name, value, message):
  with pytest.raises(InvalidExampleError, match=message) as error:
    check(rows_with(name, value), MANIFEST)
  assert error.value.index == 5


def test_accepts_examples_of_the_data_set():
  check(Rows.of(EXAMPLES, FEATURES), MANIFEST)
  check(Rows.of([], FEATURES), MANIFEST)


@pytest.mark.parametrize(
  ("name", "value"),
  [
    ("source_id", [999, 0, 1, 2, 3]),
    ("source_word", [3, -1, 3, -1, -1]),
    ("source_relation", [8, 0, 8, 8]),
    ("source_parent_mid", [0, 4, 4, 0.25, 4]),
    ("source_head", [1, 2, 3, 3]),
    ("line", 2**62),
  ],
)
def test_accepts_the_largest_and_the_smallest_values(name, value):
  check(rows_with(name, value), MANIFEST)
