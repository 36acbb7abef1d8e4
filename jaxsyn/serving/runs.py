"""The runs that are served: opened, and named.

Before this file: `jaxsyn.session`. After it: `batching`.
"""

from __future__ import annotations

import dataclasses
import os
import re
import threading
from collections.abc import Mapping, Sequence
from typing import Any

from jaxsyn.data.sentence.conllu_text import Parse
from jaxsyn.decode.searches import SEARCHES
from jaxsyn.errors import InputError
from jaxsyn.inspection.inspector import Inspector
from jaxsyn.session import Session
from jaxsyn.storage import files, hub
from jaxsyn.trained import workdir
from jaxsyn.trained.member import address

_NAMED = re.compile(r"([\w.-]{1,80})=(.+)")


@dataclasses.dataclass(frozen=True)
class Place:
  """Where a run is.

  Attributes:
    name: by which it is asked for; unique.
    folders: FOLDER or FOLDER@CHECKPOINT of it; of an ensemble several.
  """

  name: str
  folders: tuple[str, ...]


class Served:
  """A run, or an ensemble, that is served.

  Attributes:
    name: by which it is asked for.
    session: that translates.
    most: translations of a sentence that may be asked for.
    why_no_parser: "" where raw text can be parsed.
  """

  def __init__(
    self,
    place: Place,
    *,
    checkpoint: str = "",
    parser: str = "",
    decode: Mapping[str, Any] | None = None,
  ):
    """Opens it, and its parser.

    Args:
      place: see there.
      checkpoint, parser: of `Session`.
      decode: fields of config.decode to change.

    Raises:
      InputError: as `Session`; or there is no such parser.
    """
    decode = dict(decode or {})
    first, *others = place.folders
    decode["nbest"] = _most(first, decode)
    self.name, self.most = place.name, decode["nbest"]
    self.folder = ",".join(_shown(one) for one in place.folders)
    self.session = Session(
      list(place.folders) if others else first,
      checkpoint=checkpoint,
      parser=parser,
      **decode,
    )
    self._parsing = threading.Lock()
    self._inspector: Inspector | None = None
    self.why_no_parser = ""
    try:
      self.session.sources.parser  # noqa: B018
    except InputError as error:
      if parser:
        raise
      self.why_no_parser = str(error)

  def parse(self, line: str) -> Parse:
    """The tree of a raw line.

    Raises:
      InputError: it cannot be parsed.
    """
    with self._parsing:
      sources = self.session.sources
      return sources.parse(sources.fit(line).text)

  def read(self, sources: Sequence[Any]) -> list[Any]:
    """What each sentence is to the model, and whether it is cut.

    In the place of one that cannot be read its InputError.
    """
    with self._parsing:
      try:
        return [*self.session.read(sources)]
      except InputError as error:
        if len(sources) == 1:
          return [error]
    return [self.read([source])[0] for source in sources]

  @property
  def inspector(self) -> Inspector:
    """Raises InputError for an ensemble."""
    if self._inspector is None:
      self._inspector = Inspector(self.session)
    return self._inspector

  def described(self) -> dict[str, Any]:
    """What clients are told of it."""
    first, session = self.session.members[0], self.session
    family = first.plan.config.model.family
    data = first.run.config.data
    return {
      "name": self.name,
      "folder": self.folder,
      "system": ", ".join(one.plan.config.system for one in session.members),
      "checkpoint": session.chosen,
      "tree": session.sources.tree,
      "parser": not self.why_no_parser,
      "languages": {
        "source": data.source_language,
        "target": data.target_language,
      },
      "search": SEARCHES.name_of(session.plan.config.decode.search),
      "beam": session.plan.config.decode.beam,
      "nbest": self.most,
      "layers": {
        place: family.layers(place) for place in ("encoder", "decoder")
      },
      "heads": family.attention_heads(),
    }


def places(words: Sequence[str]) -> list[Place]:
  """The runs that words name.

  Args:
    words: FOLDER, FOLDER@CHECKPOINT, hub:OWNER/NAME, NAME=FOLDER; of an ensemble
      several of them, with commas.

  Raises:
    InputError: two have one name, or one has none.
  """
  if not words:
    raise InputError("name the folder of a trained run: jaxsyn serve RUN")
  given = [_split(word) for word in words]
  parts = [_parts(folders) for _, folders in given]
  names = [name or _shortest(i, parts) for i, (name, _) in enumerate(given)]
  for i, name in enumerate(names):
    if name in names[:i]:
      raise InputError(
        f"two runs are called {name!r}: {words[names.index(name)]} and "
        f"{words[i]}; name one of them: NAME=FOLDER."
      )
  return [Place(name, folders) for name, (_, folders) in zip(names, given)]


def _split(word: str) -> tuple[str, tuple[str, ...]]:
  """(name, folders) of a word of the command line; name "": none is said."""
  named = None if files.is_file(_config(word)) else _NAMED.fullmatch(word)
  name, rest = (named[1], named[2]) if named else ("", word)
  folders = [rest] if files.is_file(_config(rest)) else rest.split(",")
  if not all(folders):
    raise InputError(f"{word!r}: a folder has no name.")
  return name, tuple(folders)


def _config(folder: str) -> Any:
  if hub.is_named(folder):
    return files.path_of("")
  return files.path_of(folder) / workdir.CONFIG


def _parts(folders: Sequence[str]) -> list[str]:
  """The names of the folders above the runs and of theirs, joined, in order."""
  whole = [
    one.removeprefix("hub:") if hub.is_named(one) else _absolute(one)
    for one in folders
  ]
  if len(whole) == 1:
    return [part for part in whole[0].split("/") if part]
  return [",".join(_shown(one) for one in whole)]


def _absolute(folder: str) -> str:
  return folder if "://" in folder else os.path.abspath(folder)


def _shortest(which: int, parts: Sequence[Sequence[str]]) -> str:
  """As few of the last names of a folder as tell it from all others."""
  own = parts[which]
  others = [other for i, other in enumerate(parts) if i != which]
  for count in range(1, len(own) + 1):
    last = own[-count:]
    if all(other[-count:] != last for other in others):
      return "/".join(last)
  return "/".join(own[-1:])


def _shown(folder: str) -> str:
  """The last name of a folder: clients need not know where it lies."""
  if hub.is_named(folder):
    return folder
  return os.path.basename(_absolute(folder).rstrip("/"))


def _most(folder: str, decode: Mapping[str, Any]) -> int:
  """How many translations a search gives for nothing: all that a beam keeps."""
  config = workdir.open_run(address(folder)[0]).config.decode
  search = decode.get("search", SEARCHES.name_of(config.search))
  nbest = decode.get("nbest") or config.nbest
  if search == "sample":
    return nbest
  return max(nbest, decode.get("beam", config.beam))
