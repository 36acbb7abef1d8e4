"""Trained runs that the HTTP service offers: names, models and parsers."""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from jaxsyn.data.sentence import conllu
from jaxsyn.data.sentence.stream import Source
from jaxsyn.decode.strategies import STRATEGIES
from jaxsyn.decode.translator import Translation
from jaxsyn.errors import InputError
from jaxsyn.inspection.inspector import Inspector
from jaxsyn.inspection.sentence import fields_of, render_json
from jaxsyn.serving.readers import ReaderProcesses
from jaxsyn.session import Session, member, workdir
from jaxsyn.storage import files, hub, remote

_NAMED = re.compile(r"([\w.-]{1,80})=(.+)")


def run_locations(arguments: Sequence[str]) -> dict[str, list[str]]:
  """Returns the run directories given on the command line, by run name.

  Args:
    arguments: FOLDER, FOLDER@CHECKPOINT, hub:OWNER/NAME or NAME=FOLDER; for an
      ensemble, several joined by commas. Without NAME, a run has the name of
      its directory.

  Raises:
    InputError: There is no run, two have one name, or one has no directory.
  """
  if not arguments:
    raise InputError("name the folder of a trained run: jaxsyn serve RUN")
  locations: dict[str, list[str]] = {}
  for argument in arguments:
    name, folder = "", argument
    named = _NAMED.fullmatch(argument)
    if named and not _is_run(argument):
      name, folder = named.groups()
    folders = [folder] if _is_run(folder) else folder.split(",")
    if not all(folders):
      raise InputError(f"{argument!r} has a folder without a name.")
    name = name or _directory_names(folders)
    if name in locations:
      raise InputError(
        f"{argument}: another run is called {name!r}; name one of them, as in "
        f"NAME={argument}."
      )
    locations[name] = folders
  return locations


def _is_run(folder: str) -> bool:
  """Returns whether an unsplit string is the path of a local run directory."""
  if hub.is_named(folder) or remote.is_remote(folder):
    return False
  return files.is_file(files.path_of(folder) / workdir.CONFIG)


def _directory_names(folders: Sequence[str]) -> str:
  """Returns the last path components of directories, joined by commas."""
  paths = [
    folder if remote.is_remote(folder) else os.path.abspath(folder)
    for folder in folders
  ]
  return ",".join(path.rstrip("/").rpartition("/")[2] for path in paths)


class ServedRun:
  """Run or ensemble that the service offers.

  Attributes:
    name: Its name in requests.
    session: Session that translates.
    readers: Processes that parse and read sentences.
    max_nbest: Maximum number of translations of a sentence.
  """

  def __init__(
    self,
    name: str,
    folders: Sequence[str],
    *,
    checkpoint: str = "",
    parser: str = "",
    decode: Mapping[str, Any] | None = None,
  ):
    """Opens the run and its parser.

    Args:
      name: Unique name.
      folders: FOLDER or FOLDER@CHECKPOINT; several for an ensemble.
      checkpoint, parser: See `Session`.
      decode: Options of config.decode to change.

    Raises:
      InputError: The run, or a given parser, cannot be opened.
    """
    decode = dict(decode or {})
    decode["nbest"] = _max_nbest(folders[0], decode)
    self.name, self.max_nbest = name, decode["nbest"]
    # Clients need not know where the directories are.
    self._folder = _directory_names(folders)
    self.session = Session(
      folders,
      checkpoint=checkpoint,
      parser=parser,
      **decode,
    )
    self.readers = ReaderProcesses(self.session.reader, must_parse=bool(parser))

  @functools.cached_property
  def inspector(self) -> Inspector:
    """Collector of attention maps; raises InputError for an ensemble."""
    return Inspector(self.session)

  @property
  def batch_size(self) -> int:
    """Number of sentences that the run translates at once, on all devices."""
    decode = self.session.plan.config.decode
    return int(decode.search.batch_size(decode)) * len(self.session.devices)

  @functools.cached_property
  def description(self) -> dict[str, Any]:
    """Description of the run in the response to GET /runs."""
    session = self.session
    config, decode = session.members[0].plan.config, session.plan.config.decode
    family = config.model.family
    return {
      "name": self.name,
      "folder": self._folder,
      "system": ", ".join(one.plan.config.system for one in session.members),
      "checkpoint": session.chosen,
      "tree": session.reader.tree,
      "parser": not self.readers.why_no_parser,
      "languages": {
        "source": config.data.source_language,
        "target": config.data.target_language,
      },
      "search": STRATEGIES.name_of(decode.search),
      "beam": decode.beam,
      "nbest": self.max_nbest,
      "layers": {
        stack: family.layers(stack) for stack in ("encoder", "decoder")
      },
      "heads": family.attention_heads(),
    }

  def inspect(self, source: Source, is_wanted: Callable[[], bool]) -> bytes:
    """Returns a sentence's translation and attention maps as JSON.

    Args:
      source: Raw line or parse.
      is_wanted: Whether the client still waits; otherwise the result is empty.

    Raises:
      InputError: The run is an ensemble, or the sentence has no words, too many
        words, or no tree.
    """
    inspector = self.inspector
    parse = self.readers.parse(source)
    read = inspector.read(parse)
    if read is None:
      raise InputError("the sentence has no words.")
    nbests = self.session.search(
      [(read.example,)], is_wanted=lambda _: is_wanted()
    )
    if not is_wanted():
      return b""
    ((_, inspected),) = inspector.inspect([read], nbests)
    fields = fields_of(inspected, 1)
    fields["conllu"] = conllu.to_text(parse, "1", is_complete=True)
    fields["nbest"] = nbest_fields(nbests[0])
    return render_json(fields).encode()


def nbest_fields(nbest: Sequence[Translation]) -> list[dict[str, Any]]:
  """Returns the JSON fields of each translation in an n-best list."""
  return [
    {"text": one.text, "score": one.score, "log_p": one.log_p} for one in nbest
  ]


def _max_nbest(folder: str, decode: Mapping[str, Any]) -> int:
  """Returns the maximum number of translations that a run can return."""
  run = workdir.open_run(member.address(folder)[0])
  options = member.decode_of(run, decode)
  return max(options.nbest, options.search.hypotheses(options))
