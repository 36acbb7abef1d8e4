"""Reader for WMT test sets in SGML or XML; each segment becomes a line.

  <srcset setid="newstest2015" srclang="any">
  <doc docid="..."><p>
  <seg id="1">India and Japan ...</seg>

`jaxsyn.data.sentence.text` detects such a file by its content and reads its
segments, in the order of the file, wherever lines of text are read. Formats: the
DTD of NIST's mteval script, and the <dataset> of WMT since 2021.
"""

from __future__ import annotations

import html
import re
from collections.abc import Mapping

from jaxsyn.errors import InputError

LARGEST = 1 << 28  # bytes
_MARKS = (
  *(b"<srcset", b"<refset", b"<tstset", b"<mteval", b"<!doctype mteval"),
  *(b"<?xml", b"<dataset"),
)
_SETS = ("srcset", "refset", "tstset", "src", "ref", "hyp")
_NAMES = ("refid", "sysid", "translator", "system")  # of sets
_TAG = re.compile(
  rf"<!--.*?-->|<(/?)({'|'.join(_SETS)}|mteval|dataset|doc|seg)\b([^<>]*)>",
  re.IGNORECASE | re.DOTALL,
)
_ATTRIBUTE = re.compile(
  r"([\w:]+)\s*=\s*(?:\"([^\"]*)\"|'([^']*)'|([^\s\"']+))"
)
_ENTITY = re.compile(r"&(?:#\d+|#[xX][0-9a-fA-F]+|[A-Za-z]\w*);")
_BLANKS = re.compile(r"[ \t\r\n]+")


def detect(start: bytes) -> bool | None:
  """Returns whether a file is an SGML or XML test set, by its first bytes.

  Returns None if there are too few bytes to decide.
  """
  start = start.removeprefix(b"\xef\xbb\xbf").lstrip(b" \t\r\n")[:32].lower()
  if start.startswith(_MARKS):
    return True
  return None if any(mark.startswith(start) for mark in _MARKS) else False


def lines_of(data: bytes, name: str) -> list[str]:
  """Returns the segments of an SGML or XML test set, one line of text each.

  White space is normalized.

  Args:
    data: Content of the file.
    name: File name for messages.

  Raises:
    InputError: The file is malformed (the message has FILE:LINE), or does not have
      exactly one set (a source, a reference or the output of one system).
  """
  text = _decoded(data, name)

  def fault(at: int, what: str) -> InputError:
    line = text.count("\n", 0, at) + 1
    return InputError(f"{name}:{line}: {what}. Correct the file.")

  sets: dict[str, list[str]] = {}
  current, opened, last = "", -1, ""  # set; end of an open <seg>; its id
  opening = 0
  for tag in _TAG.finditer(text):
    closing, kind = bool(tag[1]), (tag[2] or "").lower()
    if not kind or (opened >= 0 and kind in _SETS and not closing):
      continue  # a comment, or text that only looks like a set
    if kind == "seg" and closing:
      if opened < 0:
        raise fault(tag.start(), "</seg> closes no <seg>")
      sets.setdefault(current, []).append(_plain(text[opened : tag.start()]))
      opened = -1
    elif opened >= 0:
      raise fault(opening, "this <seg> is not closed")
    elif kind == "seg":
      if not current:
        raise fault(
          tag.start(), "this <seg> is in no set (srcset, refset, tstset, ...)"
        )
      segment_id = _attributes(tag[3]).get("id", "")
      if segment_id.isdecimal():
        if last and int(segment_id) <= int(last):
          raise fault(
            tag.start(), f"in a document id {segment_id} follows id {last}"
          )
        last = segment_id
      opened, opening = tag.end(), tag.start()
    else:
      last = ""
      if kind in _SETS:
        current = "" if closing else _set(kind, _attributes(tag[3]))
  if opened >= 0:
    raise fault(opening, "this <seg> is not closed")
  if not sets:
    raise InputError(
      f"{name} is XML or SGML, but has no <seg> of a test set. Give plain text,"
      " a sentence a line."
    )
  if len(sets) > 1:
    raise InputError(
      f"{name} has several sets: {', '.join(sets)}. Write one of them to a file"
      " of its own."
    )
  (lines,) = sets.values()
  return lines


def _set(kind: str, attributes: Mapping[str, str]) -> str:
  names = [attributes[name] for name in _NAMES if attributes.get(name)]
  return " ".join([kind, *names])


def _attributes(text: str) -> dict[str, str]:
  return {
    name.lower(): double or single or bare
    for name, double, single, bare in _ATTRIBUTE.findall(text)
  }


def _plain(text: str) -> str:
  """Returns the text of a segment with entities and white space replaced.

  A bare "&", as in AT&T, stays: not all files escape it.
  """
  text = _ENTITY.sub(lambda match: html.unescape(match[0]), text)
  return _BLANKS.sub(" ", text).strip(" ")


def _decoded(data: bytes, name: str) -> str:
  try:
    return data.decode("utf-8-sig")
  except UnicodeDecodeError as error:
    line = data.count(b"\n", 0, error.start) + 1
    raise InputError(
      f"{name}:{line}: byte 0x{data[error.start]:02x} is not UTF-8. Convert the"
      " file: iconv -f latin1 -t utf-8 (say which encoding it has)."
    ) from None
