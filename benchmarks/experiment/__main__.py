"""Trains the runs of docs/experiment.md and collects their results.

  python -m benchmarks.experiment --workdir DIR --raw_dir DIR [--blocks E0,E1a]
  python -m benchmarks.experiment --workdir DIR --status
  python -m benchmarks.experiment --workdir DIR --report E1a

It prepares the data of a block, trains the missing runs, one on each core at the
lowest priority, and copies the result file of each finished run to --results/BLOCK.
It can be stopped at any time, and the same command resumes it. Options and systems
that are selected on validation data (the recipe, T, L) follow from result files.

--status prints, for each block, the finished runs, their minutes, the update from
which validation is flat, and standard deviations between seeds. It prints no means,
so that an interim status does not show the order of systems. --report writes the report of a
block from the result files, with the hypotheses of the design as family of tests.
"""

from __future__ import annotations

import pathlib

from absl import flags

from benchmarks.experiment.blocks import BLOCKS
from benchmarks.experiment.reports import report, status
from benchmarks.experiment.runs import run
from benchmarks.experiment.systems import Experiment
from jaxsyn import cli
from jaxsyn.errors import InputError, did_you_mean
from jaxsyn.options import Range
from jaxsyn.options.flags import list_flag, number_flag


def _main(values: flags.FlagValues) -> None:
  if not values.workdir:
    raise InputError("--workdir is missing: name a folder for data and runs.")
  experiment = Experiment(
    pathlib.Path(values.workdir),
    pathlib.Path(values.results),
    pathlib.Path(values.raw_dir) if values.raw_dir else None,
    values.nice,
  )
  if values.status:
    print(status(experiment))
    return
  for name in [*values.blocks, *filter(None, [values.report])]:
    if name not in BLOCKS:
      raise InputError(f"no block {name!r}. {did_you_mean(name, BLOCKS)}")
  if values.report:
    print(f"wrote {report(values.report, experiment)}/report.html")
    return
  errors = []
  for name in values.blocks:
    print(f"block {name}", flush=True)
    try:
      if signal := run(name, experiment):
        print(f"stopped ({signal}); the same command continues.")
        return
    except InputError as error:  # other blocks may not need this one
      errors.append(f"{name}: {error}")
      print(errors[-1], flush=True)
  print(status(experiment))
  if errors:
    raise InputError(" ".join(errors))


if __name__ == "__main__":
  flags.DEFINE_string("workdir", None, "Folder for prepared data and runs.")
  flags.DEFINE_string("results", "results", "Folder for the result files.")
  flags.DEFINE_string(
    "raw_dir", "", "Folder with multi30k/, mafand/ and udpipe/."
  )
  list_flag("blocks", list(BLOCKS), "Blocks to run, in this order.")
  number_flag(
    "nice",
    Experiment.nice,
    Range(0, 19),
    "Niceness of the runs; 19 gives way to all other processes.",
  )
  flags.DEFINE_string("report", "", "Block to write the report of.")
  flags.DEFINE_bool("status", False, "Print what is done, and run nothing.")
  cli.main(_main)
