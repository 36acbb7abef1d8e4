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
_TAG = re.compile(
  r"<!--.*?-->|<(/?)((srcset|refset|tstset|src|ref|hyp|seg)\b[^<>]*)>",
  re.IGNORECASE | re.DOTALL,
)
_ENTITY = re.compile(r"&(?:#\d+|#[xX][0-9a-fA-F]+|[A-Za-z]\w*);")
_BLANKS = re.compile(r"[ \t\r\n]+")


def is_test_set(start: bytes) -> bool:
  """Returns whether a file is an SGML or XML test set, by its first bytes."""
  return bool(_START.match(start[:1024]))


def lines_of(data: bytes, name: str) -> list[str]:
  """Returns the segments of a test set as lines with normalized whitespace.

  Args:
    data: Content of the file.
    name: File name for messages.

  Raises:
    InputError: The file is malformed (the message has `FILE:LINE`), or does not have
      exactly one set (a source, a reference or the output of one system).
  """
  text = _decoded(data, name)
  sets: dict[str, list[str]] = {}  # segments by the tag of their set
  current = ""
  opened: re.Match[str] | None = None  # tag of an open <seg>
  for tag in _TAG.finditer(text):
    is_end, kind = bool(tag[1]), (tag[3] or "").lower()
    if opened and kind and is_end == (kind != "seg"):
      raise _error(name, text, opened, "this <seg> is not closed")
    if kind == "seg":
      if is_end and not opened:
        raise _error(name, text, tag, "</seg> closes no <seg>")
      if not current:
        raise _error(
          name, text, tag, "this <seg> is in no set (srcset, refset, ...)"
        )
      if opened:
        segment = text[opened.end() : tag.start()]
        sets.setdefault(current, []).append(_plain(segment))
      opened = None if is_end else tag
    elif kind and not opened:  # in a segment it is text
      current = "" if is_end else _BLANKS.sub(" ", tag[2])
  if opened:
    raise _error(name, text, opened, "this <seg> is not closed")
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
  (lines,) = sets.values()
  return lines


def _error(
  name: str, text: str, tag: re.Match[str], message: str
) -> InputError:
  line = text.count("\n", 0, tag.start()) + 1
  return InputError(f"{name}:{line}: {message}. Correct the file.")


def _plain(text: str) -> str:
  # A bare "&", as in AT&T, stays: not all files escape it.
  text = _ENTITY.sub(lambda match: html.unescape(match[0]), text)
  return _BLANKS.sub(" ", text).strip(" ")


def _decoded(data: bytes, name: str) -> str:
  try:
    return data.decode("utf-8-sig")
  except UnicodeDecodeError as error:
    line = data.count(b"\n", 0, error.start) + 1
    raise InputError(
      f"{name}:{line}: byte 0x{data[error.start]:02x} is not UTF-8. Convert the"
      " file: iconv -f latin1 -t utf-8 (or the encoding that it has)."
    ) from None
