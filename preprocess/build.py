"""Prepares a dataset: turns raw parallel text into TFRecords and a report.

  jaxsyn prepare --config multi30k_en_de [--raw_dir DIR]

Writes CoNLL-U, vocabulary, TFRecords, indexes, manifest and report into
config.data.directory. A run reuses finished work, also after an interruption.
If no input changed and no file is corrupt, it makes no changes; corrupt files
are rebuilt. --verify checks all files without changing them. The folder work/
stores results for later runs; it may be deleted.

On a cluster whose machines can all read the raw files and the dataset
directory:

  jaxsyn prepare --config FILE --beam="--runner=... [other options of Beam]"
"""

from __future__ import annotations

import errno
import os
import pathlib
import sys
import time
from typing import Any

from absl import flags

from jaxsyn import cli
from jaxsyn.data.options import DataConfig
from jaxsyn.data.store import manifests
from jaxsyn.errors import InputError
from jaxsyn.preprocess import publish, runners, stages, verify
from jaxsyn.preprocess.inputs import read_inputs
from jaxsyn.preprocess.job import PrepareJob
from jaxsyn.storage import files, lock
from jaxsyn.utils import exits

_DISK_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_LOCKED = (
  "Wait until it has ended, then run the same command again; or set"
  " config.data.directory to another folder."
)


def run(
  config: Any, raw_dir: str = "", runner: runners.Runner = runners.local
) -> pathlib.Path:
  """Prepares the dataset that a config describes.

  Args:
    config: Config, or ConfigDict from get_config.
    raw_dir: Folder of the raw files, "" for config.prepare.raw_dir.
    runner: `runners.local`, or the result of `runners.beam`.

  Returns:
    Dataset directory, config.data.directory.

  Raises:
    InputError: The config or a file is invalid.
  """
  sections = _sections(config)
  directory = files.path_of(sections.data.directory)
  try:
    _prepare(sections, raw_dir, directory, runner)
  except OSError as error:
    if error.errno not in _DISK_FULL or error.filename:
      raise
    # The system does not name the disk when a write fails.
    raise OSError(error.errno, error.strerror, str(directory)) from error
  return directory


def _sections(config: Any) -> DataConfig:
  """Returns the config sections that preparation reads: data and prepare.

  Worker processes unpickle them: a complete config would load JAX there.
  """
  if not isinstance(config, DataConfig):
    from jaxsyn.config import read_config  # it loads JAX

    config = read_config(config)
  return DataConfig(config.data, config.prepare)


def _prepare(
  config: DataConfig,
  raw_dir: str,
  directory: pathlib.Path,
  runner: runners.Runner,
) -> None:
  started = time.monotonic()
  # A prepared dataset may be on a read-only disk.
  if not files.is_file(directory / manifests.FILE):
    _check_writable(directory)
  old = _manifest(directory)
  job = read_inputs(config, raw_dir, [*old.get("splits", ())])
  if verify.corrupt_files(directory, job.key) == []:
    print(f"{directory} is prepared already, from the same input and options.")
    return
  _check_writable(directory)
  if old.get("name", config.data.name) != config.data.name:
    raise InputError(
      f"{directory} has the dataset {old['name']!r}, which would be replaced by"
      f" config.data.name={config.data.name!r}. Set config.data.directory to"
      " another folder, or remove this one."
    )
  publish.check_no_user_files(directory, config.data.name, job.sums)
  with lock.exclusive_lock(directory, advice=_LOCKED):
    # Again, since another process may have prepared or repaired it since.
    corrupt = verify.corrupt_files(directory, job.key)
    if corrupt == []:
      print(f"{directory} has been prepared by another process.")
      return
    if corrupt:
      for message in corrupt:
        print(f"corrupt: {message}", flush=True)
      print(f"rebuilding {directory}", flush=True)
    _make(job, directory, started, runner)
  print(files.read_bytes(directory / "report.txt").decode())


def _manifest(directory: pathlib.Path) -> dict[str, Any]:
  """Returns the manifest of a dataset directory, {} if missing or corrupt."""
  try:
    return dict(manifests.read(directory))
  except InputError:
    return {}


def _check_writable(directory: pathlib.Path) -> None:
  flag = "config.data.directory"
  exits.check_target(str(directory), flag, folder=True, store=True)


def _make(
  job: PrepareJob,
  directory: pathlib.Path,
  started: float,
  runner: runners.Runner,
) -> None:
  """Prepares the dataset in a new folder, then moves it to its directory."""
  _remove_unfinished(job)
  with runner(job) as run_tasks:
    stages.run(job, run_tasks)
  # Unfinished files of killed workers must not be published.
  for folder, _, _ in os.walk(job.new):  # on an object store they leave nothing
    files.remove_unfinished(folder)
  files.remove(job.new / manifests.FILE)  # of a run that was killed at the end
  manifest = publish.complete(job)
  manifest["seconds"] = round(time.monotonic() - started, 1)
  publish.publish(job.new, directory, manifest)
  files.remove_folder(job.new)
  files.remove_folder(job.outputs.folder)


def _remove_unfinished(job: PrepareJob) -> None:
  """Removes unfinished files, and folders of earlier runs with other input."""
  for folder in (job.directory, job.work, job.work / "parse"):
    files.remove_unfinished(folder, but=job.new.name)
  folders = files.folders(job.work, "stages-")
  for folder in folders + files.folders(job.directory, ".new-"):
    if folder.name not in (job.outputs.folder.name, job.new.name):
      files.remove_folder(folder)


def _main(values: flags.FlagValues) -> None:
  if values.raw_dir:  # in the config, since other options may refer to it
    values.config.prepare.raw_dir = values.raw_dir
  if values.verify:
    verify.run(_sections(values.config).data.directory)
    return
  runner = runners.beam(values.beam) if values.beam else runners.local
  try:
    run(values.config, values.raw_dir, runner)
  except KeyboardInterrupt:
    print("Run the same command again to continue.", file=sys.stderr)
    raise


def define_flags() -> None:
  """Defines the command-line flags of `jaxsyn prepare`."""
  cli.config_flag()
  flags.DEFINE_string(
    "raw_dir",
    "",
    "Folder of the raw files; default: config.prepare.raw_dir.",
  )
  flags.DEFINE_bool(
    "verify",
    False,
    "Whether to check the dataset directory completely and report corrupt files,"
    " without changing anything. Exit status: 0 if all are intact, else 2.",
  )
  flags.DEFINE_string(
    "beam",
    "",
    "Options of Apache Beam, to run on it instead of in local processes, as in"
    ' --beam="--runner=NAME --OPTION=VALUE". All machines must be able to read the'
    " raw files and the dataset directory.",
  )


if __name__ == "__main__":
  define_flags()
  cli.main(_main)
