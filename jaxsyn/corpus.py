"""Statistics and languages of parallel text, and model sizes that suit it."""

from __future__ import annotations

import collections
import dataclasses
import itertools
import math
import os
import pathlib
import random
from collections.abc import Iterator, Sequence

from jaxsyn.data import schema
from jaxsyn.data.options import Clean
from jaxsyn.data.sentence import text
from jaxsyn.data.sentence.language_codes import short
from jaxsyn.data.sentence.stream import is_conllu
from jaxsyn.errors import InputError
from jaxsyn.preprocess import clean
from jaxsyn.preprocess.readers import reader_of
from jaxsyn.scoring import tokenizers
from jaxsyn.storage import remote

MIN_PAIRS = 20  # in a corpus from which pairs are held out
# Multi30k: 29,000 pairs of 11.9 words are 259 batches of 2,048 subwords, padding
# included; the best checkpoint came after 32 epochs.
BATCH, EPOCHS = 2048, 27
# Subwords per word of a joint vocabulary, padding included: 8,000 on Multi30k,
# 1,000 on 1,600 to 2,400 French and German captions.
_SUBWORDS_PER_WORD = {8000: 1.54, 1000: 2.7}
_LETTERS_PER_SUBWORD = 1.5  # where no blanks separate words; an estimate
_COVERAGE = 0.9995
EXAMINED_PAIRS = 200_000  # first pairs, for statistics; all lines are counted
_SAMPLE = 1_000  # lines of a side
_FIRST = 4_000  # pairs that may be held out
_LINES_PER_GUESS = 10  # a single line is often too short to identify
_MIN_SHARE = 0.8  # of guesses, to contradict a language code
# Languages that py3langid confuses or has one code for.
_ALIKE = (
  {"no", "nb", "nn"},
  {"hr", "sr", "bs"},
  {"id", "ms"},
  {"zh", "lzh"},
)


@dataclasses.dataclass(frozen=True)
class Files:
  """Text files of one split: a source and a target file, or one .tsv file.

  Attributes:
    source: File of the source text, or .tsv file of both sides in two columns.
    target: File of the target text; "" with .tsv.
  """

  source: str
  target: str = ""

  def __str__(self) -> str:
    return " and ".join(self.names)

  @property
  def names(self) -> tuple[str, ...]:
    """Names of the one or two files."""
    return (self.source, self.target) if self.target else (self.source,)

  def check(self) -> None:
    """Raises InputError for files that `jaxsyn new` cannot read or name."""
    for name in self.names:
      if is_conllu(name):
        raise InputError(
          f"{name} is a treebank; here text is wanted. A config for treebanks "
          "is written by hand: see `jaxsyn/configs/pud.py`."
        )
      if remote.is_remote(name):
        raise InputError(
          f"{name}: here files on this machine are looked at. Copy it, or write "
          "the config by hand: a raw_dir on an object store will do."
        )
    if bool(self.target) == (reader_of(self.source) == "tsv"):
      raise InputError(
        f"{self}: give a file of the source and one of the target, or one .tsv "
        "of two columns as the source alone."
      )
    for name in self.names:
      if not os.path.isfile(name):
        raise InputError(f"{name} is missing or no file.")
      plain = name.encode(errors="replace").decode()
      special = set(",*?[") & {*os.path.basename(name)}
      if not plain.isprintable() or plain != name or special:
        raise InputError(
          f"{plain}: in a config a comma parts files, and *, ? and [ make a "
          "pattern. Give the file a name without them."
        )

  def pairs(self) -> Iterator[tuple[str | None, str | None]]:
    """Yields the source and target line of each pair.

    If one side has more lines, None replaces the lines that the other side lacks.

    Raises:
      InputError: A line is not UTF-8, or does not have two columns.
    """
    if self.target:
      sides = map(text.lines_of, (self.source, self.target))
      yield from itertools.zip_longest(*sides)
      return
    for number, line in enumerate(text.lines_of(self.source), 1):
      row = line.split("\t")
      if len(row) != 2:
        raise InputError(
          f"{self.source}:{number}: {len(row)} columns, but a pair has two. To "
          "take the first two of more: cut -f1,2."
        )
      yield row[0], row[1]


@dataclasses.dataclass
class Side:
  """Statistics of one side of a corpus: counts and a sample of lines.

  Attributes:
    words: Number of words between blanks.
    letters: Number of characters other than blanks.
    characters: Number of occurrences of each character.
    sample: Random sample of lines.
  """

  words: int = 0
  letters: int = 0
  characters: collections.Counter[str] = dataclasses.field(
    default_factory=collections.Counter
  )
  sample: list[str] = dataclasses.field(default_factory=list)

  def add(self, line: str, index: int | None) -> None:
    """Adds a line to the statistics, and to the sample at an index if given."""
    words = line.split()
    self.words += len(words)
    self.letters += sum(map(len, words))
    self.characters.update(line)
    if index is not None:
      self.sample[index : index + 1] = [line]

  @property
  def has_blanks(self) -> bool:
    """Whether blanks separate the words of this side."""
    return not tokenizers.without_blanks(self.sample)

  def length(self, lines: int) -> str:
    """Returns the mean line length as text, in words or in characters."""
    if self.has_blanks:
      return f"{self.words / lines:.1f} words"
    return f"{self.letters / lines:.1f} characters"


@dataclasses.dataclass
class CorpusStats:
  """Statistics of the sentence pairs in one split of a corpus.

  Attributes:
    files: Files of the split.
    count: Number of pairs.
    examined: Number of pairs, from the first, that all other statistics cover.
    source, target: Statistics of each side.
    dropped: Number of pairs that preparation drops from training, by reason.
    copies: Number of pairs whose sides are equal.
    lengths: Number of characters in both sides, for each of the first pairs.
    keys: Hashes of the source and of the pair, for each of the first pairs.
    last: Index of the last occurrence by hash, for sources and for pairs.
  """

  files: Files
  count: int = 0
  examined: int = 0
  source: Side = dataclasses.field(default_factory=Side)
  target: Side = dataclasses.field(default_factory=Side)
  dropped: dict[str, int] = dataclasses.field(default_factory=dict)
  copies: int = 0
  lengths: list[int] = dataclasses.field(default_factory=list)
  keys: list[tuple[int, int]] = dataclasses.field(default_factory=list)
  last: tuple[dict[int, int], dict[int, int]] = dataclasses.field(
    default_factory=lambda: ({}, {})
  )

  @property
  def different(self) -> int:
    """Number of distinct pairs."""
    return len(self.last[1])

  def repeated(self, keys: list[tuple[int, int]], first: int) -> list[int]:
    """Returns how many of the given sources and pairs recur from an index on.

    Args:
      keys: Hashes of the sources and pairs, as in `CorpusStats.keys`.
      first: Index of the first pair in which they count.
    """
    return [
      sum(last.get(key, -1) >= first for key in column)
      for last, column in zip(self.last, zip(*keys))
    ]


def corpus_stats(files: Files) -> CorpusStats:
  """Returns the statistics of one split, read from its files.

  Raises:
    InputError: A file is missing, truncated, not UTF-8 or empty, or the sides
      have different numbers of lines; the message has the location.
  """
  files.check()
  stats = CorpusStats(files)
  generator = random.Random(0)  # the same sample every time
  tests = clean.filters(Clean(), "", "")
  stats.dropped = dict.fromkeys(tests, 0)
  sources = targets = 0
  for index, (source, target) in enumerate(files.pairs()):
    sources += source is not None
    targets += target is not None
    if source is None or target is None or index >= EXAMINED_PAIRS:
      continue
    if not index and "\0" in source + target:
      raise InputError(
        f"{files}: there is NUL in the first line; it may be UTF-16. Convert "
        "it: iconv -f utf-16 -t utf-8."
      )
    place = index if index < _SAMPLE else generator.randrange(index + 1)
    for side, line in ((stats.source, source), (stats.target, target)):
      side.add(line, place if place < _SAMPLE else None)
    reasons = (name for name, test in tests.items() if test(source, target))
    if reason := next(reasons, None):
      stats.dropped[reason] += 1
    stats.copies += source == target
    keys = (hash(source), hash((source, target)))
    if index < _FIRST:
      stats.keys.append(keys)
      stats.lengths.append(len(source) + len(target))
    for last, key in zip(stats.last, keys):
      last[key] = index
    stats.examined += 1
  if sources != targets:
    raise InputError(
      f"{files.source} has {sources} lines, but {files.target} has {targets}: "
      "line N of one must be the translation of line N of the other. Look at "
      f"line {min(sources, targets) + 1} of the longer file, and before."
    )
  if not sources:
    raise InputError(f"{files}: there is no line.")
  stats.count = sources
  if stats.examined == sum(stats.dropped.values()):
    why = ", ".join(f"{name} {n}" for name, n in stats.dropped.items() if n)
    raise InputError(f"{files}: no pair can be trained on ({why or 'empty'}).")
  return stats


def language_of_name(file: str, column: int = 0) -> str:
  """Returns the language code in a file name such as corpus.en.gz, or "".

  Args:
    file: File name; that of a .tsv has both codes, as corpus.en-fr.tsv.
    column: Column of the .tsv file.
  """
  name = pathlib.PurePath(file).name
  for ending in (".gz", ".zst"):
    name = name.removesuffix(ending)
  code = name.rpartition(".")[2] if "." in name else ""
  if name.endswith(".tsv"):
    both = name.removesuffix(".tsv").rpartition(".")[2]
    codes = both.replace("_", "-").split("-")
    code = codes[column] if len(codes) == 2 else ""
  first = code.replace("_", "-").partition("-")[0].lower()
  for known, language in tokenizers.LANGUAGES.items():
    if first in language.called.split():
      return known
  if not code or not tokenizers.is_known(code):
    return ""
  return code if len(code) > len(first) else first


def guess_language(lines: Sequence[str]) -> tuple[str, float]:
  """Returns the most likely language code of a text and its share of the text.

  The code is "" if there are no letters.
  """
  import py3langid

  real = [line for line in lines if any(map(str.isalpha, line))]
  counts = collections.Counter(
    py3langid.classify(" ".join(real[i : i + _LINES_PER_GUESS]))[0]
    for i in range(0, len(real), _LINES_PER_GUESS)
  )
  if not counts:
    return "", 0.0
  ((code, count),) = counts.most_common(1)
  return code, count / counts.total()


def contradicts(code: str, guess: str, share: float) -> bool:
  """Returns whether a confident guess contradicts a declared language code.

  Args:
    code: Declared language code.
    guess: Language code of `guess_language`.
    share: Share of the text in the guessed language.
  """
  declared = short(code)
  if not guess or declared == guess or share < _MIN_SHARE:
    return False
  return not any({declared, guess} <= alike for alike in _ALIKE)


@dataclasses.dataclass(frozen=True)
class Size:
  """Vocabulary size and training length that suit corpora of a certain size.

  Attributes:
    vocabulary: Number of subwords; 0: two for five pairs.
    reason: Reason for the vocabulary size, for a comment in the config.
    updates: Number of training steps of a base Transformer with dropout; 0: a
      Transformer-Tiny for `EPOCHS`.
    dropout: Dropout rate of the base Transformer.
    published: Source of the number of updates.
  """

  vocabulary: int
  reason: str
  updates: int = 0
  dropout: float = 0.0
  published: str = ""


# Minimum number of pairs -> sizes; docs/own_data.md has the sources.
SIZES = {
  1_000_000: Size(
    32_000,
    "published for a million pairs and more",
    100_000,
    0.1,
    "published for 4.3 million pairs",
  ),
  200_000: Size(
    16_000,
    "published for 230,000 pairs",
    20_000,
    0.3,
    "published for 230,000 pairs",
  ),
  20_000: Size(8000, "4,000 were worse on 29,000 pairs of Multi30k"),
  0: Size(0, "two for five pairs, 1,000 at least: a rule of thumb"),
}


def count_held_out(train: CorpusStats, splits: int) -> tuple[int, str]:
  """Returns the number of pairs in each held-out split, and a reason for it."""
  if splits and min(train.count, train.different) < MIN_PAIRS:
    remark = ""
    if train.different < train.count:
      remark = f", {train.different} different ones"
    raise InputError(
      f"{train.files}: {train.count} pairs{remark}; to hold some out for "
      f"validation and testing {MIN_PAIRS} are needed. Give more, or files "
      "for both: --dev_source, --dev_target, --test_source, --test_target."
    )
  limit = 2000 if train.count >= 1_000_000 else 1000
  count = max(1, min(train.count // 10, limit))
  return count, f"a tenth of the pairs, {limit:,} at most"


def sizes_of(pairs: int) -> Size:
  """Returns the `Size` in SIZES for a corpus with a given number of pairs."""
  return next(size for least, size in SIZES.items() if pairs >= least)


def vocabulary_size(pairs: int, train: CorpusStats) -> tuple[int, str, float]:
  """Returns the joint vocabulary's size, its reason, and character coverage."""
  sizes = sizes_of(pairs)
  size = sizes.vocabulary or max(1000, pairs * 2 // 500 * 100)
  characters = train.source.characters + train.target.characters
  coverage = _COVERAGE if 4 * len(characters) > size else 1.0
  counts = [count for _, count in characters.most_common()]
  covered = itertools.accumulate(counts)
  needed = 1 + sum(so_far < coverage * sum(counts) for so_far in covered)
  needed += len(schema.SPECIAL)
  if 2 * needed <= size:
    return size, sizes.reason, coverage
  part = f"{100 * coverage:g} % of the text" if coverage < 1 else "the text"
  reason = f"twice the {needed:,} characters that make up {part}"
  return -(-2 * needed // 100) * 100, reason, coverage


def training_steps(
  pairs: int, train: CorpusStats, vocabulary: int
) -> tuple[int, str]:
  """Returns the number of training steps for Transformer-Tiny, and a reason."""
  epoch = max(1.0, pairs * subwords_per_pair(train, vocabulary) / BATCH)
  count = min(max(round(EPOCHS * epoch, -2), 2000), 20_000)
  return int(count), (
    f"about {count / epoch:,.0f} times through the text; Multi30k was best after "
    "32; from 2,000 to 20,000 updates"
  )


def subwords_per_pair(stats: CorpusStats, vocabulary: int) -> float:
  """Returns the estimated mean length of the longer side with padding.

  The length is in subwords.
  """
  (large, few), (small, many) = _SUBWORDS_PER_WORD.items()
  size = min(max(vocabulary, small), large)
  share = math.log(large / size, large / small)
  per_word = few + share * (many - few)
  return max(
    side.words * per_word / stats.examined
    if side.has_blanks
    else side.letters / _LETTERS_PER_SUBWORD / stats.examined
    for side in (stats.source, stats.target)
  )
