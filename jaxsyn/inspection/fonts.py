"""Fonts and widths for words of any script, as far as the machine has them.

matplotlib looks for a missing character in the next family of a list. Here the
list is made: its own font, then installed ones that hold what is missing. A
character that no font holds is drawn as a box; nothing fails.
"""

from __future__ import annotations

import functools
import unicodedata
from collections.abc import Iterable

from matplotlib import font_manager

LETTER = 0.085  # inches of a letter at 10 points, about
BASE = "DejaVu Sans"  # comes with matplotlib


def families(texts: Iterable[str]) -> list[str]:
  """Families for these texts, the usual one first."""
  characters = {c for text in texts for c in text if c.isprintable()}
  fonts = [BASE]
  missing = characters - _covered(font_manager.findfont(BASE))
  for name, path in _installed():
    if not missing:
      break
    if covered := missing & _covered(path):
      fonts.append(name)
      missing -= covered
  return fonts


@functools.cache
def _installed() -> tuple[tuple[str, str], ...]:
  """(family, file) of upright fonts of normal weight."""
  entries = font_manager.fontManager.ttflist
  return tuple(
    sorted(
      {
        (entry.name, entry.fname)
        for entry in entries
        if entry.style == "normal"
        and entry.weight in (400, "normal")
        and not entry.name.startswith("Last Resort")  # boxes for anything
      }
    )
  )


@functools.cache
def _covered(path: str) -> frozenset[str]:
  """The characters that a font file has."""
  try:
    return frozenset(map(chr, font_manager.get_font(path).get_charmap()))
  except (OSError, RuntimeError):  # a broken file is no reason to stop
    return frozenset()


def letters(text: str) -> float:
  """Width in letters; those of East Asia count twice, combining marks nothing."""
  return sum(
    0.0
    if unicodedata.combining(c)
    else 1.8
    if unicodedata.east_asian_width(c) in "WF"
    else 1.0
    for c in text
  )
