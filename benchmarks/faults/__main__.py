"""The command: see `benchmarks.faults`."""

from __future__ import annotations

import os
import pathlib
import tempfile
import time

from absl import flags

import benchmarks.faults
from benchmarks.faults import crew, flips, kills, mutations, world
from benchmarks.figures import show
from jaxsyn import cli
from jaxsyn.errors import InputError

__doc__ = benchmarks.faults.__doc__  # what --help shows
SUITES = flips.SUITES | mutations.SUITES


def run(
  folder: pathlib.Path,
  *,
  kill: int,
  flip: int,
  mutate: int,
  seed: int,
  workers: int,
) -> dict[str, crew.Tally]:
  """Breaks what was asked for; what became of it by kind.

  Args:
    folder: of the world; made there if need be.
    kill, flip, mutate: how many of each.
    seed: of all random numbers.
    workers: processes at a time.
  """
  made = world.make(folder)
  counts = {name: -(-flip // len(flips.SUITES)) for name in flips.SUITES}
  counts |= mutations.counts(mutate)
  counts = {name: count for name, count in counts.items() if count}
  tallies = crew.run(SUITES, counts, made.folder, seed=seed, workers=workers)
  if kill:
    tallies |= kills.run(made, kill, seed)
  return tallies


def _main(values: flags.FlagValues) -> None:
  began = time.monotonic()
  os.environ.setdefault("JAX_PLATFORMS", "cpu")
  with tempfile.TemporaryDirectory() as name:
    tallies = run(
      pathlib.Path(values.folder or name),
      kill=values.kills,
      flip=values.flips,
      mutate=values.mutations,
      seed=values.seed,
      workers=values.workers or os.cpu_count() or 1,
    )
  total = crew.Tally()
  for name, tally in tallies.items():
    total.add(tally)
    show(
      {
        f"{name}.{outcome}": (tally.count[outcome], "cases")
        for outcome in crew.OUTCOMES
        if tally.count[outcome] or outcome in crew.BAD
      }
    )
    for told in tally.offenders:
      print(told)
  show(
    {
      "tried": (total.tried, "cases"),
      **{name: (total.count[name], "cases") for name in crew.OUTCOMES},
      "minutes": ((time.monotonic() - began) / 60, "min"),
    }
  )
  if total.bad:
    raise InputError(f"{total.bad} faults were not met; see above.")


if __name__ == "__main__":
  flags.DEFINE_integer("kills", 100, "Signals to processes.", lower_bound=0)
  flags.DEFINE_integer("flips", 1000, "Damaged files.", lower_bound=0)
  flags.DEFINE_integer("mutations", 1_000_000, "Mutated inputs.", lower_bound=0)
  flags.DEFINE_integer("seed", 0, "Of all random numbers.")
  flags.DEFINE_integer("workers", 0, "Processes; 0: one a core.", lower_bound=0)
  flags.DEFINE_string("folder", "", "Keeps what is made for the next time.")
  cli.main(_main)
