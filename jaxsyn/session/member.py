"""Opened runs, of which a session has one or more."""

from __future__ import annotations

import dataclasses
import os
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from jaxsyn.decode.strategies import Decode
from jaxsyn.errors import InputError
from jaxsyn.options import ConfigPath, as_dict, from_config
from jaxsyn.plan import Plan, resolve
from jaxsyn.session import parameters, workdir
from jaxsyn.session.sources import SourceReader
from jaxsyn.storage import files
from jaxsyn.training.checkpoint_reader import Parameters

Folder = str | os.PathLike[str]


@dataclasses.dataclass(frozen=True)
class Member:
  """A run that translates, alone or in an ensemble.

  Attributes:
    run: Config and manifest.
    plan: Resolved config.
    sources: Reader of lines and parses.
    params: Parameters of the chosen checkpoint.
    chosen: Description of the chosen checkpoint.
    messages: Reasons why another checkpoint than requested was chosen.
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
  """Opens a run, and prints its messages to standard error.

  Args:
    folder: Run directory; FOLDER@CHECKPOINT selects a checkpoint.
    checkpoint, parser, longest, decode: See `jaxsyn.session.Session`.
    read: Function that reads the parameters.

  Raises:
    InputError: There is no run or no checkpoint, or the parser is not the run's.
  """
  path, named = address(folder)
  checkpoint = named or checkpoint
  run = workdir.open_run(path)
  plan = _plan(run, decode)
  sources = source_reader(run, plan, longest=longest, parser=parser)
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
  for message in messages:  # not logged, since commands hide logs
    print(f"warning: {run.workdir}: {message}.", file=sys.stderr)
  return Member(run, plan, sources, loaded.params, chosen, tuple(messages))


def source_reader(
  run: workdir.Run, plan: Plan, *, longest: int, parser: Folder = ""
) -> SourceReader:
  """Returns the reader of source sentences for a run.

  Args:
    run: Run directory.
    plan: Plan of the run.
    longest: Maximum number of subwords of a source, including EOS.
    parser: Path of the parser, if it is not in the run directory.

  Raises:
    InputError: A vocabulary is not the run's, or the data lacks a feature.
  """
  return SourceReader(
    run.workdir,
    run.manifest,
    (run.vocabulary("source"), run.vocabulary("target")),
    features=plan.translation_features,
    tree=run.config.data.tree,
    seed=run.config.seed,
    longest=longest,
    tag=plan.tag,
    parser=parser,
  )


def address(folder: Folder) -> tuple[str, str]:
  """Splits FOLDER@CHECKPOINT into both parts; the checkpoint may be "".

  A run directory whose name has this form is opened as it is.
  """
  named = re.fullmatch(r"(.+)@(best|last|\d+)", os.fspath(folder))
  if named is None or files.is_file(files.path_of(folder) / workdir.CONFIG):
    return os.fspath(folder), ""
  return named[1], named[2]


def check_weights(folders: Sequence[Folder], weights: Sequence[float]) -> None:
  """Raises InputError unless each run has a positive weight, or none has one."""
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
  """Raises InputError if runs have different target vocabularies."""
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
  """Returns config.decode of a run with changed options."""
  fields = as_dict(run.config.decode)
  for name, value in changes.items():
    inner = fields.get(name)
    if isinstance(inner, Mapping) and isinstance(value, Mapping):
      value = {**inner, **value}  # other options of a strategy stay
    fields[name] = value
  return from_config(Decode, fields, ConfigPath("decode"))


def _plan(run: workdir.Run, changes: Mapping[str, Any]) -> Plan:
  """Returns the plan of a run with changed options of config.decode."""
  decode = decode_of(run, changes)
  try:
    return resolve(dataclasses.replace(run.config, decode=decode), run.manifest)
  except InputError as error:
    if changes:  # which may be invalid
      raise
    raise InputError(f"{run.workdir / workdir.CONFIG}: {error}") from None
