"""Columns, TFRecords, ArrayRecord and Grain as what training reads.

  pip install grain
  python -m benchmarks.stores --examples 200000

The same random pairs in each; ids, words and parent middles are read in random
order and padded. Prints, one line a figure (name=value unit), bytes an example,
seconds to the first batch from opening, and examples per second of processor time
after it. TFRecords and ArrayRecords hold the same tf.train.Examples, which are
decoded some hundreds at a time, as `jaxsyn.data.store.decoding` does; Grain reads
the ArrayRecords by its own threads, decodes one by one, and batches.
"""

from __future__ import annotations

import itertools
import os
import pathlib
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from absl import flags

from benchmarks import made_columns
from benchmarks.figures import Figures, processor_seconds, show
from benchmarks.read_speed import READS, forget, opened
from jaxsyn import cli
from jaxsyn.data import schema
from jaxsyn.data.loader.batch_plan import Position
from jaxsyn.data.loader.columns import Batch, Columns
from jaxsyn.data.loader.split import HostShard
from jaxsyn.data.store import tfrecord
from jaxsyn.data.store.decoding import decoder
from jaxsyn.data.store.encoding import serializer
from jaxsyn.data.store.index import Index
from jaxsyn.data.store.prepared import PreparedSplit
from jaxsyn.data.store.rows import Rows
from jaxsyn.errors import InputError

FEATURES = schema.features(made_columns.SIDES)
NAMES = ("source_id", "target_id", "source_word", "source_parent_mid")
ROWS, LONGEST = 128, 34  # of a batch of Grain's
MEASURED = 100_000  # examples at most
SECONDS = 10.0

Batches = Callable[[], Iterator[Batch]]


def columns(folder: pathlib.Path) -> Iterator[Batch]:
  """As training reads."""
  split = opened(str(folder), list(READS), HostShard())
  return (dealt.batch for dealt in split.batches(Position()))


def _decoded(
  folder: pathlib.Path, payloads: Callable[[Sequence[int]], list[bytes]]
) -> Iterator[Batch]:
  """The same batches, of records that are read by number."""
  plan = opened(str(folder), list(READS), HostShard()).plan
  decode = decoder(FEATURES)
  for planned in plan.epoch(0):
    rows = decode(payloads(planned.ids.tolist()))
    numbers = np.arange(len(rows))
    shape = planned.shape
    yield Columns(rows.flat, rows.start).batch(
      NAMES, numbers, shape, rows=shape.rows
    )


def tfrecords(folder: pathlib.Path) -> Iterator[Batch]:
  """By offsets of the index, from one open file."""
  index = Index.load(folder / "index.arrow")
  file = os.open(folder / "pairs.tfrecord", os.O_RDONLY)

  def read(numbers: Sequence[int]) -> list[bytes]:
    found = []
    for i in numbers:
      size, begin = int(index.length[i]), int(index.offset[i])
      data = os.pread(file, size + tfrecord.FOOTER, begin + tfrecord.HEADER)
      crc = int.from_bytes(data[size:], "little")
      assert tfrecord.masked_crc(data[:size]) == crc
      found.append(data[:size])
    return found

  return _decoded(folder, read)


def array_records(folder: pathlib.Path) -> Iterator[Batch]:
  """By ArrayRecord's own reader, a batch at a time."""
  from array_record.python.array_record_module import ArrayRecordReader

  reader = ArrayRecordReader(str(folder / "pairs.array_record"))
  return _decoded(folder, reader.read)


def grain(folder: pathlib.Path) -> Iterator[Batch]:
  """A pipeline as Grain's guide has it."""
  import grain.python as library

  decode = decoder(FEATURES)

  def padded(payload: bytes) -> Batch:
    (example,) = decode([payload]).examples()
    made = {}
    for name in NAMES:
      made[name] = np.full(LONGEST, FEATURES[name].fill, FEATURES[name].dtype)
      made[name][: len(example[name])] = example[name]
    return made

  source = library.ArrayRecordDataSource(str(folder / "pairs.array_record"))
  dataset = library.MapDataset.source(source).shuffle(seed=0).map(padded)
  return iter(dataset.to_iter_dataset().batch(ROWS))


def write_records(folder: pathlib.Path) -> None:
  """The pairs of a prepared folder as TFRecords and as ArrayRecords."""
  from array_record.python.array_record_module import ArrayRecordWriter

  serialize, sizes = serializer(FEATURES), list[int]()
  texts = {name: [""] for name in schema.TEXTS}
  arrays = ArrayRecordWriter(str(folder / "pairs.array_record"), "group_size:1")
  with tfrecord.writer(folder / "pairs.tfrecord") as writer:
    for example in PreparedSplit(folder, "train"):
      (payload,) = serialize(Rows.of([example], FEATURES), texts)
      writer.write(payload)
      arrays.write(payload)
      sizes.append(len(payload))
  arrays.close()
  Index.of([sizes], "").save(folder / "index.arrow")


def measure(folder: pathlib.Path, store: Callable[..., Any]) -> Figures:
  """Of the first batch, and of those after it."""
  began = time.perf_counter()
  batches = store(folder)
  next(batches)
  figures = {"first_batch": (time.perf_counter() - began, "s")}
  began, busy, count = time.perf_counter(), processor_seconds(), 0
  for batch in itertools.islice(batches, 10_000):
    count += len(next(iter(batch.values())))
    if count > MEASURED or time.perf_counter() - began > SECONDS:
      break
  processor = processor_seconds() - busy
  figures["read_cpu"] = count / processor, "examples/cpu-s"
  return figures


STORES = {
  "columns": (columns, "columns/*.arrow"),
  "tfrecord": (tfrecords, "pairs.tfrecord"),
  "array_record": (array_records, "pairs.array_record"),
  "grain": (grain, "pairs.array_record"),
}


def _main(values: flags.FlagValues) -> None:
  with tempfile.TemporaryDirectory() as name:
    folder = pathlib.Path(name, "made")
    made_columns.make(folder, values.examples)
    try:
      write_records(folder)
    except ImportError as error:
      raise InputError(f"{error}: pip install grain array_record.") from None
    for store, (read, pattern) in STORES.items():
      size = sum(path.stat().st_size for path in folder.glob(pattern))
      forget(folder)
      figures = {"bytes": (size / values.examples, "bytes/example")}
      figures |= measure(folder, read)
      show({f"{store}.{k}": figure for k, figure in figures.items()})


if __name__ == "__main__":
  flags.DEFINE_integer("examples", 200_000, "Pairs in each store.", 1000)
  cli.main(_main)
