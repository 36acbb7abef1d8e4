"""One run made ready: config, sources and parameters. A session has one or more.

Before this file: `sources`, `parameters`. After it: `jaxsyn.session`.
"""

from __future__ import annotations

import dataclasses
import os
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from jaxsyn.decode.strategy import Decode
from jaxsyn.errors import InputError
from jaxsyn.options import ConfigPath, as_dict, from_config
from jaxsyn.plan import Plan, resolve
from jaxsyn.storage import files
from jaxsyn.trained import parameters, workdir
from jaxsyn.trained.sources import SourceReader
from jaxsyn.training.reader import Parameters

Folder = str | os.PathLike[str]


@dataclasses.dataclass(frozen=True)
class Member:
  """A run that translates, alone or with others.

  Attributes:
    run: config and manifest.
    plan: the resolved config.
    sources: makes examples of lines and parses.
    params: parameters of the chosen checkpoint.
    chosen: which that is, and by what, in words.
    notes: why it is not the one that was asked for, in sentences.
  """

  run: workdir.Run
  plan: Plan
  sources: SourceReader
  params: Any
  chosen: str
  messages: tuple[str, ...]


def open_member(
  folder: Folder,
  *,
  checkpoint: str,
  parser: Folder,
  longest: int,
  decode: Mapping[str, Any],
  read: Callable[..., Parameters] = parameters.read,
) -> Member:
  """Opens a run, and says its notes on standard error.

  Args:
    folder: of the run; FOLDER@CHECKPOINT names a checkpoint of it.
    checkpoint, parser, longest, decode: as of `jaxsyn.session.Session`.
    read: reads its parameters.

  Raises:
    InputError: no run, no checkpoint, another parser than the run's.
  """
  path, named = address(folder)
  checkpoint = named or checkpoint
  run = workdir.open_run(path)
  plan = _plan(run, decode)
  sources = SourceReader(run, plan, longest=longest, parser=parser)
  messages: list[str] = []
  loaded = read(
    *(run, plan, sources.features),
    checkpoint=checkpoint,
    on_fallback=messages.append,
  )
  requested = checkpoint or plan.config.decode.checkpoint
  chosen = parameters.title(loaded, requested)
  unchosen = not (loaded.score or messages or loaded.title)
  if requested == "best" and len(loaded.steps) == 1 and unchosen:
    messages.append(
      f"no checkpoint was chosen by a validation yet: it is {chosen}"
    )
  for message in messages:  # not by a log, which commands keep quiet
    print(f"warning: {run.workdir}: {message}.", file=sys.stderr)
  return Member(run, plan, sources, loaded.params, chosen, tuple(messages))


def address(folder: Folder) -> tuple[str, str]:
  """(folder, checkpoint) of FOLDER@CHECKPOINT; (folder, "") of a folder alone.

  A run in a folder of such a name is that run.
  """
  named = re.fullmatch(r"(.+)@(best|last|\d+)", os.fspath(folder))
  if named is None or files.is_file(files.path_of(folder) / workdir.CONFIG):
    return os.fspath(folder), ""
  return named[1], named[2]


def check_weights(folders: Sequence[Folder], weights: Sequence[float]) -> None:
  """Raises InputError unless there is a positive weight for each run, or none."""
  if not folders:
    raise InputError("no run to translate with: name its folder.")
  if weights and len(weights) != len(folders):
    raise InputError(
      f"{len(weights)} weights for {len(folders)} runs; give one for each, the "
      "first run's first."
    )
  for weight in weights:
    if not 0 < weight < float("inf"):
      raise InputError(f"the weight {weight} of a run must be above 0.")


def check_targets(members: Sequence[Member]) -> None:
  """Raises InputError where runs do not write the same subwords."""
  first, *other_members = (
    (one.run.workdir, one.run.vocabulary("target")) for one in members
  )
  for folder, vocabulary in other_members:
    if vocabulary.sha256 != first[1].sha256:
      raise InputError(
        f"{first[0]} and {folder} have other target vocabularies (SHA-256 "
        f"{first[1].sha256[:12]}… and {vocabulary.sha256[:12]}…): an ensemble "
        "chooses each subword together. Prepare the data of one with the "
        "other's: config.prepare.vocabulary.like."
      )


def decode_of(run: workdir.Run, changes: Mapping[str, Any]) -> Decode:
  """config.decode of a run, with other fields."""
  fields = as_dict(run.config.decode)
  for name, value in changes.items():
    inner = fields.get(name)
    if isinstance(inner, Mapping) and isinstance(value, Mapping):
      value = {**inner, **value}  # of a search, what is not said stays
    fields[name] = value
  return from_config(Decode, fields, ConfigPath("decode"))


def _plan(run: workdir.Run, changes: Mapping[str, Any]) -> Plan:
  """The plan of a run, with other fields of config.decode."""
  decode = decode_of(run, changes)
  try:
    return resolve(dataclasses.replace(run.config, decode=decode), run.manifest)
  except InputError as error:
    if changes:  # which may be the fault
      raise
    raise InputError(f"{run.workdir / workdir.CONFIG}: {error}") from None
