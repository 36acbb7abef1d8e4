"""Run directories, each of which contains all that translation needs.

  config.json          the complete config
  manifest.json        manifest of the training data: hashes, relations
  mixture.json         hashes of the other corpora, if any
  start.json           origin of the initial parameters, after a warm start
  wrong_parents.json   share of wrong parents, if the trees have any on purpose
  teachers.json        checksums of the teachers' parameters, if any
  vocabulary.model     the SentencePiece model, or source.model, target.model
  parser.source.udpipe the parser, if it is a file
  checkpoints/ best/   see `jaxsyn.training.checkpoint_writer`
  log.jsonl, events.*  logs of the training
  lock                 process that trains: see `jaxsyn.storage.lock`

A run directory can be moved or copied to another machine.
"""

from __future__ import annotations

import dataclasses
import functools
import os
import pathlib
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from jaxsyn.config import Config, as_dict, read_config
from jaxsyn.data import schema
from jaxsyn.data.sentence.controls import WrongParents
from jaxsyn.data.sentence.parsers import recorded
from jaxsyn.data.sentence.vocabulary import Vocabulary
from jaxsyn.data.store import manifests
from jaxsyn.errors import InputError
from jaxsyn.options import CHECKPOINT_MODE, flat, resumable_options
from jaxsyn.plan import Plan, resolve
from jaxsyn.storage import checksums, files, hub
from jaxsyn.training.checkpoint_reader import CheckpointReader

CONFIG = "config.json"
MIXTURE = "mixture.json"
WRONG_PARENTS = "wrong_parents.json"

PathLike = str | os.PathLike[str]
SHOWN = 5  # config differences or names in a message


@dataclasses.dataclass(frozen=True)
class Run:
  """An opened run directory, or an exported model."""

  workdir: pathlib.Path
  config: Config
  manifest: dict[str, Any]

  @functools.cached_property
  def plan(self) -> Plan:
    """Plan of the run: its resolved config."""
    return resolve(self.config, self.manifest)

  @property
  def source_features(self) -> tuple[str, ...]:
    """Source features that the model reads (InputError if one is missing)."""
    required = self.plan.translation_features
    names = schema.features_for(self.manifest, required)
    return tuple(name for name in names if name.startswith("source"))

  def vocabulary(self, side: str) -> Vocabulary:
    """Loads the vocabulary of a side, and verifies its hash."""
    try:
      return manifests.vocabulary(self.workdir, self.manifest, side)
    except InputError as error:
      raise InputError(
        f"{error} It is the copy in the run directory {self.workdir}. The "
        f"training command restores it from {self.config.data.directory}."
      ) from None


def open_run(workdir: PathLike) -> Run:
  """Opens a run directory or an exported model, which may be on a hub.

  Raises:
    InputError: The directory has no run, or its files are corrupt or of another
      version.
  """
  if hub.is_named(workdir):
    workdir = hub.fetched(workdir)
  workdir = files.path_of(workdir)
  path = workdir / CONFIG
  if not files.is_file(path):
    raise InputError(
      f"{workdir} is not the folder of a run: it has no {CONFIG}. Train first: "
      f"jaxsyn train --config FILE --workdir {workdir}"
    )
  # The checksum also detects a changed number, which would be a valid config.
  document = read_record(
    path,
    "Restore it from a copy. To change options of a run, set them on the "
    "command line.",
  )
  try:
    config = read_config(document, CHECKPOINT_MODE)
  except InputError as error:
    raise InputError(
      f"{path}: {error} It is corrupt, or was written by another version."
    ) from None
  try:
    return Run(workdir, config, manifests.read(workdir))
  except InputError as error:
    raise InputError(
      f"{error} It is the copy in a run directory: copy {manifests.FILE} from "
      f"{config.data.directory}, if that still has the training data."
    ) from None


def create(workdir: PathLike, config: Config) -> Run:
  """Creates a run directory, or checks that a run can be resumed.

  A directory without checkpoints may have another config. Missing or corrupt
  copies of the vocabulary and the parser are restored. The caller must have the
  lock of the directory.

  Raises:
    InputError: The directory has a run of another config or other data, and the
      message names the options that differ; or a file of the dataset differs
      from its manifest.
  """
  workdir = files.path_of(workdir)
  manifest = manifests.read(config.data.directory)
  corpora = {
    folder: hashes(manifests.read(folder))["records"]
    for folder in config.data.mixture.folders
  }
  if is_started(workdir):
    _check_same(open_run(workdir), config, manifest)
    _check_corpora(workdir, corpora)
  source = files.path_of(config.data.directory)
  missing = {
    file: digest
    for file, digest in manifests.model_hashes(manifest).items()
    if not is_intact(workdir / file, digest)
  }
  for file, digest in missing.items():
    if not is_intact(source / file, digest):
      raise InputError(
        f"{source / file} is missing or differs from its SHA-256 in "
        f"{source / manifests.FILE}; prepare the data again."
      )
  files.remove_unfinished(workdir)
  for file in missing:
    files.copy(source / file, workdir / file)
  manifests.write(workdir, manifest)
  if corpora:
    write_record(workdir / MIXTURE, corpora)
  # Last: a directory with a config is a complete run directory.
  write_record(workdir / CONFIG, as_dict(config))
  return Run(workdir, config, manifest)


def is_started(workdir: pathlib.Path) -> bool:
  """Returns whether a run directory has checkpoints."""
  reader = CheckpointReader(workdir)
  return bool(reader.steps() or reader.best.steps())


def read_record(path: pathlib.Path, remedy: str) -> dict[str, Any]:
  """Reads a JSON file and verifies the checksum added by `write_record`.

  Raises:
    InputError: It is missing or corrupt; the message ends with the remedy.
  """
  try:
    return checksums.verify_checksum(files.read_json(path))
  except (OSError, ValueError) as error:
    state = "corrupt" if files.is_file(path) else "missing"
    raise InputError(
      f"{path} is {state} ({str(error).rstrip('.')}). {remedy}"
    ) from None


def write_record(path: pathlib.Path, content: Mapping[str, Any]) -> None:
  """Writes a JSON object together with its checksum."""
  files.write_json(path, checksums.add_checksum(content))


def wrong_parents(workdir: PathLike) -> dict[str, dict[str, float]]:
  """Returns the fraction of words given a wrong parent, by split and side.

  Empty unless config.data.tree of the run is "wrong_parents".

  Raises:
    InputError: The file is missing or corrupt.
  """
  run = open_run(workdir)
  if not isinstance(run.config.data.tree, WrongParents):
    return {}
  remedy = "The training command writes it again."
  return read_record(run.workdir / WRONG_PARENTS, remedy)


def differences(
  old: Config, new: Config, *, but: Collection[str] = ()
) -> list[str]:
  """Describes the options in which two configs differ.

  Options of both configs come first: a choice before the options it adds.

  Args:
    old: Earlier config.
    new: Later config.
    but: Dotted names of options and sections that may differ, with "config.".
  """
  was, now = flat(as_dict(old), "config."), flat(as_dict(new), "config.")
  names = sorted(was | now, key=lambda n: (not (n in was and n in now), n))
  return [
    f"{name} was {was.get(name)!r} and is now {now.get(name)!r}"
    for name in names
    if was.get(name) != now.get(name)
    and not any(f"{name}.".startswith(f"{free}.") for free in but)
  ]


def shortened(texts: Sequence[str]) -> str:
  """Joins the first five of several texts, and appends how many more there are."""
  more = len(texts) - SHOWN
  suffix = f"; and {more} more" if more > 0 else ""
  return "; ".join(texts[:SHOWN]) + suffix


def hashes(manifest: Mapping[str, Any]) -> dict[str, Any]:
  """Returns the hashes of a dataset: records, vocabularies and parsers."""
  parsers = {
    side: recorded.identity(manifest, side) for side in manifest["parser"]
  }
  return {
    "records": {
      name: split["records_sha256"]
      for name, split in manifest["splits"].items()
    },
    "vocabulary": {
      side: entry["sha256"] for side, entry in manifest["vocabulary"].items()
    },
    "parser": {side: parser and parser.key for side, parser in parsers.items()},
  }


def is_intact(path: pathlib.Path, digest: str) -> bool:
  """Returns whether a file exists and has the given SHA-256."""
  return files.is_file(path) and checksums.sha256_of(path) == digest


def _check_same(run: Run, config: Config, manifest: dict[str, Any]) -> None:
  if hashes(run.manifest) != hashes(manifest):
    raise InputError(
      f"{run.workdir} was trained on other data than {config.data.directory} "
      "has now (vocabulary, parser or records differ). Use another --workdir, "
      "or the data it was trained on."
    )
  if changes := differences(run.config, config, but=resumable_options(Config)):
    raise InputError(
      f"{run.workdir} has a run of another config: {shortened(changes)}. Use "
      "another --workdir, or the options that the run was started with."
    )


def _check_corpora(workdir: pathlib.Path, corpora: dict[str, Any]) -> None:
  """Raises InputError if a dataset in the mixture has changed."""
  if not corpora:
    return
  remedy = "Restore it from a copy, or use another --workdir."
  old = read_record(workdir / MIXTURE, remedy)
  for folder, records in corpora.items():
    if old.get(folder) != records:
      raise InputError(
        f"{workdir} was trained on other data than {folder}, of "
        "config.data.mixture, has now. Use another --workdir, or the data it "
        "was trained on."
      )
