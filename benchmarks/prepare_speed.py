"""Measures the cost of preparation per sentence pair, by stage and in total.

  python -m benchmarks.prepare_speed --source train.en.gz --target train.de.gz \\
    --trees train.en.conllu.gz [--lines 10000]

Costs are processor time of all processes. Stages are measured on chunks of pairs.
`build` is the cost of one more pair in `preprocess.build`: the difference of
preparing all lines and half of them. `vocabulary` is the same for training the
vocabulary, which is part of `build`.
"""

from __future__ import annotations

import gzip
import itertools
import pathlib
import tempfile
from collections.abc import Callable, Sequence
from typing import Any

from absl import flags

from benchmarks.figures import Figures, Timer, show
from jaxsyn import cli
from jaxsyn.configs import base
from jaxsyn.data import schema
from jaxsyn.data.sentence import conllu, example
from jaxsyn.data.sentence.text import lines_of
from jaxsyn.data.sentence.vocabulary import Subwords, train
from jaxsyn.data.store import records, tfrecord
from jaxsyn.preprocess import build, report
from jaxsyn.storage import files

CHUNK = 128  # pairs
GZIP_LEVEL = 6  # as in preparation


class Costs:
  """Processor seconds by stage."""

  def __init__(self) -> None:
    self.seconds: dict[str, float] = {}

  def measure(
    self, stage: str, function: Callable[..., Any], *arguments: Any
  ) -> Any:
    """Calls a function and adds its cost to a stage."""
    with Timer() as timer:
      result = function(*arguments)
    self.seconds[stage] = self.seconds.get(stage, 0.0) + timer.cpu
    return result


def run(source: str, target: str, trees: str, lines: int) -> Figures:
  """Measures the first lines of two parallel files.

  Args:
    source, target: Text files.
    trees: CoNLL-U file of the source.
    lines: Number of pairs.
  """
  costs = Costs()
  sources, targets = (
    costs.measure("read_text", list, itertools.islice(lines_of(path), lines))
    for path in (source, target)
  )
  blocks = itertools.islice(conllu.read(trees), 2 * len(sources))
  parses = [*conllu.match(blocks, sources, source, last=False)]
  with tempfile.TemporaryDirectory() as name:
    folder = pathlib.Path(name)
    _measure_stages(folder, sources, targets, parses, costs)
    figures = {
      stage: (1000 * seconds / len(sources), "cpu-ms/pair")
      for stage, seconds in costs.seconds.items()
    }
    return figures | _measure_build(folder, sources, targets, _text(parses))


def _chunks(items: Sequence[Any]) -> list[Sequence[Any]]:
  return [items[i : i + CHUNK] for i in range(0, len(items), CHUNK)]


def _text(parses: Sequence[conllu.Parse]) -> str:
  return "".join(conllu.to_text(one, str(i)) for i, one in enumerate(parses))


def _measure_stages(
  folder: pathlib.Path,
  sources: list[str],
  targets: list[str],
  parses: Sequence[conllu.Parse],
  costs: Costs,
) -> None:
  vocabulary = train(sources + targets, folder / "vocabulary.model", Subwords())
  labels = itertools.chain.from_iterable(one.relation_W for one in parses)
  known: dict[str, Any] = {
    "relations": {"source": schema.relation_ids(labels)},
    "vocabularies": (vocabulary, vocabulary),
  }

  def read(text: str, lines: Sequence[str]) -> list[conllu.Parse]:
    blocks = conllu.blocks_of_text(text, "trees")
    return [*conllu.match(blocks, lines, "text")]

  def encode(trees: list[conllu.Parse], others: list[str]) -> Any:
    lines = range(1, len(others) + 1)
    return example.encode_all(trees, others, lines=lines, **known)

  def pack(*texts: str) -> None:
    for text in texts:
      gzip.compress(text.encode(), GZIP_LEVEL)

  chunks = zip(_chunks(sources), _chunks(targets), _chunks(parses), strict=True)
  with files.publish(folder / "records") as file:
    for lines, others, trees in chunks:
      trees = costs.measure("read_trees", read, _text(trees), lines)
      rows = costs.measure("encode", encode, trees, others)
      costs.measure("count", report.count, rows, ["source"])
      texts = dict(zip(schema.TEXTS, (lines, others)))
      payloads = costs.measure("serialise", records.encode, rows, texts)
      frames = map(tfrecord.frame, payloads)
      costs.measure("write_records", file.writelines, frames)
      text = costs.measure("write_trees", _text, trees)
      costs.measure("gzip", pack, "\n".join(lines), "\n".join(others), text)


def _measure_build(
  folder: pathlib.Path, sources: list[str], targets: list[str], trees: str
) -> dict[str, tuple[float, str]]:
  """Measures the cost of one more pair in a complete preparation."""
  blocks = trees.split("\n\n")
  costs = Costs()
  half = len(sources) // 2
  for size in (100, half, len(sources)):  # the first one loads modules
    part = folder / str(size)
    part.mkdir()
    for name, lines in (("source", sources), ("target", targets)):
      (part / name).write_text("".join(f"{line}\n" for line in lines[:size]))
    (part / "trees").write_text("\n\n".join(blocks[:size]) + "\n\n")
    both = sources[:size] + targets[:size]
    vocabulary = part / "model"
    costs.measure(f"vocabulary {size}", train, both, vocabulary, Subwords())
    costs.measure(f"build {size}", build.run, _config(part))
  figures = {}
  for name in ("vocabulary", "build"):
    all_lines = costs.seconds[f"{name} {len(sources)}"]
    half_of_them = costs.seconds[f"{name} {half}"]
    seconds = (all_lines - half_of_them) / (len(sources) - half)
    figures[name] = 1000 * seconds, "cpu-ms/pair"
  return figures


def _config(folder: pathlib.Path) -> Any:
  """Returns a config that prepares the files of a folder in one process."""
  config = base.get_config()
  config.data.directory = str(folder / "prepared")
  config.data.validation, config.data.test = "train", ()
  config.prepare.raw_dir = str(folder)
  config.prepare.workers = 1
  config.prepare.splits.train = ("source", "target")
  config.prepare.parse.source_conllu = {"train": "trees"}
  return config


def _main(values: flags.FlagValues) -> None:
  show(run(values.source, values.target, values.trees, values.lines))


if __name__ == "__main__":
  for name, meaning in {
    "source": "Text, plain or .gz.",
    "target": "Translation of the text, plain or .gz.",
    "trees": "CoNLL-U of the source, plain or .gz.",
  }.items():
    flags.DEFINE_string(name, None, meaning, required=True)
  flags.DEFINE_integer("lines", 2000, "Number of sentence pairs.")
  cli.main(_main)
