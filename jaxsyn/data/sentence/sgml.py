"""Reads WMT test sets in SGML or XML; each segment becomes a line.

  <srcset setid="newstest2015" srclang="any">
  <doc docid="..."><p>
  <seg id="1">India and Japan ...</seg>

Formats: the DTD of NIST's mteval script, and the <dataset> of WMT since 2021.
Only their tags count, since segments may have a bare "<" or "&".
"""

from __future__ import annotations

import html
import re

from jaxsyn.errors import InputError

_START = re.compile(
  rb"(\xef\xbb\xbf)?\s*<(srcset|refset|tstset|mteval|!doctype mteval|\?xml|dataset)",
  re.IGNORECASE,
)
# A comment, the tag of a set, a segment, or a tag of an incomplete segment.
_ITEM = re.compile(
  r"<!--.*?-->"
  r"|<(?P<set>/?(?:srcset|refset|tstset|src|ref|hyp)\b[^<>]*)>"
  r"|<seg\b[^<>]*>(?P<segment>(?:(?!</?seg\b).)*)</seg\s*>"
  r"|(?P<incomplete></?seg\b)",
  re.IGNORECASE | re.DOTALL,
)
_ENTITY = re.compile(r"&(?:#\d+|#[xX][0-9a-fA-F]+|[A-Za-z]\w*);")
_BLANKS = re.compile(r"[ \t\r\n]+")


def is_test_set(start: bytes) -> bool:
  """Returns whether a file is an SGML or XML test set, by its first bytes."""
  return bool(_START.match(start[:1024]))


def segments(text: str, name: str) -> list[str]:
  """Returns the segments of a test set, with normalized whitespace.

  Args:
    text: Content of the file.
    name: File name for messages.

  Raises:
    InputError: The file is malformed (the message has `FILE:LINE`), or does not have
      exactly one set (a source, a reference or the output of one system).
  """
  sets: dict[str, list[str]] = {}  # segments by the tag of their set
  current = ""
  for item in _ITEM.finditer(text):
    segment, fault = item["segment"], ""
    if item["set"]:
      current = _BLANKS.sub(" ", item["set"])
    elif item["incomplete"]:
      fault = "this <seg> or </seg> has no counterpart"
    elif segment is not None and (not current or current.startswith("/")):
      fault = "this <seg> is in no set (srcset, refset, ...)"
    elif segment is not None:
      # A bare "&", as in AT&T, stays: not all files escape it.
      segment = _ENTITY.sub(lambda match: html.unescape(match[0]), segment)
      sets.setdefault(current, []).append(_BLANKS.sub(" ", segment).strip(" "))
    if fault:
      line = text.count("\n", 0, item.start()) + 1
      raise InputError(f"{name}:{line}: {fault}. Correct the file.")
  if not sets:
    raise InputError(
      f"{name} is XML or SGML, but has no <seg> of a test set. Give plain text,"
      " one sentence per line."
    )
  if len(sets) > 1:
    raise InputError(
      f"{name} has several sets: <{'>, <'.join(sets)}>. Write one of them to a"
      " separate file."
    )
  (only_set,) = sets.values()
  return only_set
