"""Measures how fast training data is read, without TensorFlow and JAX.

  python -m benchmarks.read_speed --data data/multi30k_en_de
  python -m benchmarks.read_speed --data data/multi30k_en_de --draw source,target
  python -m benchmarks.read_speed --data data/multi30k_en_de --tree_rate 0.1
  python -m benchmarks.read_speed --synthetic 1000000
  python -m benchmarks.read_speed --synthetic 300000 --memory_gib 0.02

Prints the time and memory until the first batch when no file is in the cache of
the operating system ("cold") and when all are ("warm"), the speed after it, the
time to resume in the middle of an epoch, and the share of padding. "/cpu-s" is per
second of processor time, which is the figure to compare on a busy machine. With a small
--memory_gib, data is read in shuffling windows instead of from memory.
"""

from __future__ import annotations

import itertools
import os
import pathlib
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable

from absl import flags

from benchmarks import synthetic
from benchmarks.figures import Figures, Timer, peak_mib, show
from jaxsyn import cli
from jaxsyn.data.loader.batch_sampler import Position
from jaxsyn.data.loader.loader import DataLoader, HostShard, open_loader
from jaxsyn.data.options import Batches, Data
from jaxsyn.data.store.dataset import Dataset
from jaxsyn.errors import InputError
from jaxsyn.options import ConfigPath, config_dict, from_config

WINDOWS = 8  # maximum number of shuffling windows to read


def open_training_data(data: str, values: flags.FlagValues) -> DataLoader:
  """Opens a loader of the training split as a training run does."""
  # The complete config would load JAX.
  config = config_dict(Data)
  config.sampling.sides = tuple(values.draw)
  if values.tree_rate >= 0:
    config.tree, config.sampled.rate = "sampled", values.tree_rate
  return open_loader(
    Dataset(data).split("train"),
    values.reads,
    data=from_config(Data, config.to_dict(), ConfigPath("config", "data")),
    batch=Batches(memory_gib=values.memory_gib),
    seed=0,
    shard=HostShard(),
  )


def run(values: flags.FlagValues) -> Figures:
  """Measures reading over complete shuffle windows, for about --seconds."""
  figures: dict[str, tuple[float, str]] = {}
  with Timer() as first:
    loader = open_training_data(values.data, values)
    batches = loader.batches(Position())
    next(batches)
  figures["first_batch"] = first.wall, "s"
  figures["first_batch_memory"] = peak_mib(), "MiB"
  count, read = 0, 1
  end = time.perf_counter() + values.seconds
  with Timer() as reading:
    for last in _window_ends(loader):
      for _ in range(last - read):
        count += int(next(batches).batch["weight_B"].sum())
      read = last
      if time.perf_counter() > end:
        break
  figures["read"] = count / reading.wall, "examples/s"
  figures["read_cpu"] = count / reading.cpu, "examples/cpu-s"
  figures["memory"] = peak_mib(), "MiB"
  batches.close()  # type: ignore[attr-defined]  # it is a generator
  middle = Position(1, int(loader.batch_sampler.batches_per_epoch() / 2))
  with Timer() as resuming:
    next(loader.batches(middle))
  figures["goes_on_after"] = resuming.wall, "s"
  figures["examples"] = float(len(loader)), "examples"
  figures["padding"] = 100 * loader.batch_sampler.padding(), "%"
  return figures


def _window_ends(loader: DataLoader) -> Iterable[int]:
  """Returns the batch counts at which shuffling windows end.

  A window is read while the one before is used, so that only the ends of windows
  have used all that was read.
  """
  if loader.in_memory:
    return itertools.count(2)
  plan = loader.batch_sampler.walk(Position())
  windows = itertools.groupby(plan, lambda planned: planned.window)
  sizes = (sum(1 for _ in window) for _, window in windows)
  return list(itertools.accumulate(itertools.islice(sizes, WINDOWS)))


def drop_from_cache(folder: pathlib.Path) -> None:
  """Drops all files of a folder from the operating system's cache."""
  for path in folder.rglob("*"):
    if path.is_file():
      with path.open("rb") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def _main(values: flags.FlagValues) -> None:
  if values.once:
    show(run(values))
    return
  if not values.data and not values.synthetic:
    raise InputError("--data or --synthetic is needed: what to read.")
  with tempfile.TemporaryDirectory() as name:
    data = values.data
    if values.synthetic:
      data = f"{name}/synthetic"
      synthetic.write_dataset(pathlib.Path(data), values.synthetic)
    drop_from_cache(pathlib.Path(data))
    command = [sys.executable, "-m", "benchmarks.read_speed", *sys.argv[1:]]
    for state in ("cold", "warm"):
      printed = subprocess.check_output(
        [*command, f"--data={data}", "--once"], text=True
      )
      for line in printed.splitlines():
        print(f"{state}.{line}", flush=True)


if __name__ == "__main__":
  flags.DEFINE_string("data", "", "Dataset directory.")
  flags.DEFINE_integer(
    "synthetic", 0, "Number of random pairs to read, instead of --data."
  )
  flags.DEFINE_float("seconds", 10.0, "Minimum reading time in seconds.")
  flags.DEFINE_list("reads", ["source_parent_mid"], "Features of a batch.")
  flags.DEFINE_float(
    "memory_gib", 1.0, "Value of config.batch.memory_gib.", lower_bound=0
  )
  flags.DEFINE_list("draw", [], "Sides with sampled subwords: source,target.")
  flags.DEFINE_float(
    "tree_rate", -1, "Rate of sampled trees; below 0: the parser's trees."
  )
  flags.DEFINE_bool("once", False, "Measure once, in this process.")
  cli.main(_main)
