"""A few of the cases of `benchmarks.faults`, of every kind, on every change.

The same code, seeds and judgement; the benchmark runs a thousand times as many.
Runs that are killed, and read while they train, are in test_end_to_end and
comparison/test_compare.
"""

import pytest

from benchmarks.faults import crew, flips, mutations
from benchmarks.faults import world as worlds

# Cases of those that open whole folders, or print.
SLOW = {"mutate.download": 60}


@pytest.fixture(scope="module")
def world(made_once):
  return worlds.World(made_once("world", worlds.make))


@pytest.mark.parametrize("name", flips.SUITES)
def test_no_damaged_file_is_read_silently(name, world):
  suite = flips.SUITES[name]
  state = suite.open(world.folder)
  # Preparing takes longest, and is what most kinds do.
  slow = flips.TARGETS[name.removeprefix("flip.")].use is flips.prepare
  count = 2 if slow else 5
  tally = crew.run_here(suite, name, state, seed=0, numbers=range(count))
  assert tally.tried == count
  assert not tally.bad, "\n".join(tally.offenders)


@pytest.mark.parametrize("name", mutations.SUITES)
def test_no_mutated_input_is_read_silently(name, world):
  suite = mutations.SUITES[name]
  state = suite.open(world.folder)
  count = SLOW.get(name, 150)
  tally = crew.run_here(suite, name, state, seed=0, numbers=range(count))
  assert tally.tried == count
  assert not tally.bad, "\n".join(tally.offenders)


def test_every_kind_of_file_that_is_left_on_a_disk_is_damaged(world):
  left = {
    path
    for path in world.folder.rglob("*")
    if path.is_file() and path.relative_to(world.folder).parts[0] != "raw"
  }
  for target in flips.TARGETS.values():
    result = {p for p in world.folder.glob(target.files) if p.is_file()}
    assert result, target.files
    left -= result
  assert {path.name for path in left} == {"done"}
