"""Parallel text, looked through once: how much there is, and what is wrong.

Lines are counted to the end; all else is of the first `LOOKED` pairs.
"""

from __future__ import annotations

import collections
import dataclasses
import itertools
import random
from collections.abc import Callable, Iterator

from jaxsyn.data.options import Clean
from jaxsyn.data.sentence import text
from jaxsyn.data.sentence.stream import is_conllu
from jaxsyn.errors import InputError
from jaxsyn.preprocess import clean
from jaxsyn.preprocess.readers import reader_of

EXAMINED_PAIRS = 200_000  # pairs
_SAMPLE = 1_000  # lines of a side
_FIRST = 4_000  # pairs, of which some may be held out

Pair = tuple[str, str]


@dataclasses.dataclass(frozen=True)
class Files:
  """The two files of a split, or the one of both.

  Attributes:
    source: of the source; with .tsv, of both sides.
    target: of the target; "" with .tsv.
  """

  source: str
  target: str = ""

  def __str__(self) -> str:
    return " and ".join(self.names)

  @property
  def names(self) -> tuple[str, ...]:
    return (self.source, self.target) if self.target else (self.source,)

  def check(self) -> None:
    """Raises InputError unless they are two texts, or one .tsv."""
    for name in self.names:
      if is_conllu(name):
        raise InputError(
          f"{name} is a treebank; here text is wanted. A config for treebanks "
          "is written by hand: see `jaxsyn/configs/pud.py`."
        )
    if bool(self.target) == (reader_of(self.source) == "tsv"):
      raise InputError(
        f"{self}: give a file of the source and one of the target, or one .tsv "
        "of two columns as the source alone."
      )

  def sides(self) -> Iterator[tuple[str | None, str | None]]:
    """Lines of both; None behind the last of a side.

    Raises:
      InputError: a line is no UTF-8, or no pair; names FILE:LINE.
    """
    if not self.target:
      yield from _columns(self.source)
      return
    lines = map(text.lines_of, (self.source, self.target))
    yield from itertools.zip_longest(*lines)


@dataclasses.dataclass
class Side:
  """What was seen of a side.

  Attributes:
    words: between blanks.
    letters: characters, blanks left out.
    characters: how often each character occurs.
    sample: lines from all over the text.
  """

  words: int = 0
  letters: int = 0
  characters: collections.Counter[str] = dataclasses.field(
    default_factory=collections.Counter
  )
  sample: list[str] = dataclasses.field(default_factory=list)

  def add(self, line: str, keep: int) -> None:
    """Sees a line.

    Args:
      line: of the side.
      keep: its place in the sample; -1: it has none.
    """
    words = line.split()
    self.words += len(words)
    self.letters += sum(map(len, words))
    self.characters.update(line)
    if keep >= 0:
      self.sample[keep : keep + 1] = [line]

  def length(self, lines: int) -> str:
    """Its mean over so many lines, in words where there are any to see."""
    if self.has_blanks:
      return f"{self.words / lines:.1f} words"
    return f"{self.letters / lines:.1f} characters"

  @property
  def has_blanks(self) -> bool:
    """Whether its words stand between blanks."""
    from jaxsyn.scoring import tokenizers

    return not tokenizers.without_blanks(self.sample)


@dataclasses.dataclass
class CorpusStats:
  """What was seen of a split.

  Attributes:
    files: of it.
    count: its pairs.
    looked: the first of them, of which the rest is told.
    source, target: the sides.
    dropped: reason -> pairs that preparing would leave out of training.
    copies: pairs whose sides are the same.
    lengths: of the first pairs, letters of both sides.
    keys: of the first pairs, hashes of source and pair.
    last: hash of a source, and of a pair -> where it stood last.
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
    """Pairs that are not the same as another, of those looked at."""
    return len(self.last[1])

  @property
  def remaining(self) -> int:
    """Pairs that preparing would train on, of those looked at."""
    return self.examined - sum(self.dropped.values())

  def again(self, keys: list[tuple[int, int]], first: int) -> tuple[int, int]:
    """How many sources, and pairs, of others stand here too.

    Args:
      keys: of them.
      first: what stands before this line is not looked at.
    """
    sources, pairs = (
      sum(last.get(key, -1) >= first for key in column)
      for last, column in zip(self.last, zip(*keys))
    )
    return sources, pairs


def corpus_stats(files: Files) -> CorpusStats:
  """Looks through a split.

  Raises:
    InputError: a file is missing, cut off, no UTF-8, empty, or has other lines
      than the other; says where.
  """
  files.check()
  stats = CorpusStats(files)
  dice = random.Random(0)  # the same sample every time
  before, _ = clean.tests(Clean(), "", "")
  stats.dropped = dict.fromkeys(before, 0)
  counts = [0, 0]
  for index, (source, target) in enumerate(files.sides()):
    counts = [
      counts[0] + (source is not None),
      counts[1] + (target is not None),
    ]
    if source is None or target is None or index >= EXAMINED_PAIRS:
      continue
    if not index and "\0" in source + target:
      raise InputError(
        f"{files}: there is NUL in the first line; it may be UTF-16. Convert "
        "it: iconv -f utf-16 -t utf-8."
      )
    keep = index if index < _SAMPLE else dice.randrange(index + 1)
    keep = keep if keep < _SAMPLE else -1
    stats.source.add(source, keep)
    stats.target.add(target, keep)
    _count(stats, (source, target), before)
  _check_counts(files, counts)
  stats.count = counts[0]
  if stats.remaining == 0:
    why = ", ".join(f"{name} {n}" for name, n in stats.dropped.items() if n)
    raise InputError(f"{files}: no pair can be trained on ({why or 'empty'}).")
  return stats


def _count(
  stats: CorpusStats, pair: Pair, tests: dict[str, Callable[[str, str], bool]]
) -> None:
  """Counts a pair."""
  source, target = pair
  for reason, test in tests.items():
    if test(source, target):
      stats.dropped[reason] += 1
      break
  stats.copies += source == target
  key = (hash(source), hash(pair))
  if stats.examined < _FIRST:
    stats.keys.append(key)
    stats.lengths.append(len(source) + len(target))
  for last, one in zip(stats.last, key):
    last[one] = stats.examined
  stats.examined += 1


def _columns(name: str) -> Iterator[Pair]:
  """The pairs of a .tsv."""
  for line_number, line in enumerate(text.lines_of(name), 1):
    row = line.split("\t")
    if len(row) != 2:
      raise InputError(
        f"{name}:{line_number}: {len(row)} columns, but a pair has two. To take the "
        "first two of more: cut -f1,2."
      )
    yield row[0], row[1]


def _check_counts(files: Files, counts: list[int]) -> None:
  """Raises InputError unless both sides have as many lines, and some."""
  ours, theirs = counts
  if ours != theirs:
    raise InputError(
      f"{files.source} has {ours} lines, but {files.target} has {theirs}: line N "
      "of one must be the translation of line N of the other. Look at line "
      f"{min(ours, theirs) + 1} of the longer file, and before."
    )
  if not ours:
    raise InputError(f"{files}: there is no line.")
