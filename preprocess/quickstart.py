"""Writes the quickstart's raw corpus and trains its parser, without downloads.

  python -m jaxsyn.preprocess.quickstart --output data/quickstart/raw [--pairs 2000]

`jaxsyn prepare --config quickstart` then parses the raw English text with this
parser, as for real text; it does not read the English gold trees. The target
side has gold trees and gold word alignments, which only training needs. The
invented target language is defined in `preprocess.toy`.
"""

from __future__ import annotations

import os
import pathlib

from absl import flags

from jaxsyn import cli
from jaxsyn.data import schema
from jaxsyn.data.sentence.alignments import pharaoh
from jaxsyn.options import Range
from jaxsyn.options.flags import number_flag
from jaxsyn.preprocess.toy import corpus, parser
from jaxsyn.preprocess.toy.corpus import Sizes
from jaxsyn.storage import files
from jaxsyn.utils import exits

PARSER = "quickstart.udpipe"
LANGUAGES = ("en", "qaa")  # qaa: ISO 639 code for private use


def run(
  output: str | os.PathLike[str], seed: int = 1, sizes: Sizes | None = None
) -> None:
  """Writes the quickstart corpus, its gold trees and alignments, and a parser.

  The files are <split>.en, <split>.qaa, <split>.en.conllu, <split>.qaa.conllu,
  <split>.align, and last quickstart.udpipe, which shows that all are complete.

  Args:
    output: Folder, created if needed; files of an earlier run are replaced.
    seed: Seed of the sentences; the invented language never changes.
    sizes: Number of sentences in each split, None for the defaults.
  """
  sizes = sizes or Sizes()
  output = pathlib.Path(output)
  exits.check_target(os.fspath(output), "--output", folder=True)
  output.mkdir(parents=True, exist_ok=True)
  splits = corpus.make_splits(seed, sizes)
  for split, pairs in splits.items():
    for side, language in zip(schema.SIDES, LANGUAGES):
      text = "".join(f"{getattr(pair, side)}\n" for pair in pairs)
      trees = "".join(
        pair.conllu(f"{split}-{i}", side) for i, pair in enumerate(pairs, 1)
      )
      files.write_text(output / f"{split}.{language}", text)
      files.write_text(output / f"{split}.{language}.conllu", trees)
    links = "".join(f"{pharaoh(pair.links())}\n" for pair in pairs)
    files.write_text(output / f"{split}.align", links)
  model = parser.train_parser(splits["train"][: sizes.parser])
  files.write_bytes(output / PARSER, model)


def _main(values: flags.FlagValues) -> None:
  run(values.output, values.seed, Sizes(train=values.pairs))
  print(f"wrote a corpus and its parser to {values.output}")


if __name__ == "__main__":
  flags.DEFINE_string(
    "output", "data/quickstart/raw", "Folder to write the corpus to."
  )
  flags.DEFINE_integer("seed", 1, "Seed of the sentences.")
  number_flag(
    "pairs",
    Sizes.train,
    Range(1, 1_000_000),
    "Sentence pairs to train on. 500 more are for validation and 500 for"
    " testing; they depend on this number.",
  )
  cli.main(_main)
