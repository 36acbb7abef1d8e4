"""The command: see `benchmarks.hosts`."""

from __future__ import annotations

import sys
import tempfile

from absl import flags

import benchmarks.hosts
from benchmarks.figures import without_flags
from benchmarks.hosts import endings, layouts
from benchmarks.hosts.processes import DEVICES
from jaxsyn import cli
from jaxsyn.data.store.dataset import Dataset
from jaxsyn.storage import files

__doc__ = benchmarks.hosts.__doc__  # what --help shows

TABLES = ("layouts", "moves", "endings")


def _main(values: flags.FlagValues) -> None:
  own = ("processes", "devices", "tables", "folder")
  words = without_flags(sys.argv[1:], own)
  data = values.config.data
  source = Dataset(data.directory).text(data.validation, "source")
  counts = [int(count) for count in values.processes]
  with tempfile.TemporaryDirectory() as made:
    folder = files.path_of(values.folder or made)
    tables = {
      "layouts": lambda: layouts.compare_layouts(
        words, folder, source[:20], counts, values.devices
      ),
      "moves": lambda: layouts.compare_moves(words, folder, values.devices),
      "endings": lambda: endings.compare_endings(words, folder),
    }
    for name in values.tables:
      for row in tables[name]():
        print(row, flush=True)
      print()


if __name__ == "__main__":
  cli.config_flag()
  flags.DEFINE_list(
    "processes", ["2", "4"], "Numbers of processes compared with one."
  )
  flags.DEFINE_integer("devices", DEVICES, "Devices of all processes together.")
  flags.DEFINE_multi_enum(
    "tables", TABLES, TABLES, "Which tables are made; may be repeated."
  )
  flags.DEFINE_string(
    "folder", "", "Keeps the runs and what they said; local or on a store."
  )
  cli.main(_main)
