"""What preparing costs a pair, stage by stage and in all.

  python -m benchmarks.prepare_speed --source train.en.gz --target train.de.gz \\
    --trees train.en.conllu.gz [--lines 10000]
  python -m benchmarks.prepare_speed --source train.en.gz --target train.de.gz \\
    --parser english.udpipe [--lines 1000]

One line a figure: name=value unit. Costs are processor time, all processes
together. A stage has them of its own functions on chunks of pairs; `build` those
of `preprocess.build`, and what a pair more costs it: with twice the lines, less
those with half, by the lines between; `vocabulary` is the same of training the
vocabulary, which is in `build` too. With a parser it is compared with UDPipe's
own pipeline, the two in turns, a chunk each.
"""

from __future__ import annotations

import gzip
import itertools
import pathlib
import statistics
import tempfile
from collections.abc import Callable, Sequence
from typing import Any

from absl import flags

from benchmarks.figures import Figures, processor_seconds, show
from jaxsyn import cli
from jaxsyn.configs import base
from jaxsyn.data import schema
from jaxsyn.data.sentence import conllu, example
from jaxsyn.data.sentence.parsers.udpipe import UDPipe, load_udpipe
from jaxsyn.data.sentence.text import lines_of
from jaxsyn.data.sentence.vocabulary import Subwords, train
from jaxsyn.data.store import records
from jaxsyn.data.store.rows import Rows
from jaxsyn.errors import InputError
from jaxsyn.preprocess import build, report
from jaxsyn.storage import files

CHUNK = 128  # pairs
LEVEL = 6  # of gzip, as preparing packs text


class Costs:
  """Processor seconds of each turn, by name of a stage."""

  def __init__(self) -> None:
    self.turns: dict[str, list[float]] = {}

  def of(self, name: str, work: Callable[..., Any], *given: Any) -> Any:
    """What a stage makes of what it is given; its costs are added."""
    started = processor_seconds()
    made = work(*given)
    spent = processor_seconds() - started
    self.turns.setdefault(name, []).append(spent)
    return made

  def figures(self, pairs: int) -> Figures:
    return {
      name: (1000 * sum(turns) / pairs, "cpu-ms/pair")
      for name, turns in self.turns.items()
    }


def run(
  source: str, target: str, *, trees: str = "", parser: str = "", lines: int
) -> Figures:
  """Measures on the first lines of two parallel files.

  Args:
    source, target: the files.
    trees: CoNLL-U of the source; "": the parser makes it.
    parser: a UDPipe model of the source language; "" with trees.
    lines: how many pairs.

  Returns:
    name -> (value, unit).
  """
  if bool(trees) == bool(parser):
    raise InputError("give either --trees or --parser.")
  costs = Costs()
  sources, targets = (
    costs.of("read_text", list, itertools.islice(lines_of(path), lines))
    for path in (source, target)
  )
  if parser:
    told = _parsed(parser, sources, costs)
  else:
    blocks = itertools.islice(conllu.read(trees), 2 * len(sources))
    parses = conllu.match(blocks, sources, source, last=False)
    told = [_told(own) for own in _chunks([*parses])]
  with tempfile.TemporaryDirectory() as name:
    folder = pathlib.Path(name)
    _stages(folder, sources, targets, told=told, costs=costs)
    figures = dict(costs.figures(len(sources)))
    if trees:
      figures |= _whole(folder, sources, targets, told="".join(told))
  if parser:
    shares = [
      bare / ours
      for bare, ours in zip(costs.turns["parse_bare"], costs.turns["parse"])
    ]
    figures["parse_speed"] = statistics.median(shares), "of bare UDPipe"
  return figures


def _chunks(items: Sequence[Any]) -> list[Sequence[Any]]:
  return [items[i : i + CHUNK] for i in range(0, len(items), CHUNK)]


def _told(parses: Sequence[conllu.Parse]) -> str:
  """The CoNLL-U of parses."""
  return "".join(conllu.to_text(one, str(i)) for i, one in enumerate(parses))


def _parsed(path: str, sources: list[str], costs: Costs) -> list[str]:
  """The trees of each chunk, as our parser and as bare UDPipe makes them."""
  ours, udpipe = UDPipe(path), load_udpipe()
  model = udpipe.Model.load(path)
  bare = udpipe.Pipeline(
    *(model, "tokenizer=presegmented"),
    *(udpipe.Pipeline.DEFAULT, udpipe.Pipeline.DEFAULT, "conllu"),
  )
  error = udpipe.ProcessingError()
  told = []
  for turn, lines in enumerate(_chunks(sources)):
    text = "\n".join(lines) + "\n"
    for bare_now in (turn % 2 == 0, turn % 2 == 1):  # neither always first
      if bare_now:
        costs.of("parse_bare", bare.process, text, error)
      else:
        told.append(costs.of("parse", _parse, ours, lines))
  return told


def _parse(parser: UDPipe, lines: Sequence[str]) -> str:
  return "".join(parser.conllu_all(lines, ["1"] * len(lines)))


def _stages(
  folder: pathlib.Path,
  sources: list[str],
  targets: list[str],
  *,
  told: list[str],
  costs: Costs,
) -> None:
  """What becomes of chunks, from the text of their trees to files."""
  vocabulary = train(sources + targets, folder / "vocabulary.model", Subwords())
  chunks = [
    (lines, costs.of("read_trees", _read, text, lines))
    for text, lines in zip(told, _chunks(sources), strict=True)
  ]
  labels = (
    label
    for _, parses in chunks
    for parse in parses
    for label in parse.relation_W
  )
  known: dict[str, Any] = {
    "relations": {"source": schema.relation_ids(labels)},
    "vocabularies": (vocabulary, vocabulary),
  }

  def encode(parses: list[conllu.Parse], others: list[str]) -> Rows:
    lines = range(1, len(others) + 1)
    return example.encode_all(parses, others, lines=lines, **known)

  with files.publish(folder / "records") as file:
    for (lines, parses), others in zip(chunks, _chunks(targets), strict=True):
      rows = costs.of("encode", encode, parses, others)
      costs.of("count", report.count, rows, ["source"])
      texts = dict(zip(schema.TEXTS, (lines, others)))
      payloads = costs.of("serialise", records.encode, rows, texts)
      frames = map(records.frame, payloads)
      costs.of("write_records", file.writelines, frames)
      trees = costs.of("write_trees", _told, parses)
      costs.of("gzip", _pack, ["\n".join(lines), "\n".join(others), trees])


def _pack(texts: list[str]) -> None:
  for text in texts:
    gzip.compress(text.encode(), LEVEL)


def _read(text: str, lines: Sequence[str]) -> list[conllu.Parse]:
  return [*conllu.match(conllu.blocks_of_text(text, "trees"), lines, "text")]


def _whole(
  folder: pathlib.Path, sources: list[str], targets: list[str], *, told: str
) -> Figures:
  """What preparing costs for a pair more."""
  blocks = told.split("\n\n")
  costs = Costs()
  sizes = (
    100,
    len(sources) // 2,
    len(sources),
  )  # the first loads what it needs
  for size in sizes:
    place = folder / str(size)
    place.mkdir()
    for name, lines in (("source", sources), ("target", targets)):
      (place / name).write_text("".join(f"{s}\n" for s in lines[:size]))
    (place / "trees").write_text("\n\n".join(blocks[:size]) + "\n\n")
    both = sources[:size] + targets[:size]
    costs.of(f"vocabulary {size}", train, both, place / "model", Subwords())
    costs.of(f"build {size}", build.run, _config(place))
  _, half, most = sizes

  def more(name: str) -> float:
    (before,), (after,) = (costs.turns[f"{name} {n}"] for n in (half, most))
    return 1000 * (after - before) / (most - half)

  return {name: (more(name), "cpu-ms/pair") for name in ("vocabulary", "build")}


def _config(folder: pathlib.Path) -> Any:
  """To prepare what a folder has, by one process."""
  config = base.get_config()
  config.data.directory = str(folder / "prepared")
  config.data.validation, config.data.test = "train", ()
  config.prepare.raw_dir = str(folder)
  config.prepare.workers = 1
  config.prepare.splits.train = ("source", "target")
  config.prepare.parse.source_conllu = {"train": "trees"}
  return config


def _main(values: flags.FlagValues) -> None:
  show(
    run(
      *(values.source, values.target),
      trees=values.trees,
      parser=values.parser,
      lines=values.lines,
    )
  )


if __name__ == "__main__":
  flags.DEFINE_string("source", None, "Text, plain or .gz.", required=True)
  flags.DEFINE_string("target", None, "Its translation.", required=True)
  flags.DEFINE_string("trees", "", "CoNLL-U of the source, plain or .gz.")
  flags.DEFINE_string("parser", "", "Instead, a UDPipe model.")
  flags.DEFINE_integer("lines", 2000, "Pairs to measure on.")
  cli.main(_main)
