"""What a look at parallel text has found, in words."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from jaxsyn.data import schema
from jaxsyn.errors import InputError
from jaxsyn.survey import languages
from jaxsyn.survey.pairs import Look


def of_text(
  looks: Mapping[str, Look], held: int, lacking: Sequence[str]
) -> list[str]:
  """What was found in the text, line by line.

  Args:
    looks: at the files of each split, "train" among them.
    held: pairs of each split that is cut off the training files.
    lacking: the names of those.
  """
  lines = []
  for split, found in looks.items():
    part = f", of the first {found.looked:,}" * (found.looked < found.count)
    sides = [s.length(found.looked) for s in (found.source, found.target)]
    lines.append(
      f"{split}: {found.count:,} pairs of {found.files}{part}: "
      f"{' and '.join(sides)} a line, {found.looked - found.different:,} "
      f"repeated, {found.copies:,} with equal sides"
    )
    if dropped := {k: n for k, n in found.dropped.items() if n}:
      counts = ", ".join(f"{name} {n:,}" for name, n in dropped.items())
      what = "preparing drops" if split == "train" else "kept as they are"
      share = 100 * sum(dropped.values()) / found.looked
      lines.append(f"  {what}: {counts} ({share:.1f} %)")
  train, cut = looks["train"], held * len(lacking)
  keys = {
    split: found.keys for split, found in looks.items() if split != "train"
  }
  if cut:
    keys[" and ".join(lacking)] = train.keys[:cut]
    lines.append(f"{' and '.join(lacking)}: {held:,} pairs each, held out")
  for split, own in keys.items():
    sources, pairs = train.again(own, cut)
    if sources:
      lines.append(
        f"warning: of {len(own):,} pairs of {split} {pairs:,} stand in training "
        f"too, and {sources:,} of their sources: scores will flatter"
      )
  if cut and _unlike(train, cut):
    lines.append(
      "warning: the pairs held out, which are the first, are of other lengths "
      "than the rest; shuffle them: paste SOURCE TARGET | shuf > pairs.tsv"
    )
  return lines


def _unlike(train: Look, cut: int) -> bool:
  """Whether the first pairs are far shorter or longer than all."""
  letters = train.source.characters.total() + train.target.characters.total()
  share = sum(train.lengths[:cut]) / cut / (letters / train.looked)
  return not 0.67 < share < 1.5


def of_languages(
  said_codes: Sequence[str], train: Look
) -> tuple[tuple[str, str], list[str]]:
  """The codes of both sides, and what led to them.

  Args:
    said_codes: of source and target; "": by the name of the file, or the text.
    train: the training text.

  Raises:
    InputError: one cannot be told, or is no code.
  """
  codes, told = [], []
  for column, side in enumerate(schema.SIDES):
    file = train.files.names[min(column, len(train.files.names) - 1)]
    sample = getattr(train, side).sample
    said = said_codes[column]
    named = languages.named(file, column)
    guessed, share = languages.guess(sample)
    code = said or named or guessed
    if not re.fullmatch("[A-Za-z]{2,8}([-_][A-Za-z0-9]{1,8})*", code):
      raise InputError(
        f"{file}: which language is the {side}? Say its code, as in "
        f"--{side}_language en."
      )
    why = (
      "as said" if said else "by the file's name" if named else "by the text"
    )
    scripts = ", ".join(
      f"{name} {100 * part:.0f} %" for name, part in languages.scripts(sample)
    )
    told.append(f"{side}: {code}, {why}; letters: {scripts or 'none'}")
    if languages.differ(code, guessed, share):
      told.append(
        f"warning: the {side} is {code} {why}, but {100 * share:.0f} % of it "
        f"looks like {guessed}. If so: --{side}_language {guessed}"
      )
    codes.append(code)
  if codes[0] == codes[1]:
    told.append(f"warning: both sides are {codes[0]}. Is one the other's copy?")
  return (codes[0], codes[1]), told
