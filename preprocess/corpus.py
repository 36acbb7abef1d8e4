"""Computes statistics of parallel text (`jaxsyn new`)."""

from __future__ import annotations

import collections
import dataclasses
import itertools
import os
import pathlib
import re
import statistics
from collections.abc import Iterator, Mapping, Sequence

from jaxsyn.data import schema
from jaxsyn.data.sentence.stream import is_conllu
from jaxsyn.errors import InputError
from jaxsyn.preprocess import reading
from jaxsyn.preprocess.raw import Source
from jaxsyn.preprocess.readers import READERS, reader_of
from jaxsyn.scoring import tokenizers

MIN_PAIRS = 20  # in a corpus from which pairs are held out
EXAMINED_PAIRS = 200_000  # first pairs, for statistics; all lines are counted
_SAMPLE = 1_000  # first lines of a side, to detect whether it has blanks
_LANGUAGE = "[A-Za-z]{2,8}([-_][A-Za-z0-9]{1,8})*"


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
    """Names of the source and target file, or of the single .tsv file."""
    return (self.source, self.target) if self.target else (self.source,)

  def check(self) -> None:
    """Raises InputError for files that `jaxsyn new` cannot use in a config."""
    if bool(self.target) == (reader_of(self.source) == "tsv"):
      raise InputError(
        f"{self}: give a file of the source and one of the target, or one .tsv "
        "of two columns as the source alone."
      )
    for name in self.names:
      if not os.path.isfile(name):
        raise InputError(f"{name} is missing or no file on this machine.")
      if is_conllu(name):
        raise InputError(
          f"{name} is a treebank, not text. Write a config for treebanks by "
          "hand, as jaxsyn/configs/pud.py."
        )
      if not name.isprintable() or set(",*?[") & {*os.path.basename(name)}:
        raise InputError(
          f"{name!r}: rename the file. In a config, commas separate files, and "
          "*, ? and [ make a pattern."
        )

  def pairs(self) -> Iterator[tuple[str, str]]:
    """Yields the source and target line of each pair.

    Raises:
      InputError: A line is not UTF-8 or does not have two columns, or the files
        have different numbers of lines.
    """
    counts = [0, 0]
    texts = READERS["text" if self.target else "tsv"].texts
    sides = [
      texts(Source(pathlib.Path(name), field=str(column)))
      for column, name in enumerate((self.source, self.target or self.source))
    ]
    for pair in itertools.zip_longest(*sides):
      source, target = pair
      counts[0] += source is not None
      counts[1] += target is not None
      if source is not None and target is not None:
        yield source, target
    if counts[0] != counts[1]:
      raise reading.unequal_error(self.names, counts)


@dataclasses.dataclass
class Side:
  """Text statistics for one side of a parallel corpus.

  Attributes:
    words: Number of whitespace-separated words.
    letters: Number of characters other than whitespace.
    characters: Number of occurrences of each character.
    sample: First lines.
  """

  words: int = 0
  letters: int = 0
  characters: collections.Counter[str] = dataclasses.field(
    default_factory=collections.Counter
  )
  sample: list[str] = dataclasses.field(default_factory=list)

  def add(self, line: str) -> None:
    """Adds a line to the statistics."""
    words = line.split()
    self.words += len(words)
    self.letters += sum(map(len, words))
    self.characters.update(line)
    if len(self.sample) < _SAMPLE:
      self.sample.append(line)

  @property
  def has_blanks(self) -> bool:
    """Whether words are separated by spaces on this side."""
    return not tokenizers.without_blanks(self.sample)

  def length(self, lines: int) -> str:
    """Returns the mean length of a sentence, such as "11.9 words"."""
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
    pairs: Hashes of the distinct pairs.
    sources: Hash of the source of each pair.
    lengths: Number of characters in both sides of each pair.
  """

  files: Files
  count: int = 0
  examined: int = 0
  source: Side = dataclasses.field(default_factory=Side)
  target: Side = dataclasses.field(default_factory=Side)
  pairs: set[int] = dataclasses.field(default_factory=set)
  sources: list[int] = dataclasses.field(default_factory=list)
  lengths: list[int] = dataclasses.field(default_factory=list)

  def __str__(self) -> str:
    part = ""
    if self.examined < self.count:
      part = f", of the first {self.examined:,}"
    source, target = (
      s.length(self.examined) for s in (self.source, self.target)
    )
    repeated = self.examined - len(self.pairs)
    return (
      f"{self.count:,} pairs in {self.files}{part}; mean length {source} and "
      f"{target}; {repeated:,} duplicates"
    )


def corpus_stats(files: Files) -> CorpusStats:
  """Returns the statistics of one split, read from its files.

  Raises:
    InputError: A file is missing, truncated, not UTF-8 or empty, or the sides
      have different numbers of lines.
  """
  files.check()
  stats = CorpusStats(files)
  for source, target in files.pairs():
    stats.count += 1
    if stats.count > EXAMINED_PAIRS:
      continue
    if stats.count == 1 and "\0" in source + target:
      raise InputError(
        f"{files}: there is NUL in line 1; the text may be UTF-16. Convert it: "
        "iconv -f utf-16 -t utf-8."
      )
    stats.examined += 1
    stats.source.add(source)
    stats.target.add(target)
    stats.pairs.add(hash((source, target)))
    stats.sources.append(hash(source))
    stats.lengths.append(len(source) + len(target))
  if not stats.count:
    raise InputError(f"{files}: there is no line.")
  return stats


def language_of_name(file: str, column: int = 0) -> str:
  """Returns the language code in a file name such as corpus.en.gz, or "".

  Args:
    file: File name; that of a .tsv has both codes, as corpus.en-fr.tsv.
    column: Column of the .tsv file.
  """
  name = pathlib.PurePath(file).name.removesuffix(".gz").removesuffix(".zst")
  code = name.rpartition(".")[2] if "." in name else ""
  if name.endswith(".tsv"):
    both = name.removesuffix(".tsv").rpartition(".")[2]
    codes = both.replace("_", "-").split("-")
    code = codes[column] if len(codes) == 2 else ""
  first = code.replace("_", "-").partition("-")[0].lower()
  if first in tokenizers.ALIASES:
    return tokenizers.ALIASES[first]
  if not code or not tokenizers.is_known(code):
    return ""
  return code if len(code) > len(first) else first


def languages(
  train: Files, declared: Sequence[str]
) -> tuple[tuple[str, str], list[str]]:
  """Determines the language of each side; returns codes and explanations.

  Args:
    train: Files of the training split.
    declared: Language code of each side; "": from the file name.
  """
  codes, messages = [], []
  for column, side in enumerate(schema.SIDES):
    file = train.names[min(column, len(train.names) - 1)]
    code, reason = declared[column], f"set by --{side}_language"
    if not code:
      code, reason = language_of_name(file, column), "from the file name"
    if not re.fullmatch(_LANGUAGE, code):
      raise InputError(
        f"{file}: the language of the {side} is unknown. Set it, as in "
        f"--{side}_language en, or name the file as in text.en or text.en-fr.tsv."
      )
    messages.append(f"{side} language: {code} ({reason})")
    codes.append(code)
  if codes[0] == codes[1]:
    messages.append(
      f"warning: both sides are {codes[0]}. Is one a copy of the other?"
    )
  return (codes[0], codes[1]), messages


def count_held_out(train: CorpusStats) -> int:
  """Returns how many training pairs to hold out for each missing split."""
  if min(train.count, len(train.pairs)) < MIN_PAIRS:
    raise InputError(
      f"{train.files} has {train.count} pairs, {len(train.pairs)} of them "
      f"distinct; at least {MIN_PAIRS} are needed to hold out validation and test "
      "data. Add pairs, or name files for both: --dev_source, --dev_target, "
      "--test_source, --test_target."
    )
  return min(train.count // 10, 2000 if train.count >= 1_000_000 else 1000)


def findings(
  stats: Mapping[str, CorpusStats], held_out: int, lacking: Sequence[str]
) -> list[str]:
  """Returns messages with corpus statistics, and warnings about the text.

  Args:
    stats: Statistics of the given splits.
    held_out: Number of pairs in each split that is held out.
    lacking: Names of the splits that are held out.
  """
  lines = [f"{split}: {of_split}" for split, of_split in stats.items()]
  cut = held_out * len(lacking)
  train = stats["train"]
  tested = {name: one.sources for name, one in stats.items() if name != "train"}
  remedies = dict.fromkeys(tested, "Remove them from the training files")
  if cut:
    tested[" and ".join(lacking)] = train.sources[:cut]
    remedies[" and ".join(lacking)] = (
      "Keep one pair of each source: paste SOURCE TARGET | "
      "awk -F'\\t' '!n[$1]++' > pairs.tsv"
    )
    lines.append(
      f"{' and '.join(lacking)}: the first {cut:,} pairs, {held_out:,} each"
    )
    mean = max(1, statistics.fmean(train.lengths))
    if not 0.67 < statistics.fmean(train.lengths[:cut]) / mean < 1.5:
      lines.append(
        "warning: the held-out pairs, which are the first, are shorter or longer "
        "than the rest. Shuffle the pairs: paste SOURCE TARGET | shuf > pairs.tsv"
      )
  trained = set(train.sources[cut:])
  for split, sources in tested.items():
    if repeated := sum(source in trained for source in sources):
      lines.append(
        f"warning: {repeated:,} of the {len(sources):,} sources of {split} also "
        f"occur in training, so scores will be too high. {remedies[split]}"
      )
  return lines
