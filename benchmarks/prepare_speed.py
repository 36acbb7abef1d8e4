"""Measures the processor time that preparation takes per sentence pair.

  python -m benchmarks.prepare_speed --source train.en.gz --target train.de.gz \\
    --trees train.en.conllu.gz [--lines 10000]

`build` is the processor time of all processes for one more pair in
`preprocess.build`: the difference of preparing all lines and half of them.
`vocabulary` is the same for training the vocabulary, which is part of `build`.
"""

from __future__ import annotations

import itertools
import pathlib
import tempfile
from collections.abc import Sequence
from typing import Any

from absl import flags

from benchmarks.figures import Figures, Timer, show
from jaxsyn import cli
from jaxsyn.configs import base
from jaxsyn.data.sentence import conllu
from jaxsyn.data.sentence.text import lines_of
from jaxsyn.data.sentence.vocabulary import Subwords, train
from jaxsyn.preprocess import build


def run(source: str, target: str, trees: str, lines: int) -> Figures:
  """Measures the speed of preparing the first lines of two parallel files.

  Args:
    source, target: Text files.
    trees: CoNLL-U file of the source.
    lines: Number of pairs.
  """
  sources, targets = (
    list(itertools.islice(lines_of(path), lines)) for path in (source, target)
  )
  blocks = itertools.islice(conllu.read(trees), 2 * len(sources))
  parses = [
    conllu.to_text(parse, str(i))
    for i, parse in enumerate(conllu.match(blocks, sources, source, last=False))
  ]
  half, seconds = len(sources) // 2, dict[int, tuple[float, float]]()
  with tempfile.TemporaryDirectory() as name:
    for size in (100, half, len(sources)):  # the first one loads modules
      folder = pathlib.Path(name, str(size))
      seconds[size] = _prepare(
        folder, sources[:size], targets[:size], parses[:size]
      )
  pairs = zip(("vocabulary", "build"), seconds[len(sources)], seconds[half])
  return {
    name: (1000 * (of_all - of_half) / (len(sources) - half), "cpu-ms/pair")
    for name, of_all, of_half in pairs
  }


def _prepare(
  folder: pathlib.Path,
  sources: Sequence[str],
  targets: Sequence[str],
  parses: Sequence[str],
) -> tuple[float, float]:
  """Returns the processor seconds of vocabulary training and preparation."""
  folder.mkdir()
  for name, lines in (("source", sources), ("target", targets)):
    text = "".join(f"{line}\n" for line in lines)
    (folder / name).write_text(text)
  (folder / "trees").write_text("".join(parses))
  with Timer() as vocabulary:
    train([*sources, *targets], folder / "model", Subwords())
  with Timer() as preparation:
    build.run(_config(folder))
  return vocabulary.cpu, preparation.cpu


def _config(folder: pathlib.Path) -> Any:
  """Returns a config that prepares the files in a folder in one process."""
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
