"""How fast training data is read: no TensorFlow, no JAX.

  python -m benchmarks.read_speed --data data/multi30k_en_de
  python -m benchmarks.read_speed --data data/multi30k_en_de --draw source,target
  python -m benchmarks.read_speed --data data/multi30k_en_de --tree_rate 0.1
  python -m benchmarks.read_speed --synthetic 1000000
  python -m benchmarks.read_speed --synthetic 40000000 --hosts 8
  python -m benchmarks.read_speed --synthetic 4500000 --order

Prints, one line a figure (name=value unit): seconds and memory to the first
batch when no file is in the system's cache (cold) and when all are (warm),
examples per second of processor time after it (in whole windows), the share of
padding, and that of one window of everything, and seconds until a run goes on
from the middle of an epoch. Of several hosts each is measured, one after the
other; the figures are of the slowest. None is compared with anything: compare
two versions in turns, by processor time.

With --order: how far from uniform the order of an epoch is, beside a uniform
permutation. `place` is the correlation of places in text and epoch; `neighbours`
the mean distance in the epoch of pairs that are neighbours in the text, as a
share of that of a permutation; `together` how many pairs of a batch
have the next of the batch within 1,000 lines of them in the text.
"""

from __future__ import annotations

import itertools
import os
import pathlib
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence

import numpy as np
from absl import flags

from benchmarks import made_records
from benchmarks.figures import Figures, peak_mib, processor_seconds, show
from jaxsyn import cli
from jaxsyn.data.loader.batch_sampler import BatchSampler, Position
from jaxsyn.data.loader.loader import DataLoader, HostShard, open_loader
from jaxsyn.data.options import Batches, Data
from jaxsyn.data.store.dataset import Dataset
from jaxsyn.errors import InputError
from jaxsyn.options import ConfigPath, config_dict, from_config

READS = ("source_parent_mid",)
NEAR = 1000  # lines
WINDOWS = 8  # at most, of reading


def opened(
  data: str,
  reads: list[str],
  share: HostShard,
  *,
  draw: Sequence[str] = (),
  tree_rate: float = -1,
) -> DataLoader:
  """The training split, as a host of a run opens it; see `run`."""
  # Not the whole config, whose tables load JAX.
  config = config_dict(Data)
  config.sampling.sides = tuple(draw)
  if tree_rate >= 0:
    config.tree, config.sampled.rate = "sampled", tree_rate
  plain = from_config(Data, config.to_dict(), ConfigPath("config", "data"))
  return open_loader(
    Dataset(data).split("train"),
    reads,
    data=plain,
    batch=Batches(),
    seed=0,
    shard=share,
  )


def run(
  data: str,
  reads: list[str],
  seconds: float,
  share: HostShard,
  *,
  draw: Sequence[str] = (),
  tree_rate: float = -1,
) -> Figures:
  """Reads batches for some seconds.

  Args:
    data: prepared folder.
    reads: features in a batch beyond the ids.
    seconds: how long, after the first batch; then to the end of a window.
    share: of a host.
    draw: sides whose subwords are drawn.
    tree_rate: of sampled trees; below 0: they are the parser's.
  """
  began = time.perf_counter()
  loader = opened(data, reads, share, draw=draw, tree_rate=tree_rate)
  batches = loader.batches(Position())
  next(batches)
  figures = {"first_batch": (time.perf_counter() - began, "s")}
  figures["first_batch_memory"] = peak_mib(), "MiB"
  ends = _ends(loader)
  began, busy, read, count = time.perf_counter(), processor_seconds(), 1, 0
  for end in ends:
    while read <= end:
      count += int(next(batches).batch["weight_B"].sum())
      read += 1
    if time.perf_counter() - began > seconds:
      break
  processor = processor_seconds() - busy
  figures["read"] = count / (time.perf_counter() - began), "examples/s"
  figures["read_cpu"] = count / processor, "examples/cpu-s"
  figures["memory"] = peak_mib(), "MiB"
  batches.close()  # type: ignore[attr-defined]  # it is a generator
  middle = Position(1, int(loader.batch_sampler.batches_per_epoch() / 2))
  began = time.perf_counter()
  next(loader.batches(middle))
  figures["goes_on_after"] = time.perf_counter() - began, "s"
  return figures


def _ends(loader: DataLoader) -> Iterable[int]:
  """After how many batches as much was read as was used: with each window.

  The next one is read while one is used; to stop in the midst of them counts what
  was read for nothing.
  """
  if loader.in_memory:
    return itertools.count(1)
  walk = loader.batch_sampler.walk(Position())
  windows = itertools.groupby(walk, lambda step: step[1].window)
  sizes = (sum(1 for _ in window) for _, window in windows)
  return list(itertools.accumulate(itertools.islice(sizes, WINDOWS)))


def padding(data: str, reads: list[str]) -> Figures:
  """Of an epoch in windows, and of one that is planned whole."""
  loader = opened(data, reads, HostShard())
  figures = {"examples": (float(len(loader)), "examples")}
  figures["padding"] = 100 * loader.batch_sampler.padding(), "%"
  if not loader.in_memory:
    batch = Batches()
    whole = BatchSampler(
      loader.examples.lengths.read_by(loader.features),
      tokens=batch.tokens,
      shapes=len(loader.batch_sampler.shapes),
      seed=0,
      row_multiple=8,
      length_multiple=batch.length_multiple,
    )
    figures["padding_whole"] = 100 * whole.padding(), "%"
  return figures


def order(data: str) -> Figures:
  """How far from uniform an epoch's order is."""
  plan = opened(data, [], HostShard()).batch_sampler
  planned = plan.epoch(0)
  windows = len({one.window for one in planned})
  ids = np.concatenate([one.ids for one in planned])
  rows = np.repeat(np.arange(len(planned)), [len(one.ids) for one in planned])
  figures = {"windows": (float(windows), "windows")}
  uniform = np.random.default_rng(0).permutation(ids)
  for name, drawn in (("", ids), ("uniform.", uniform)):
    figures |= {f"{name}{k}": v for k, v in _order(drawn, rows).items()}
  return figures


def _order(id_I: np.ndarray, batch_I: np.ndarray) -> Figures:
  place = np.empty(len(id_I), np.int64)
  place[id_I] = np.arange(len(id_I))
  correlation = np.corrcoef(id_I, np.arange(len(id_I)))[0, 1]
  # The mean distance of two places of a uniform permutation is a third of all.
  apart = np.abs(np.diff(place)).mean() / (len(id_I) / 3)
  by_batch = id_I[np.lexsort((id_I, batch_I))]
  near = (np.diff(by_batch) < NEAR) & (np.diff(batch_I) == 0)
  return {
    "place": (correlation, "correlation"),
    "neighbours": (apart, "of a permutation"),
    "together": (100 * near.mean(), "% of the pairs of a batch"),
  }


def forget(folder: pathlib.Path) -> None:
  """Takes all files of a folder out of the system's cache."""
  for path in folder.rglob("*"):
    if path.is_file():
      with path.open("rb") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def _main(values: flags.FlagValues) -> None:
  if values.synthetic:
    with tempfile.TemporaryDirectory() as name:
      folder = pathlib.Path(name, "made")
      made_records.make(folder, values.synthetic)
      _measure(str(folder), values)
  elif values.data:
    _measure(values.data, values)
  else:
    raise InputError("--data or --synthetic is needed: what to read.")


def _measure(data: str, values: flags.FlagValues) -> None:
  """Each in a process of its own, so that memory is that of one."""
  if values.host >= 0:
    share = HostShard((values.host,), values.hosts)
    drawn = {"draw": values.draw, "tree_rate": values.tree_rate}
    show(run(data, values.reads, values.seconds, share, **drawn))
    return
  if values.order:
    show(order(data))
    return
  for state in ("cold", "warm"):
    worst: dict[str, tuple[float, str]] = {}
    for host in range(values.hosts):
      if state == "cold":
        forget(pathlib.Path(data))
      command = [sys.executable, "-m", "benchmarks.read_speed"]
      command += [f"--data={data}", f"--seconds={values.seconds}"]
      command += [f"--host={host}", f"--hosts={values.hosts}"]
      command += [f"--reads={','.join(values.reads)}"]
      command += [f"--draw={','.join(values.draw)}"]
      command += [f"--tree_rate={values.tree_rate}"]
      done = subprocess.run(command, check=True, text=True, capture_output=True)
      for line in done.stdout.splitlines():
        name, _, rest = line.partition("=")
        value, unit = rest.split(" ", 1)
        choose = min if name.startswith("read") else max
        old = worst.get(name, (float(value), unit))[0]
        worst[name] = choose(float(value), old), unit
    show({f"{state}.{name}": figure for name, figure in worst.items()})
  show(padding(data, values.reads))


if __name__ == "__main__":
  flags.DEFINE_string("data", "", "Prepared folder.")
  flags.DEFINE_integer("synthetic", 0, "Read so many random pairs instead.")
  flags.DEFINE_float(
    "seconds", 10.0, "Of reading, and on to the end of a window."
  )
  flags.DEFINE_list("reads", list(READS), "Features in a batch.")
  flags.DEFINE_list(
    "draw", [], "Sides whose subwords are drawn: source,target."
  )
  flags.DEFINE_float(
    "tree_rate", -1, "Of sampled trees; below 0: they are the parser's."
  )
  flags.DEFINE_integer("hosts", 1, "That share every batch.", 1)
  flags.DEFINE_bool("order", False, "How far from uniform the order is.")
  flags.DEFINE_integer("host", -1, "Of a process that this starts.")
  cli.main(_main)
