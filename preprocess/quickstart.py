"""Writes the quickstart's raw corpus and trains its parser. No download.

  python -m preprocess.quickstart --output data/quickstart/raw

After it: `python -m preprocess.build --config configs/quickstart.py`, which
knows nothing of the English gold trees and parses the raw text with the parser
made here, as is done for real text. The target side has its gold trees: they
are needed in training only. Sentences: `preprocess.grammar`.
"""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import json
import os
import pathlib
import random
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence

from jaxsyn import files
from jaxsyn.data.sentence.parser import load_udpipe
from jaxsyn.errors import InputError
from preprocess import grammar
from preprocess.grammar import Pair

PARSER = "quickstart.udpipe"
REPORT = "report.json"
LANGUAGES = ("en", "qaa")  # qaa: ISO 639 code for private use

# Small, and stopped early: a quarter of a minute on one core. The sentences are cut
# by lines, so the tokeniser has only to find commas and full stops.
TOKENISER = "tokenize_url=0;allow_spaces=0;dimension=16;epochs=1;batch_size=50"
TAGGER = "iterations=4;guesser_suffix_rules=4;guesser_enrich_dictionary=4"
PARSER_OPTIONS = (
  "iterations=5;hidden_layer=64;embedding_form=32;embedding_upostag=12;"
  "embedding_feats=4;embedding_deprel=12;transition_system=projective;"
  "transition_oracle=dynamic;structured_interval=0;learning_rate=0.02;"
  "learning_rate_final=0.001;l2=0.3;batch_size=10;single_root=1"
)


@dataclasses.dataclass(frozen=True)
class Sizes:
  """Sentence pairs a split, and gold trees for the parser."""

  train: int = 8000
  validation: int = 500
  test: int = 500
  parser: int = 1500


@dataclasses.dataclass(frozen=True)
class Report:
  """What was made; the same is written to report.json.

  Attributes:
    pairs: sentence pairs by split.
    words: source words and marks of the training part.
    uas, las: share of test words with the right head, and label too, parsed
      from raw text with the parser trained here.
    parser_seconds: wall time of training it.
    predictable: share of the test part's translated words that are right when
      each word gets its commonest translation in the training part; by what
      is known. See `predictability`.
  """

  pairs: dict[str, int]
  words: int
  uas: float
  las: float
  parser_seconds: float
  predictable: dict[str, float]

  def __str__(self) -> str:
    lines = "\n".join(
      f"  {100 * share:5.1f} %  {known}"
      for known, share in self.predictable.items()
    )
    return (
      f"pairs: {self.pairs}, {self.words} source words to train on\n"
      f"parser: UAS {100 * self.uas:.1f} LAS {100 * self.las:.1f} on the test "
      f"part, trained in {self.parser_seconds:.0f} s\n"
      f"translations of test words one can tell from:\n{lines}"
    )


def run(
  output: str | os.PathLike[str], seed: int = 1, sizes: Sizes | None = None
) -> Report:
  """Writes the texts, the gold trees of both sides, the parser, the report.

  By name: <split>.en, <split>.qaa, <split>.en.conllu, <split>.qaa.conllu,
  quickstart.udpipe, report.json.

  Args:
    output: a folder, made if it is not there; files of an earlier run are
      replaced.
    seed: of the sentences; the language itself never changes.
    sizes: smaller for tests.
  """
  sizes = sizes or Sizes()
  output = pathlib.Path(output)
  try:
    output.mkdir(parents=True, exist_ok=True)
  except OSError as error:
    raise InputError(
      f"cannot make the folder {output}: {error.strerror}. Choose another "
      "--output."
    ) from error
  splits = make_splits(seed, sizes)
  for split, pairs in splits.items():
    ids = [f"{split}-{i}" for i in range(1, len(pairs) + 1)]
    texts = ([p.source for p in pairs], [p.target for p in pairs])
    trees = (
      [p.conllu(name) for p, name in zip(pairs, ids)],
      [p.target_conllu(name) for p, name in zip(pairs, ids)],
    )
    for language, lines, blocks in zip(LANGUAGES, texts, trees):
      text = "".join(line + "\n" for line in lines)
      _write(output / f"{split}.{language}", text.encode())
      _write(output / f"{split}.{language}.conllu", "".join(blocks).encode())
  began = time.perf_counter()
  model = train_parser(splits["train"][: sizes.parser])
  seconds = time.perf_counter() - began
  _write(output / PARSER, model)
  uas, las = attachment(output / PARSER, splits["test"])
  report = Report(
    pairs={split: len(pairs) for split, pairs in splits.items()},
    words=sum(len(p.tokens) for p in splits["train"]),
    uas=uas,
    las=las,
    parser_seconds=seconds,
    predictable=predictability(splits["train"], splits["test"]),
  )
  numbers = json.dumps(dataclasses.asdict(report), indent=2) + "\n"
  _write(output / REPORT, numbers.encode())
  return report


def make_splits(seed: int, sizes: Sizes) -> dict[str, list[Pair]]:
  """Pairs by split; no English sentence stands in two of them."""
  counts = {s: getattr(sizes, s) for s in ("train", "validation", "test")}
  pairs = iter(grammar.pairs(sum(counts.values()), seed))
  return {
    split: [next(pairs) for _ in range(count)]
    for split, count in counts.items()
  }


def train_parser(pairs: Sequence[Pair]) -> bytes:
  """A UDPipe 1 model (tokeniser, tagger, parser) made of gold trees."""
  udpipe = load_udpipe()
  error = udpipe.ProcessingError()
  reader = udpipe.InputFormat.newConlluInputFormat()
  reader.setText("".join(p.conllu(str(i)) for i, p in enumerate(pairs, 1)))
  sentences, sentence = udpipe.Sentences(), udpipe.Sentence()
  while reader.nextSentence(sentence, error):
    sentences.append(sentence)
    sentence = udpipe.Sentence()
  with _quiet() as log:
    model = udpipe.Trainer.train(
      *("morphodita_parsito", sentences, udpipe.Sentences()),
      *(TOKENISER, TAGGER, PARSER_OPTIONS, error),
    )
  if error.occurred() or not model:
    raise RuntimeError(f"UDPipe's trainer: {error.message}\n{log()}")
  return model


def attachment(
  model: pathlib.Path, pairs: Sequence[Pair]
) -> tuple[float, float]:
  """Shares of right heads and of right labelled heads, from raw text.

  A sentence that the model cuts into other words counts as wrong as a whole.
  """
  udpipe = load_udpipe()
  loaded = udpipe.Model.load(str(model))
  pipeline = udpipe.Pipeline(
    *(loaded, "tokenizer=presegmented", udpipe.Pipeline.DEFAULT),
    *(udpipe.Pipeline.DEFAULT, "conllu"),
  )
  right_head = right_both = total = 0
  for pair in pairs:
    rows = [
      line.split("\t")
      for line in pipeline.process(pair.source + "\n").splitlines()
      if line[:1].isdigit()
    ]
    total += len(pair.tokens)
    if tuple(row[1] for row in rows) != pair.tokens:
      continue
    for i, row in enumerate(rows):
      head = int(row[6]) - 1 if row[6] != "0" else i
      right_head += head == pair.heads[i]
      right_both += head == pair.heads[i] and row[7] == pair.relations[i]
  return right_head / total, right_both / total


def predictability(
  train: Sequence[Pair], test: Sequence[Pair], seed: int = 0
) -> dict[str, float]:
  """How much of a word's translation each of its neighbours tells.

  For each word together with the class of another word of its sentence and on
  which side that one stands, a table holds the commonest translation in the
  training part (where the two were never seen together: the commonest of the
  word). The share of right answers is that of the test part's words that have
  a translation. The tree matters as far as the parent tells more than others.

  Returns:
    share of right answers by what is known.
  """
  result = {}
  for name, other in NEIGHBOURS.items():
    rng = random.Random(seed)
    table = collections.defaultdict(collections.Counter)
    for pair in train:
      for word, context, translation in _facts(pair, other, rng):
        table[word][translation] += 1
        table[word, context][translation] += 1
    best = {key: counts.most_common(1)[0][0] for key, counts in table.items()}
    hits = [
      best.get((word, context), best.get(word)) == translation
      for pair in test
      for word, context, translation in _facts(pair, other, rng)
    ]
    result[name] = sum(hits) / len(hits)
  return result


# Index of the other word, of (heads, own index, random number in [0, 1)).
NEIGHBOURS = {
  "the word alone": lambda heads, i, number: i,
  "and its previous word": lambda heads, i, number: max(i - 1, 0),
  "and its next word": lambda heads, i, number: min(i + 1, len(heads) - 1),
  "and a random word": lambda heads, i, number: int(number * len(heads)),
  "and its parent": lambda heads, i, number: heads[i],
}


def _facts(
  pair: Pair, other: Callable, rng: random.Random
) -> Iterator[tuple[str, tuple[str, int], str]]:
  """(word, (class of the other word, its side), translation) where it has."""
  for i, translation in enumerate(pair.translations):
    if translation:
      j = other(pair.heads, i, rng.random())
      side = (j > i) - (j < i)
      yield pair.tokens[i].lower(), (pair.classes[j], side), translation


def _write(path: pathlib.Path, content: bytes) -> None:
  with files.publish(path) as file:
    file.write(content)


@contextlib.contextmanager
def _quiet():
  """Takes away what a C++ library prints to the standard error meanwhile.

  Yields a function that returns what was printed.
  """
  sys.stderr.flush()
  with tempfile.TemporaryFile() as file:
    kept = os.dup(2)
    os.dup2(file.fileno(), 2)

    def log() -> str:
      file.seek(0)
      return file.read().decode(errors="replace")

    try:
      yield log
    finally:
      os.dup2(kept, 2)
      os.close(kept)


def _main(values) -> None:
  print(run(values.output, values.seed))


if __name__ == "__main__":
  from absl import flags

  from jaxsyn import cli

  flags.DEFINE_string(
    "output", "data/quickstart/raw", "Folder to write the corpus to."
  )
  flags.DEFINE_integer("seed", 1, "Seed of the sentences.")
  cli.main(_main)
