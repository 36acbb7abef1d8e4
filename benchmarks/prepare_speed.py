"""Measures the processor time that preparation takes per sentence pair.

  python -m benchmarks.prepare_speed --source train.en.gz --target train.de.gz \\
    --trees train.en.conllu.gz [--lines 10000]

`build` is the processor time of all processes for one more pair in
`preprocess.build`: the difference between preparing all and half the lines.
`vocabulary` is the same for training the vocabulary, which is part of `build`.
"""

from __future__ import annotations

import itertools
import pathlib
import tempfile
from collections.abc import Sequence

import numpy as np
from absl import flags

from benchmarks.figures import Figures, Timer, show
from jaxsyn import cli
from jaxsyn.configs import base
from jaxsyn.data.sentence import conllu
from jaxsyn.data.sentence.text import lines_of
from jaxsyn.data.sentence.vocabulary import Subwords, train
from jaxsyn.preprocess import build


def run(values: flags.FlagValues) -> Figures:
  """Measures the speed of preparing the first lines of two parallel files."""
  sources, targets = (
    list(itertools.islice(lines_of(path), values.lines))
    for path in (values.source, values.target)
  )
  blocks = itertools.islice(conllu.read(values.trees), 2 * len(sources))
  trees = [
    conllu.to_text(parse, str(i))
    for i, parse in enumerate(
      conllu.match(blocks, sources, values.source, last=False)
    )
  ]
  half, seconds = len(sources) // 2, []
  with tempfile.TemporaryDirectory() as folder:
    for size in (100, half, len(sources)):  # the first one loads modules
      files = (texts[:size] for texts in (sources, targets, trees))
      seconds.append(_prepare(pathlib.Path(folder, str(size)), *files))
  _, of_half, of_all = seconds
  milliseconds = 1000 * (of_all - of_half) / (len(sources) - half)
  return {
    name: (value, "cpu-ms/pair")
    for name, value in zip(("vocabulary", "build"), milliseconds)
  }


def _prepare(
  folder: pathlib.Path,
  sources: Sequence[str],
  targets: Sequence[str],
  trees: Sequence[str],
) -> np.ndarray:
  """Returns the processor seconds of vocabulary training and preparation."""
  folder.mkdir()
  for name, lines in (("source", sources), ("target", targets)):
    (folder / name).write_text("".join(f"{line}\n" for line in lines))
  (folder / "trees").write_text("".join(trees))
  config = base.get_config()
  config.data.directory = str(folder / "prepared")
  config.data.validation, config.data.test = "train", ()
  config.prepare.raw_dir = str(folder)
  config.prepare.workers = 1
  config.prepare.splits.train = ("source", "target")
  config.prepare.parse.source_conllu = {"train": "trees"}
  with Timer() as vocabulary:
    train([*sources, *targets], folder / "model", Subwords())
  with Timer() as preparation:
    build.run(config)
  return np.array([vocabulary.cpu, preparation.cpu])


if __name__ == "__main__":
  for name, meaning in {
    "source": "Text, plain or .gz.",
    "target": "Translation of the text, plain or .gz.",
    "trees": "CoNLL-U of the source, plain or .gz.",
  }.items():
    flags.DEFINE_string(name, None, meaning, required=True)
  flags.DEFINE_integer("lines", 2000, "Number of sentence pairs.")
  cli.main(lambda values: show(run(values)))
