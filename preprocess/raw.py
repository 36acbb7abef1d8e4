"""Raw text: found or fetched, and checked.

Lines are those of `jaxsyn.data.text`; a treebank in CoNLL-U gives the sentences
that its `# text` comments hold. After this comes `preprocess.clean`.
"""

from __future__ import annotations

import dataclasses
import http
import http.client
import os
import pathlib
import urllib.error
import urllib.request

from jaxsyn.data import conllu
from jaxsyn.data import manifest as manifests
from jaxsyn.data.text import read_lines
from jaxsyn.errors import InputError

_BLOCK = 1 << 20
_TIMEOUT = 60  # seconds without an answer


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
  lines = tuple(
    sentences(path) if is_treebank(path) else read_lines(path)
    for path in (source, target)
  )
  if len(lines[0]) != len(lines[1]):
    short = min(map(len, lines))
    raise InputError(
      f"{source} has {len(lines[0])} lines, but {target} has {len(lines[1])}:"
      " line N of one must be the translation of line N of the other. Look at"
      f" line {short + 1} of the longer file, and before."
    )
  both = (text for side in lines for text in side)
  return Pairs(*lines, (source, target), manifests.sha256_texts(both))


def is_treebank(path: pathlib.Path) -> bool:
  """Whether a raw file is CoNLL-U, by its name."""
  return path.name.endswith((".conllu", ".conllu.gz"))


def sentences(path: pathlib.Path) -> list[str]:
  """The lines of a treebank: the `# text` comment of each sentence.

  Raises:
    InputError: malformed CoNLL-U (`jaxsyn.data.conllu.read`), a sentence
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


def find(
  name: str,
  raw_dir: str,
  own: pathlib.Path,
  downloads: dict[str, tuple[str, str]],
) -> pathlib.Path:
  """The file of a name: in raw_dir, else fetched before, else fetched now.

  Args:
    name: as config.prepare.splits gives it.
    raw_dir: the user's folder; "" for none.
    own: folder for fetched files.
    downloads: name -> (URL, SHA-256).

  Raises:
    InputError: there is none and it cannot be fetched, or it is another file
      than the config expects.
  """
  places = [pathlib.Path(raw_dir)] if raw_dir else []
  for place in [*places, own]:
    path = place / name
    if path.is_file():
      _check(path, name, downloads)
      return path
  if name not in downloads:
    where = f"not in {raw_dir}" if raw_dir else "nowhere: --raw_dir is not set"
    raise InputError(
      f"raw file {name} is {where}, and config.prepare.downloads gives no"
      " address for it. Give the folder of the raw files as --raw_dir, or make"
      " them as the head of the config's file says."
    )
  return _fetch(name, *downloads[name], own)


def _check(path: pathlib.Path, name: str, downloads) -> None:
  expected = downloads[name][1] if name in downloads else ""
  if expected and (found := manifests.sha256_file(path)) != expected:
    raise InputError(
      f"{path} is not the file that the config means: its SHA-256 is {found},"
      f" config.prepare.downloads says {expected}. Delete it to have it fetched,"
      " or take it out of config.prepare.downloads to use your own."
    )


def _fetch(name: str, url: str, sha256: str, own: pathlib.Path) -> pathlib.Path:
  """Fetches a file; what an interrupted run fetched is not fetched again."""
  own.mkdir(parents=True, exist_ok=True)
  path = own / name
  partial = own / (name + ".partial")
  done = partial.stat().st_size if partial.exists() else 0
  request = urllib.request.Request(url, headers={"User-Agent": "jaxsyn"})
  if done:
    request.add_header("Range", f"bytes={done}-")
  print(f"fetching {url}")
  try:
    with urllib.request.urlopen(request, timeout=_TIMEOUT) as answer:
      goes_on = answer.status == http.HTTPStatus.PARTIAL_CONTENT
      with open(partial, "ab" if goes_on else "wb") as file:
        while block := answer.read(_BLOCK):
          file.write(block)
  except urllib.error.HTTPError as error:
    # All of it was there already, or it changed: start afresh next time.
    partial.unlink(missing_ok=True)
    raise _unfetched(name, url, own, error) from None
  except (
    urllib.error.URLError,
    http.client.HTTPException,
    TimeoutError,
  ) as error:
    raise _unfetched(name, url, own, error) from None
  found = manifests.sha256_file(partial)
  if found != sha256:
    partial.unlink()
    raise InputError(
      f"{url} has changed or was cut off: its SHA-256 is {found}, the config"
      f" says {sha256}. Try again; if it stays so, the publisher changed it."
    )
  os.replace(partial, path)
  return path


def _unfetched(name, url, own, error) -> InputError:
  return InputError(
    f"raw file {name} cannot be fetched from {url} ({error}). Try again, fetch"
    f" it by hand to {own / name}, or give its folder as --raw_dir."
  )
