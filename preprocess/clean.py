"""Filters of training pairs, and the reasons for which pairs are dropped.

config.prepare.clean has the options of the filters. Other splits keep every pair,
since all their translations must be scored.

Letters: P sentence pair.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Mapping

import numpy as np

from jaxsyn.data import schema
from jaxsyn.data.options import Clean, Prepare
from jaxsyn.data.sentence.align import visible
from jaxsyn.data.sentence.language_codes import short
from jaxsyn.errors import InputError

# All of Unicode's category Cc but the tab.
CONTROL = re.compile("[\x00-\x08\x0a-\x1f\x7f-\x9f]")

Filter = Callable[[str, str], bool]  # returns whether a pair is dropped


def _is_empty(source: str, target: str) -> bool:
  # Not strip: zero-width characters alone give no subword.
  return not visible(source) or not visible(target)


def _has_control(source: str, target: str) -> bool:
  return bool(CONTROL.search(source) or CONTROL.search(target))


def _has_many_words(source: str, target: str, limit: float) -> bool:
  return max(len(source.split()), len(target.split())) > limit


def _has_many_characters(source: str, target: str, limit: float) -> bool:
  return max(len(source), len(target)) > limit


def _has_large_ratio(source: str, target: str, limit: float) -> bool:
  few, many = sorted((len(source.split()), len(target.split())))
  return (many / few if few else float("inf")) > limit


# Option, and reason in reports -> function that returns whether a pair is
# dropped, given the value of the option. A value of 0 is no filter.
LIMITS: dict[str, Callable[..., bool]] = {
  "max_words": _has_many_words,
  "max_characters": _has_many_characters,
  "max_ratio": _has_large_ratio,
}


def drop_codes(prepare: Prepare) -> dict[str, int]:
  """Returns the code of each reason for which training pairs may be dropped.

  An array of codes has 0 for a pair that is kept.
  """
  options = prepare.clean
  reasons = ["empty", "control"]
  reasons += [name for name in LIMITS if getattr(options, name) > 0]
  reasons += ["language"] if options.language else []
  reasons += ["duplicates"] if options.duplicates else []
  reasons += ["subset"] if prepare.subset.pairs else []
  reasons.append("max_subwords")
  return {reason: code for code, reason in enumerate(reasons, 1)}


def count_dropped(
  code_P: np.ndarray, codes: Mapping[str, int]
) -> dict[str, int]:
  """Counts the pairs that are dropped for each reason, given their codes."""
  counts = np.bincount(code_P, minlength=len(codes) + 1)
  return {reason: int(counts[code]) for reason, code in codes.items()}


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


def filters(
  options: Clean, source_language: str, target_language: str
) -> dict[str, Filter]:
  """Returns the filter of each reason, in the order of `drop_codes`."""
  selected: dict[str, Filter] = {"empty": _is_empty, "control": _has_control}
  for reason, function in LIMITS.items():
    limit = getattr(options, reason)
    if limit > 0:
      selected[reason] = functools.partial(function, limit=limit)
  if options.language:
    selected["language"] = _language_filter(source_language, target_language)
  return selected


def _language_filter(source_language: str, target_language: str) -> Filter:
  """Returns a filter that drops pairs with a side in the wrong language.

  The most probable language counts, however uncertain. py3langid is
  deterministic.
  """
  import py3langid

  known = {code for code, _ in py3langid.rank("a")}
  wanted = []
  for side, code in zip(schema.SIDES, (source_language, target_language)):
    # py3langid has three letters for some languages ("kik"), or two ("ha").
    known_code = next((c for c in (code, short(code)) if c in known), "")
    wanted.append(known_code)
    if not known_code:
      raise InputError(
        f"config.data.{side}_language: py3langid does not know {code!r}; it knows"
        f" {', '.join(sorted(known))}. Or set config.prepare.clean.language"
        " to False."
      )

  def is_other(source: str, target: str) -> bool:
    return [py3langid.classify(text)[0] for text in (source, target)] != wanted

  return is_other
