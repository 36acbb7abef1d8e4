"""Runs over several processes beside those of one, by layout."""

from __future__ import annotations

import pathlib
from collections.abc import Iterator, Mapping, Sequence

from benchmarks.hosts import runs
from benchmarks.hosts.processes import Processes, finish


def layouts(devices: int) -> Mapping[str, Mapping[str, object]]:
  """Options of the config, beside `runs.SMALL`, of each way to share devices."""
  return {
    "data": {},
    "fsdp": {"train.mesh.data": 1, "train.mesh.fsdp": devices},
    "tensor": {"train.mesh.data": devices // 2, "train.mesh.tensor": 2},
    "tensor over all": {"train.mesh.data": 1, "train.mesh.tensor": devices},
    "pmap": {"train.parallelism": "pmap"},
  }


def compare_layouts(
  words: Sequence[str],
  folder: pathlib.Path,
  lines: Sequence[str],
  counts: Sequence[int],
  devices: int,
) -> Iterator[str]:
  """Rows of the first table.

  Args:
    words: of the command, as for `ProcessRunner`.
    folder: of the runs.
    lines: to translate.
    counts: of processes that are compared with one.
    devices: of all processes together.
  """
  yield "| layout | processes | scores | gradient | translations |"
  yield "|---|---|---|---|---|"
  for name, layout in layouts(devices).items():
    one = folder / f"{name} 1"
    options = runs.SMALL | dict(layout)
    finish(Processes(words, one, options, devices=devices))
    expected = runs.translations(one, lines)
    for count in counts:
      several = folder / f"{name} {count}"
      finish(
        Processes(words, several, options, processes=count, devices=devices)
      )
      same = runs.translations(several, lines) == expected
      apart = runs.difference(one, several)
      yield (
        f"| {name} | {count} | {apart.scores:.1e} | {apart.gradient:.1e} | "
        f"{'equal' if same else 'DIFFER'} |"
      )


# Layout and number of processes: of the first half, of the second. The dropout
# of pmap is its own, so that what was under it differs from the fifth digit on.
MOVES = (
  (("data", 2), ("data", 1)),
  (("data", 1), ("data", 4)),
  (("fsdp", 2), ("data", 2)),
  (("data", 4), ("fsdp", 1)),
  (("tensor", 2), ("fsdp", 4)),
  (("pmap", 2), ("data", 1)),
)


def compare_moves(
  words: Sequence[str], folder: pathlib.Path, devices: int
) -> Iterator[str]:
  """Rows of the second table; arguments as of `compare_layouts`."""
  yield "| first half | second half | scores | gradient |"
  yield "|---|---|---|---|"
  stayed = folder / "stayed"
  finish(Processes(words, stayed, runs.SMALL, devices=devices))
  half = runs.HALF
  for first, second in MOVES:
    workdir = folder / f"{first} {second}"
    for (name, count), more in ((first, half), (second, {})):
      options = runs.SMALL | dict(layouts(devices)[name]) | more
      finish(
        Processes(words, workdir, options, processes=count, devices=devices)
      )
    apart = runs.difference(stayed, workdir, after=half["train.steps"])
    yield (
      f"| {first[0]}, {first[1]} | {second[0]}, {second[1]} | "
      f"{apart.scores:.1e} | {apart.gradient:.1e} |"
    )
