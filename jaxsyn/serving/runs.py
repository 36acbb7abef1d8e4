"""The runs that are served: opened, and named.

Before this file: `jaxsyn.session`, `reading`. After it: `batching`.
"""

from __future__ import annotations

import dataclasses
import functools
import os
import re
from collections.abc import Mapping, Sequence
from typing import Any

from jaxsyn.decode.strategies import STRATEGIES
from jaxsyn.errors import InputError
from jaxsyn.inspection.inspector import Inspector
from jaxsyn.serving.reading import Reading
from jaxsyn.session import Session
from jaxsyn.storage import files, hub, remote
from jaxsyn.trained import member, workdir

_NAMED = re.compile(r"([\w.-]{1,80})=(.+)")


@dataclasses.dataclass(frozen=True)
class RunLocation:
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
    reading: that parses and reads for it.
    most: translations of a sentence that may be asked for.
  """

  def __init__(
    self,
    place: RunLocation,
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
      InputError: as `Session`; or the parser that is named cannot be opened.
    """
    first, *other_folders = place.folders
    decode = dict(decode or {})
    decode["nbest"] = _max_sentences(first, decode)
    self.name, self.most = place.name, decode["nbest"]
    self._folder = ",".join(map(_shown, place.folders))
    self.session = Session(
      list(place.folders) if other_folders else first,
      checkpoint=checkpoint,
      parser=parser,
      **decode,
    )
    self.reading = Reading(self.session, named=bool(parser))

  @functools.cached_property
  def inspector(self) -> Inspector:
    """Raises InputError for an ensemble."""
    return Inspector(self.session)

  def note(self) -> str:
    """Returns how many programs are compiled; "" while none is."""
    inspector = self.__dict__.get("inspector")  # opened by the first inspection
    programs = [inspector.maps.programs] if inspector else []
    return self.session.note(*programs)

  @functools.cached_property
  def described(self) -> dict[str, Any]:
    """What clients are told of it."""
    first, session = self.session.members[0], self.session
    config, decode = first.plan.config, session.plan.config.decode
    family = config.model.family
    return {
      "name": self.name,
      "folder": self._folder,
      "system": ", ".join(one.plan.config.system for one in session.members),
      "checkpoint": session.chosen,
      "tree": session.reader.tree,
      "parser": not self.reading.why_no_parser,
      "languages": {
        "source": config.data.source_language,
        "target": config.data.target_language,
      },
      "search": STRATEGIES.name_of(decode.search),
      "beam": decode.beam,
      "nbest": self.most,
      "layers": {
        place: family.layers(place) for place in ("encoder", "decoder")
      },
      "heads": family.attention_heads(),
    }

  def close(self) -> None:
    """Ends the processes that read."""
    self.reading.close()


def run_locations(words: Sequence[str]) -> list[RunLocation]:
  """The runs that words name.

  Args:
    words: FOLDER, FOLDER@CHECKPOINT, hub:OWNER/NAME, NAME=FOLDER; of an ensemble
      several of them, with commas.

  Raises:
    InputError: there are none, two have one name, or one has no folder.
  """
  if not words:
    raise InputError("name the folder of a trained run: jaxsyn serve RUN")
  parts = [_split(word) for word in words]
  unnamed = [_parts(folders) for name, folders in parts if not name]
  names = [
    name or _shortest(_parts(folders), unnamed) for name, folders in parts
  ]
  for i, name in enumerate(names):
    if name in names[:i]:
      raise InputError(
        f"two runs are called {name!r}: {words[names.index(name)]} and "
        f"{words[i]}; name one of them, as in NAME={words[i]}."
      )
  return [
    RunLocation(name, folders) for name, (_, folders) in zip(names, parts)
  ]


def _split(word: str) -> tuple[str, tuple[str, ...]]:
  """(name, folders) of a word of the command line; name "": none is said."""
  named = None if _is_run(word) else _NAMED.fullmatch(word)
  name, rest = (named[1], named[2]) if named else ("", word)
  folders = [rest] if _is_run(rest) else rest.split(",")
  if not all(folders):
    raise InputError(f"{word!r} has a folder without a name in it.")
  return name, tuple(folders)


def _is_run(folder: str) -> bool:
  """Whether a folder of such a name, with = or commas in it, is one."""
  if hub.is_named(folder) or remote.is_remote(folder):
    return False
  return files.is_file(files.path_of(folder) / workdir.CONFIG)


def _parts(folders: Sequence[str]) -> list[str]:
  """The names of the folders that a run lies in, and its own; of an ensemble
  all its names as one."""
  if len(folders) > 1:
    return [",".join(map(_shown, folders))]
  (folder,) = folders
  path = folder.removeprefix("hub:")
  path = path if hub.is_named(folder) else _absolute(folder)
  return [part for part in path.split("/") if part]


def _absolute(folder: str) -> str:
  return folder if remote.is_remote(folder) else os.path.abspath(folder)


def _shortest(parts: Sequence[str], all_: Sequence[Sequence[str]]) -> str:
  """As few of the last names of a folder as tell it from all others."""
  other_parts = [other for other in all_ if other != parts]
  for count in range(1, len(parts) + 1):
    last = parts[-count:]
    if all(other[-count:] != last for other in other_parts):
      return "/".join(last)
  return "/".join(parts[-1:])


def _shown(folder: str) -> str:
  """The last name of a folder: clients need not know where it lies."""
  if hub.is_named(folder):
    return folder
  return os.path.basename(_absolute(folder).rstrip("/"))


def _max_sentences(folder: str, decode: Mapping[str, Any]) -> int:
  """Translations that a search has for nothing: all that it keeps."""
  run = workdir.open_run(member.address(folder)[0])
  options = member.decode_of(run, decode)
  return max(options.nbest, options.search.hypotheses(options))
