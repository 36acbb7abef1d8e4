"""Raw text: found or fetched, and checked.

Lines are those of `jaxsyn.data.sentence.text`; a treebank in CoNLL-U gives the sentences
that its `# text` comments hold. After this comes `preprocess.clean`.
"""

from __future__ import annotations

import dataclasses
import itertools
import pathlib
import re
from collections.abc import Mapping, Sequence

from jaxsyn.data.sentence import conllu
from jaxsyn.data.sentence.stream import is_conllu
from jaxsyn.data.sentence.text import read_lines
from jaxsyn.data.store import fetch, manifests
from jaxsyn.errors import InputError
from jaxsyn.files import sha256_of


@dataclasses.dataclass(frozen=True)
class Pairs:
  """The lines of a split, one pair a line.

  Attributes:
    source, target: the texts, as they are in the files.
    files: the two files.
    sha256: hash of all lines of both.
  """

  source: list[str]
  target: list[str]
  files: tuple[pathlib.Path, pathlib.Path]
  sha256: str

  def __len__(self) -> int:
    return len(self.source)


def read_pairs(source: pathlib.Path, target: pathlib.Path) -> Pairs:
  """Two parallel files.

  Raises:
    InputError: a file cannot be read (see `read_lines` and `sentences`), or one
      has more lines.
  """
  ours, theirs = (
    sentences(path) if is_conllu(path) else read_lines(path)
    for path in (source, target)
  )
  if len(ours) != len(theirs):
    short = min(len(ours), len(theirs))
    raise InputError(
      f"{source} has {len(ours)} lines, but {target} has {len(theirs)}:"
      " line N of one must be the translation of line N of the other. Look at"
      f" line {short + 1} of the longer file, and before."
    )
  digest = manifests.sha256_texts(itertools.chain(ours, theirs))
  return Pairs(ours, theirs, files=(source, target), sha256=digest)


def sentences(path: pathlib.Path) -> list[str]:
  """The lines of a treebank: the `# text` comment of each sentence.

  Raises:
    InputError: malformed CoNLL-U (`jaxsyn.data.sentence.conllu.read`), a sentence
      without a text, or one whose text holds a line break (such as U+2028);
      names FILE:LINE.
  """
  lines = []
  for block in conllu.read(path):
    line, where = block.comment_text, f"{path}:{block.line}"
    if not line:
      raise InputError(
        f"{where}: this sentence has no `# text = ...` comment, so what it"
        " reads is not known. Give the text as a plain file in"
        " config.prepare.splits, and this file in config.prepare.parse."
      )
    if len(line.splitlines()) > 1:
      raise InputError(
        f"{where}: the text of this sentence has a line break in it:"
        f" {line[:60]!r}. Mend the file: one sentence is one line."
      )
    lines.append(line)
  return lines


def addresses(downloads: Sequence[Sequence[str]]) -> dict[str, fetch.Download]:
  """config.prepare.downloads by file name.

  Raises:
    InputError: an entry is not (file name, URL, SHA-256[, bytes]), or a name is
      a path or comes twice.
  """
  found: dict[str, fetch.Download] = {}
  for entry in downloads:
    missing = ("", "", "", str(fetch.MOST))[len(entry) :]
    name, url, sha256, most = (*entry, *missing)[:4]
    if (
      len(entry) not in (3, 4)
      or not re.fullmatch(r"[^/\0.][^/\0]*", name)
      or name in found
      or not re.fullmatch("([0-9a-fA-F]{64})?", sha256)
      or not re.fullmatch("[0-9]{1,15}", most)
    ):
      raise InputError(
        "config.prepare.downloads must hold (file name, URL, SHA-256 or"
        ' "", perhaps the most bytes as in "5000000"), each file name once and'
        f" without folders, got {tuple(entry)!r}."
      )
    found[name] = fetch.Download(url, sha256.lower(), int(most))
  return found


def find(
  name: str,
  raw_dir: str,
  *,
  own: pathlib.Path,
  downloads: Mapping[str, fetch.Download],
) -> pathlib.Path:
  """The file of a name: in raw_dir, else fetched before, else fetched now.

  Args:
    name: as config.prepare.splits gives it.
    raw_dir: the user's folder; "" for none.
    own: folder for fetched files.
    downloads: of `addresses`.

  Raises:
    InputError: there is none and it cannot be fetched, or it is another file
      than the config expects.
  """
  path = pathlib.Path(raw_dir) / name
  if raw_dir and path.is_file():
    expected = downloads[name].sha256 if name in downloads else ""
    if expected and (actual := sha256_of(path)) != expected:
      raise InputError(
        f"{path} is not the file that the config means: its SHA-256 is"
        f" {actual}, config.prepare.downloads says {expected}. Delete it to"
        " have it fetched, or take it out of config.prepare.downloads to use"
        " your own."
      )
    return path
  path = own / name
  if name in downloads:
    try:
      fetch.get(path, downloads[name])
    except InputError as error:
      raise InputError(
        f"raw file {name} cannot be fetched from {downloads[name].url}"
        f" ({error}). Try again, fetch it by hand to {path}, or give its folder"
        " as --raw_dir."
      ) from None
  elif not path.is_file():
    place = f"not in {raw_dir}" if raw_dir else "nowhere: --raw_dir is not set"
    raise InputError(
      f"raw file {name} is {place}, and config.prepare.downloads gives no"
      " address for it. Give the folder of the raw files as --raw_dir, or make"
      " them as the head of the config's file says."
    )
  return path
