"""How fast text is parsed and written.

  python -m benchmarks.prepare_speed --source train.en.gz --target train.de.gz \\
    --parser english.udpipe [--lines 2000] [--workers 0]

One line a figure: name=value unit. "/cpu-s" is per second of processor time,
all processes together: it is the figure to compare on a busy machine.
"""

from __future__ import annotations

import pathlib
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager

from absl import flags

from benchmarks.figures import processor_seconds, show
from jaxsyn import cli
from jaxsyn.data import schema
from jaxsyn.data.options import Subwords
from jaxsyn.data.sentence.parser import UDPipe
from jaxsyn.data.sentence.vocabulary import train
from jaxsyn.data.store import manifests, tfds_builder
from preprocess import parse, raw, records, report
from preprocess.split import RawSplit


def run(
  source: str, target: str, parser: str, *, lines: int, workers: int
) -> dict[str, tuple[float, str]]:
  """Measures on the first lines of two parallel files.

  Args:
    source, target: the files.
    parser: a UDPipe model of the source language.
    lines: how many pairs.
    workers: parser processes; 0 is one a core.

  Returns:
    name -> (value, unit).
  """
  pairs = raw.read_pairs(pathlib.Path(source), pathlib.Path(target))
  split = RawSplit("train", pairs, list(range(min(lines, len(pairs)))))
  texts, count = split.lines("source"), len(split.kept)
  figures = {}

  @contextmanager
  def measured(name: str, what: str) -> Iterator[None]:
    wall, processor = time.perf_counter(), processor_seconds()
    yield
    wall, processor = (
      time.perf_counter() - wall,
      processor_seconds() - processor,
    )
    figures[name] = count / wall, f"{what}/s"
    figures[f"{name}_cpu"] = count / processor, f"{what}/cpu-s"

  with tempfile.TemporaryDirectory() as name:
    folder = pathlib.Path(name)
    with measured("parse_speed", "sentences"):
      model = UDPipe(parser)
      files = parse.parse(
        texts, model, folder / "parse", workers=workers, what="parsing"
      )
    path = split.conllu["source"] = folder / "train.conllu.gz"
    relations = parse.join(split, "source", path, files)
    vocabulary = train(
      texts + split.lines("target"),
      folder / "vocabulary.model",
      Subwords(size=8000),
    )
    manifest = {"relations": {"source": relations}}
    known = manifests.encoding(manifest)
    known["vocabularies"] = (vocabulary, vocabulary)
    with measured("write_speed", "examples"):
      counts = report.Counts(["source"])
      examples = records.examples(split, known, counts)
      features = schema.tfds_features(["source"])
      facts = tfds_builder.write(
        folder,
        name="speed",
        version="1.0.0",
        features=features,
        splits={"train": (count, examples)},
      )
    size = sum(shard["bytes"] for shard in facts["train"]["shards"])
    figures["record_size"] = size / count, "bytes/example"
  return figures


def _main(values: flags.FlagValues) -> None:
  figures = run(
    *(values.source, values.target, values.parser),
    lines=values.lines,
    workers=values.workers,
  )
  show(figures)


if __name__ == "__main__":
  flags.DEFINE_string("source", None, "Text, plain or .gz.", required=True)
  flags.DEFINE_string("target", None, "Its translation.", required=True)
  flags.DEFINE_string("parser", None, "A UDPipe model.", required=True)
  flags.DEFINE_integer("lines", 2000, "Pairs to measure on.")
  flags.DEFINE_integer("workers", 0, "Parser processes; 0: one a core.")
  cli.main(_main)
