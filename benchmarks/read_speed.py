"""How fast training data is read: no TensorFlow, no JAX.

  python -m benchmarks.read_speed --data data/multi30k_en_de
  python -m benchmarks.read_speed --synthetic 1000000

Prints, one line a figure (name=value unit): seconds and memory to the first
batch when the features have to be decoded (cold) and when they are cached (warm),
and examples per second of processor time in the steady state.
"""

from __future__ import annotations

import pathlib
import shutil
import subprocess
import sys
import tempfile
import time

import numpy as np
from absl import flags

from benchmarks.figures import peak_mib, processor_seconds, show
from jaxsyn import cli, files
from jaxsyn.data import schema
from jaxsyn.data.loader.batch_plan import Position
from jaxsyn.data.loader.split import open_split
from jaxsyn.data.options import Batches, Data, Prepare
from jaxsyn.data.sentence import controls
from jaxsyn.data.sentence import tree as trees
from jaxsyn.data.store import manifests, tfds_builder
from jaxsyn.data.store.records import Records
from jaxsyn.errors import InputError
from jaxsyn.options import At, as_dict, config_dict, from_config

READS = ("source_parent_mid",)


def run(data: str, reads: tuple[str, ...], seconds: float) -> dict:
  """Reads batches for some seconds.

  Args:
    data: prepared folder.
    reads: features in a batch beyond the ids.
    seconds: how long, after the first batch.

  Returns: name -> (value, unit).
  """
  began = time.perf_counter()
  records = Records(data, "train")
  # Not the whole config, whose tables load JAX.
  plain = from_config(Data, config_dict(Data).to_dict(), At("config", "data"))
  split = open_split(records, reads, data=plain, batch=Batches(), seed=0)
  batches = split.batches(Position())
  next(batches)
  figures = {
    "first_batch": (time.perf_counter() - began, "s"),
    "first_batch_memory": (peak_mib(), "MiB"),
  }
  began, busy, count = time.perf_counter(), processor_seconds(), 0
  while time.perf_counter() - began < seconds:
    count += int(next(batches).batch["weight_B"].sum())
  processor = processor_seconds() - busy
  figures["read"] = count / (time.perf_counter() - began), "examples/s"
  figures["read_cpu"] = count / processor, "examples/cpu-s"
  figures["padding"] = 100 * split.plan.padding(), "%"
  figures["examples"] = len(records), "examples"
  return figures


def synthesise(directory: pathlib.Path, count: int) -> None:
  """Writes a prepared folder of random pairs of 4 to 30 words."""
  rng = np.random.default_rng(0)
  shapes = []  # examples are drawn from a pool: writing is not what is timed
  for seed in range(500):
    words = int(rng.integers(4, 31))
    head_W = controls.random(words, seed)
    word_S = np.r_[np.arange(words), -1].astype(np.int32)
    distance = trees.tree_distance(head_W).reshape(-1)
    shapes.append((word_S, np.asarray(head_W, np.int32), distance))

  def examples():
    for line in range(1, count + 1):
      word_S, head_W, distance = shapes[line % len(shapes)]
      target = max(2, len(word_S) + int(rng.integers(-3, 4)))
      yield {
        "line": np.int64(line),
        "source_id": np.r_[rng.integers(4, 8000, len(word_S) - 1), 3].astype(
          np.int32
        ),
        "source_word": word_S,
        "source_head": head_W,
        "source_relation": np.ones(len(head_W), np.int32),
        "source_parent_mid": trees.parent_mid(word_S, head_W),
        "source_tree_distance": distance,
        "source_parsed": np.uint8(1),
        "target_id": np.r_[rng.integers(4, 8000, target - 1), 3].astype(
          np.int32
        ),
      }

  facts = tfds_builder.write(
    directory,
    name="synthetic",
    version=tfds_builder.VERSION,
    features=schema.tfds_features(("source",), relations={"source": ["dep"]}),
    splits={"train": (count, examples())},
    shards=8,
  )
  entry = {"file": "vocabulary.model", "sha256": "0" * 64, "size": 8000}
  manifest = {
    "name": "synthetic",
    "version": tfds_builder.VERSION,
    "sides": ["source"],
    "splits": facts,
    "vocabulary": dict.fromkeys(schema.SIDES, entry),
    "relations": {"source": ["dep"]},
    "parser": {"source": None},
    "options": as_dict(Prepare()),
  }
  for name in manifests.names(manifest):  # no text, no trees, no vocabulary
    path = directory / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()
  manifest["files"] = files.sums(directory, manifests.names(manifest))
  manifests.write(directory, manifest)


def _main(values: flags.FlagValues) -> None:
  if values.synthetic:
    with tempfile.TemporaryDirectory() as name:
      synthesise(pathlib.Path(name), values.synthetic)
      _cold_and_warm(name, values)
  elif values.data:
    _cold_and_warm(values.data, values)
  else:
    raise InputError("--data or --synthetic is needed: what to read.")


def _cold_and_warm(data: str, values: flags.FlagValues) -> None:
  """Both in processes of their own, so that memory is that of one."""
  if values.once:
    show(run(data, tuple(values.reads), values.seconds))
    return
  shutil.rmtree(pathlib.Path(data) / "work" / "columns", ignore_errors=True)
  for state in ("cold", "warm"):
    command = [sys.executable, "-m", "benchmarks.read_speed", "--once"]
    command += ["--data", data, f"--seconds={values.seconds}"]
    command += [f"--reads={','.join(values.reads)}"]
    done = subprocess.run(command, check=True, text=True, capture_output=True)
    for line in done.stdout.splitlines():
      print(f"{state}.{line}", flush=True)


if __name__ == "__main__":
  flags.DEFINE_string("data", "", "Prepared folder.")
  flags.DEFINE_integer("synthetic", 0, "Read so many random pairs instead.")
  flags.DEFINE_float("seconds", 10.0, "Of reading, after the first batch.")
  flags.DEFINE_list("reads", list(READS), "Features in a batch.")
  flags.DEFINE_bool("once", False, "Read once, as the cache is.")
  cli.main(_main)
