"""Cleaning of the training pairs: each step an option, each drop counted.

`preprocess.raw` comes before, the vocabulary and the parser after. Nothing is
dropped from the other splits: what is translated must be scored.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from jaxsyn.config import Config
from jaxsyn.data import schema
from jaxsyn.data.options import Clean
from jaxsyn.data.sentence import text
from jaxsyn.data.sentence.align import visible
from jaxsyn.errors import InputError
from preprocess.split import RawSplit

# All of Unicode's category Cc but the tab.
CONTROL = re.compile("[\x00-\x08\x0a-\x1f\x7f-\x9f]")

Test = Callable[[str, str], bool]  # whether a pair must go


def apply(config: Config, splits: Mapping[str, RawSplit]) -> None:
  """Cleans the training split; and writes text in NFC where that is wanted.

  Raises:
    InputError: no training pair is left, or a language is not known.
  """
  options, data = config.prepare.clean, config.data
  for name, split in splits.items():
    if options.nfc:
      # References stay as they are: a score must not change with the option.
      sides = schema.SIDES if name == data.train else ("source",)
      normal: dict[str, Any] = {}
      for side in sides:
        lines = split.all_lines(side)
        normal[side] = [text.normal(line) for line in lines]
        changed = sum(lines[i] != normal[side][i] for i in split.kept)
        print(f"{name}: {changed} {side} lines changed by NFC")
      split.pairs = dataclasses.replace(split.pairs, **normal)
  split = splits[data.train]
  table = steps(options, data.source_language, data.target_language)
  both = split.lines("source"), split.lines("target")
  kept, split.dropped = clean(*both, table)
  split.kept = [split.kept[i] for i in kept]


def check_text(splits: Mapping[str, RawSplit]) -> None:
  """Looks for control characters in the kept lines; says where they are.

  UDPipe and much else ends a text at NUL; other control characters do no harm,
  and texts to score must stay as they were published.

  Raises:
    InputError: there is a NUL; names FILE:LINE.
  """
  for name, split in splits.items():
    for side in schema.SIDES:
      found = [
        (number, hit[0])
        for number, line in zip(split.numbers, split.lines(side))
        for hit in CONTROL.finditer(line)
      ]
      for number, character in found:
        if character == "\0":
          raise InputError(
            f"{split.place(side, number)}: there is a NUL character in the"
            f" line. Take it out of the file (tr -d '\\000'), or, to have such"
            " lines of the training split dropped, set"
            " config.prepare.clean.control to True."
          )
      if found:
        number, character = found[0]
        print(
          f"{name}: {len(found):,} control characters stay in the {side}, the"
          f" first (U+{ord(character):04X}) in {split.place(side, number)}"
        )


def steps(
  options: Clean, source_language: str, target_language: str
) -> dict[str, Test]:
  """The steps that the options ask for: reason -> test, in order."""
  table: dict[str, Test] = {}
  if options.empty:
    # Not strip: of a line of zero-width characters alone no subword is left.
    table["empty"] = lambda s, t: not visible(s) or not visible(t)
  if options.control:
    table["control"] = lambda s, t: bool(CONTROL.search(s) or CONTROL.search(t))
  if options.max_words > 0:
    table["max_words"] = lambda s, t: (
      max(len(s.split()), len(t.split())) > options.max_words
    )
  if options.max_characters > 0:
    table["max_characters"] = lambda s, t: (
      max(len(s), len(t)) > options.max_characters
    )
  if options.max_ratio > 0:
    table["max_ratio"] = lambda s, t: _ratio(s, t) > options.max_ratio
  if options.duplicates:
    table["duplicates"] = _seen_before()
  if options.language:
    table["language"] = _other_language(source_language, target_language)
  return table


def clean(
  source: Sequence[str], target: Sequence[str], table: dict[str, Test]
) -> tuple[list[int], dict[str, int]]:
  """Drops pairs.

  Returns:
    Numbers of the pairs that stay, from 0, ascending; and reason -> number of
    pairs that go. A pair counts once, for the first reason in the table.

  Raises:
    InputError: none is left.
  """
  kept, dropped = [], dict.fromkeys(table, 0)
  for i, pair in enumerate(zip(source, target)):
    for reason, test in table.items():
      if test(*pair):
        dropped[reason] += 1
        break
    else:
      kept.append(i)
  if not kept:
    counts = ", ".join(f"{reason} {n}" for reason, n in dropped.items() if n)
    raise InputError(
      f"no training pair is left of {len(source)} (dropped: {counts or 'none'})."
      " See config.prepare.clean, and whether the files are the right ones."
    )
  return kept, dropped


def _ratio(source: str, target: str) -> float:
  """Words of the longer side by words of the shorter; inf if that has none."""
  short, long = sorted((len(source.split()), len(target.split())))
  return long / short if short else float("inf")


def _seen_before() -> Test:
  seen: set[tuple[str, str]] = set()

  def test(source: str, target: str) -> bool:
    before = len(seen)
    seen.add((source, target))
    return len(seen) == before

  return test


def _other_language(source_language: str, target_language: str) -> Test:
  """Whether either side seems to be in another language than it should.

  The first guess counts, however uncertain: py3langid has no chance in it, so
  the same text always gives the same answer.
  """
  import py3langid

  known = {code for code, _ in py3langid.rank("a")}
  for field, code in (
    ("source_language", source_language),
    ("target_language", target_language),
  ):
    if code not in known:
      raise InputError(
        f"config.data.{field}: py3langid does not know {code!r}; it knows"
        f" {', '.join(sorted(known))}. Or set config.prepare.clean.language"
        " to False."
      )

  def test(source: str, target: str) -> bool:
    return (
      py3langid.classify(source)[0] != source_language
      or py3langid.classify(target)[0] != target_language
    )

  return test
