"""What a look at parallel text has found, in words."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from jaxsyn.data import schema
from jaxsyn.errors import InputError
from jaxsyn.survey import languages
from jaxsyn.survey.pairs import CorpusStats


def of_text(
  stats: Mapping[str, CorpusStats], held_out: int, lacking: Sequence[str]
) -> list[str]:
  """What was found in the text, line by line.

  Args:
    stats: at the files of each split, "train" among them.
    held_out: pairs of each split that is cut off the training files.
    lacking: the names of those.
  """
  lines = []
  for split, split_stats in stats.items():
    part = f", of the first {split_stats.examined:,}" * (
      split_stats.examined < split_stats.count
    )
    sides = [
      s.length(split_stats.examined)
      for s in (split_stats.source, split_stats.target)
    ]
    lines.append(
      f"{split}: {split_stats.count:,} pairs of {split_stats.files}{part}: "
      f"{' and '.join(sides)} a line, {split_stats.examined - split_stats.different:,} "
      f"repeated, {split_stats.copies:,} with equal sides"
    )
    if dropped := {k: n for k, n in split_stats.dropped.items() if n}:
      counts = ", ".join(f"{name} {n:,}" for name, n in dropped.items())
      what = "preparing drops" if split == "train" else "kept as they are"
      share = 100 * sum(dropped.values()) / split_stats.examined
      lines.append(f"  {what}: {counts} ({share:.1f} %)")
  train, cut = stats["train"], held_out * len(lacking)
  keys = {
    split: split_stats.keys
    for split, split_stats in stats.items()
    if split != "train"
  }
  if cut:
    keys[" and ".join(lacking)] = train.keys[:cut]
    lines.append(f"{' and '.join(lacking)}: {held_out:,} pairs each, held out")
  for split, split_keys in keys.items():
    sources, pairs = train.again(split_keys, cut)
    if sources:
      lines.append(
        f"warning: of {len(split_keys):,} pairs of {split} {pairs:,} stand in training "
        f"too, and {sources:,} of their sources: scores will flatter"
      )
  if cut and _unlike(train, cut):
    lines.append(
      "warning: the pairs held out, which are the first, are of other lengths "
      "than the rest; shuffle them: paste SOURCE TARGET | shuf > pairs.tsv"
    )
  return lines


def _unlike(train: CorpusStats, cut: int) -> bool:
  """Whether the first pairs are far shorter or longer than all."""
  letters = train.source.characters.total() + train.target.characters.total()
  share = sum(train.lengths[:cut]) / cut / (letters / train.examined)
  return not 0.67 < share < 1.5


def of_languages(
  said_codes: Sequence[str], train: CorpusStats
) -> tuple[tuple[str, str], list[str]]:
  """The codes of both sides, and what led to them.

  Args:
    said_codes: of source and target; "": by the name of the file, or the text.
    train: the training text.

  Raises:
    InputError: one cannot be told, or is no code.
  """
  codes, messages = [], []
  for column, side in enumerate(schema.SIDES):
    file = train.files.names[min(column, len(train.files.names) - 1)]
    sample = getattr(train, side).sample
    declared = said_codes[column]
    named = languages.named(file, column)
    guessed, share = languages.guess(sample)
    code = declared or named or guessed
    if not re.fullmatch("[A-Za-z]{2,8}([-_][A-Za-z0-9]{1,8})*", code):
      raise InputError(
        f"{file}: which language is the {side}? Say its code, as in "
        f"--{side}_language en."
      )
    why = (
      "as said"
      if declared
      else "by the file's name"
      if named
      else "by the text"
    )
    scripts = ", ".join(
      f"{name} {100 * part:.0f} %" for name, part in languages.scripts(sample)
    )
    messages.append(f"{side}: {code}, {why}; letters: {scripts or 'none'}")
    if languages.differ(code, guessed, share):
      messages.append(
        f"warning: the {side} is {code} {why}, but {100 * share:.0f} % of it "
        f"looks like {guessed}. If so: --{side}_language {guessed}"
      )
    codes.append(code)
  if codes[0] == codes[1]:
    messages.append(
      f"warning: both sides are {codes[0]}. Is one the other's copy?"
    )
  return (codes[0], codes[1]), messages
