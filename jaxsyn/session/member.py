"""Runs opened for translation: config, parameters and source reader."""

from __future__ import annotations

import dataclasses
import os
import re
from collections.abc import Mapping, Sequence
from typing import Any

from jaxsyn.decode.sources import SourceReader
from jaxsyn.decode.strategies import Decode
from jaxsyn.errors import InputError
from jaxsyn.options import ConfigPath, as_dict, from_config
from jaxsyn.plan import Plan
from jaxsyn.session import parameters, workdir
from jaxsyn.session.workdir import PathLike, Run
from jaxsyn.storage import files


@dataclasses.dataclass(frozen=True)
class Member:
  """Trained run opened for translation, alone or in an ensemble.

  Attributes:
    run: Config and manifest; config.decode has the changed options.
    sources: Reader of lines and parses.
    params: Parameters of the chosen checkpoint.
    chosen: Description of the chosen checkpoint.
  """

  run: Run
  sources: SourceReader
  params: Any
  chosen: str

  @property
  def plan(self) -> Plan:
    return self.run.plan


def open_member(
  folder: PathLike,
  *,
  checkpoint: str,
  parser: PathLike,
  longest: int,
  decode: Mapping[str, Any],
) -> Member:
  """Opens a run for translation: config, source reader and parameters.

  Args:
    folder: Run directory; FOLDER@CHECKPOINT selects a checkpoint.
    checkpoint, parser, longest, decode: See `jaxsyn.session.Session`.

  Raises:
    InputError: There is no run or no checkpoint, or the parser is not the run's.
  """
  path, named = address(folder)
  run = _with_decode(workdir.open_run(path), decode)
  sources = source_reader(run, longest=longest, parser=parser)
  loaded = parameters.read(run, named or checkpoint)
  return Member(run, sources, loaded.params, loaded.title)


def source_reader(
  run: Run, *, longest: int, parser: PathLike = ""
) -> SourceReader:
  """Returns a reader that converts source sentences for a run's model.

  Args:
    run: Opened run.
    longest: Maximum number of subwords of a source, including EOS.
    parser: Path of the parser, if it is not in the run directory.

  Raises:
    InputError: A vocabulary is not the run's, or the data lacks a feature.
  """
  return SourceReader(
    run.workdir,
    run.manifest,
    (run.vocabulary("source"), run.vocabulary("target")),
    features=run.source_features,
    tree=run.config.data.tree,
    seed=run.config.seed,
    longest=longest,
    tag=run.plan.tag,
    parser=parser,
  )


def address(folder: PathLike) -> tuple[str, str]:
  """Splits FOLDER@CHECKPOINT into its two parts; the checkpoint may be "".

  A run directory whose name has this form is opened as it is.
  """
  named = re.fullmatch(r"(.+)@(best|last|\d+)", os.fspath(folder))
  if named is None or files.is_file(files.path_of(folder) / workdir.CONFIG):
    return os.fspath(folder), ""
  return named[1], named[2]


def normalized_weights(weights: Sequence[float], runs: int) -> list[float]:
  """Returns the weights of an ensemble, normalized to sum to 1.

  Args:
    weights: Positive weight of each run; empty: equal weights.
    runs: Number of runs.

  Raises:
    InputError: There is no run, or not one positive weight for each.
  """
  if not runs:
    raise InputError("no run to translate with: name its folder.")
  weights = [float(weight) for weight in weights] or [1.0] * runs
  if len(weights) != runs:
    raise InputError(
      f"{len(weights)} weights for {runs} runs; give one for each, the first "
      "run's first."
    )
  for weight in weights:
    if not 0 < weight < float("inf"):
      raise InputError(f"the weight {weight} of a run must be above 0.")
  return [weight / sum(weights) for weight in weights]


def check_targets(members: Sequence[Member]) -> None:
  """Raises InputError if runs have different target vocabularies."""
  first = members[0]
  expected = first.sources.vocabularies[1].sha256
  for member in members[1:]:
    sha256 = member.sources.vocabularies[1].sha256
    if sha256 != expected:
      raise InputError(
        f"{first.run.workdir} and {member.run.workdir} have other target "
        f"vocabularies (SHA-256 {expected[:12]}… and {sha256[:12]}…): an "
        "ensemble chooses each subword together. Prepare the data of one with "
        "the other's: config.prepare.vocabulary.like."
      )


def decode_of(run: Run, changes: Mapping[str, Any]) -> Decode:
  """Returns a run's config.decode with some options changed."""
  fields = as_dict(run.config.decode)
  for name, value in changes.items():
    inner = fields.get(name)
    if isinstance(inner, Mapping) and isinstance(value, Mapping):
      value = {**inner, **value}  # other options of a strategy stay
    fields[name] = value
  return from_config(Decode, fields, ConfigPath("decode"))


def _with_decode(run: Run, changes: Mapping[str, Any]) -> Run:
  """Returns the run with changed config.decode options, after checks."""
  config = dataclasses.replace(run.config, decode=decode_of(run, changes))
  run = dataclasses.replace(run, config=config)
  try:
    _ = run.plan
  except InputError as error:
    if changes:  # which may be invalid
      raise
    raise InputError(f"{run.workdir / workdir.CONFIG}: {error}") from None
  return run
