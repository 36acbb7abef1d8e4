"""Reasons for which training pairs are dropped.

config.prepare.clean has the options. Other splits keep every pair, since all their
translations must be scored.

Letters: P sentence pair.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import numpy as np

from jaxsyn.data import schema
from jaxsyn.data.options import Clean, Prepare
from jaxsyn.data.sentence.align import visible
from jaxsyn.data.sentence.language_codes import short
from jaxsyn.errors import InputError

# All of Unicode's category Cc but the tab.
_CONTROL = re.compile("[\x00-\x08\x0a-\x1f\x7f-\x9f]")

_REASONS = (
  "",
  "empty",
  "control",
  "max_words",
  "max_characters",
  "max_ratio",
  "language",
  "duplicates",
  "subset",
  "max_subwords",
)
# Reason for which a pair is dropped -> its code in arrays; "": the pair is kept.
CODES = {reason: code for code, reason in enumerate(_REASONS)}


def drop_reason(
  source: str, target: str, options: Clean, languages: Sequence[str] = ()
) -> str:
  """Returns the reason for which a training pair is dropped, "" if it is kept.

  Args:
    source, target: Texts of the pair.
    options: Limits; 0 is no limit.
    languages: Required languages from `identified_languages`; (): any.
  """
  # Not strip: zero-width characters alone give no subword.
  if not visible(source) or not visible(target):
    return "empty"
  if _CONTROL.search(source) or _CONTROL.search(target):
    return "control"
  few, many = sorted((len(source.split()), len(target.split())))
  if 0 < options.max_words < many:
    return "max_words"
  if 0 < options.max_characters < max(len(source), len(target)):
    return "max_characters"
  if 0 < options.max_ratio < (many / few if few else float("inf")):
    return "max_ratio"
  if languages:
    import py3langid

    # The most probable language counts, however uncertain; it is deterministic.
    if [py3langid.classify(text)[0] for text in (source, target)] != languages:
      return "language"
  return ""


def identified_languages(codes: Sequence[str]) -> list[str]:
  """Returns py3langid's codes of the source and target languages.

  Raises:
    InputError: py3langid does not identify a language.
  """
  import py3langid

  known = {code for code, _ in py3langid.rank("a")}
  languages = []
  for side, code in zip(schema.SIDES, codes):
    # py3langid has three letters for some languages ("kik"), or two ("ha").
    known_code = next((c for c in (code, short(code)) if c in known), "")
    languages.append(known_code)
    if not known_code:
      raise InputError(
        f"config.data.{side}_language: py3langid does not know {code!r}; it knows"
        f" {', '.join(sorted(known))}. Or set config.prepare.clean.language"
        " to False."
      )
  return languages


def count_dropped(code_P: np.ndarray, prepare: Prepare) -> dict[str, int]:
  """Counts the pairs that are dropped for each reason that the options enable.

  Args:
    code_P: Value of CODES of each pair.
    prepare: Options of preparation.
  """
  options = prepare.clean
  enabled = {
    "": False,
    "max_words": options.max_words,
    "max_characters": options.max_characters,
    "max_ratio": options.max_ratio,
    "language": options.language,
    "duplicates": options.duplicates,
    "subset": prepare.subset.pairs,
  }
  counts = np.bincount(code_P, minlength=len(CODES)).tolist()
  return {r: n for r, n in zip(CODES, counts) if enabled.get(r, True)}


def check_left(dropped: Mapping[str, int], total: int) -> None:
  """Raises InputError if all training pairs are dropped.

  Args:
    dropped: Reason -> number of dropped pairs.
    total: Number of all pairs.
  """
  if sum(dropped.values()) < total:
    return
  listed = ", ".join(f"{reason} {n}" for reason, n in dropped.items() if n)
  raise InputError(
    f"no training pair is left of {total} (dropped: {listed or 'none'}). See"
    " config.prepare.clean and config.prepare.max_subwords, and whether the"
    " files are the right ones."
  )
