"""What each test costs, and by that which of them are quick: `pytest -m quick`.

The rule: of each file, those of least cost, as many as fit into SECONDS of
processor time, so that every room of the code is touched (a test sees to it). A
test costs what FILE says, and what the fixtures do that it needs; one that is
not there is new, and quick. What needs a fixture of more than SHARED seconds (a
corpus, a training) is for the whole suite alone.

  python -m pytest -n 2 --dist worksteal --write-costs

runs all tests, measures them, and writes the file anew. A line is of a test
function, the mean of its cases, or of a fixture.

The dearest file comes first, so that no worker waits for a long one at the end.
"""

from __future__ import annotations

import collections
import pathlib
import resource
from collections.abc import Iterable, Iterator

import pytest

FILE = pathlib.Path(__file__).with_suffix(".txt")
SECONDS = 1.0  # of a file
SHARED = 0.5
LEAST = 0.02  # what costs less is not written, and counts as half as much


def busy() -> float:
  """Processor seconds of this process and of those that it waited for."""
  return sum(
    usage.ru_utime + usage.ru_stime
    for usage in map(
      resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    )
  )


def name_of(item: pytest.Item) -> str:
  """Its function, without the case."""
  return item.nodeid.partition("[")[0]


def read() -> dict[str, float]:
  """Name -> seconds."""
  lines = (line.split() for line in FILE.read_text().splitlines())
  return {name: float(seconds) for seconds, name in lines}


def choose(
  items: Iterable[pytest.Item], cost: dict[str, float]
) -> Iterator[pytest.Item]:
  """The quick ones."""
  files = collections.defaultdict(list)
  for item in items:
    fixtures = [cost.get(f"fixture:{f}", 0.0) for f in item.fixturenames]
    if max(fixtures, default=0.0) <= SHARED:
      own = cost.get(name_of(item), LEAST / 2)
      files[item.path].append((own + sum(fixtures), item))
  for members in files.values():
    spent = 0.0
    for seconds, item in sorted(members, key=lambda member: member[0]):
      spent += seconds
      if spent > SECONDS:
        break
      yield item


class Costs:
  """The plugin. Reports carry what was measured from worker processes."""

  def __init__(self, write: bool):
    self._write = write
    self._measured: dict[str, list[float]] = collections.defaultdict(list)

  @pytest.hookimpl(tryfirst=True)
  def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
    cost = read()
    for item in choose(items, cost):
      item.add_marker("quick")
    of_file: dict[pathlib.Path, float] = collections.defaultdict(float)
    for item in items:
      of_file[item.path] += cost.get(name_of(item), LEAST / 2)
    items.sort(key=lambda item: -of_file[item.path])

  @pytest.hookimpl(wrapper=True)
  def pytest_fixture_setup(self, fixturedef, request):
    began = busy()
    try:
      return (yield)
    finally:
      _note(request._pyfuncitem, f"fixture:{fixturedef.argname}", began)

  @pytest.hookimpl(wrapper=True)
  def pytest_pyfunc_call(self, pyfuncitem):
    began = busy()
    try:
      return (yield)
    finally:
      _note(pyfuncitem, name_of(pyfuncitem), began)

  def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
    if report.when == "teardown":
      for name, seconds in report.user_properties:
        self._measured[name].append(seconds)

  def pytest_sessionfinish(self, session: pytest.Session) -> None:
    if not self._write or hasattr(session.config, "workerinput"):
      return
    # Of a fixture the dearest: others found what it had made.
    mean = {
      name: max(each) if name.startswith("fixture:") else sum(each) / len(each)
      for name, each in self._measured.items()
    }
    lines = (
      f"{seconds:.2f} {name}\n"
      for name, seconds in sorted(mean.items())
      if seconds >= LEAST
    )
    FILE.write_text("".join(lines))


def _note(item: pytest.Item, name: str, began: float) -> None:
  item.user_properties.append((name, busy() - began))
