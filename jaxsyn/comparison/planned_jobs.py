"""What a comparison is of: comparison.json, and the folders of its runs.

  comparison.json          every system with its whole config
  SYSTEM/seed_N/           one run, as `jaxsyn.session.workdir` says, with
    test/SPLIT.txt           its translations
    look/                    attention of a few sentences, first seed only
    result.json              all that a report needs; written last
    output.txt               output of its processes
  log.txt                  what happened when
  lock                     who works there: see `jaxsyn.storage.lock`
  report.json report.html report.md report.tex

Systems and seeds may be added later; nothing that is there may change.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

from jaxsyn.comparison import results, run_result
from jaxsyn.config import Config, as_dict, read_config, with_defaults
from jaxsyn.data import schema
from jaxsyn.data.loader import tasks
from jaxsyn.data.store import manifests
from jaxsyn.errors import InputError
from jaxsyn.options import (
  CHECKPOINT_MODE,
  ConfigPath,
  from_config,
  neutral_options,
)
from jaxsyn.plan import Plan, resolve
from jaxsyn.session import teacher, workdir
from jaxsyn.storage import checksums, files

FILE = "comparison.json"
FORMAT = 2


@dataclasses.dataclass(frozen=True, eq=False)
class System:
  """One system of a comparison.

  Attributes:
    name: also of its folder.
    config: with any seed; runs have their own.
    published: "task split" -> BLEU of the paper, of an ablation table's row.
  """

  name: str
  config: Config
  published: Mapping[str, float] = dataclasses.field(default_factory=dict)

  @property
  def manifest(self) -> dict[str, Any]:
    """Of the data that it reads."""
    return manifests.read(self.config.data.directory)


@dataclasses.dataclass(frozen=True, eq=False)
class TrainingJob:
  """One run of a comparison: a system with a seed, and its folder."""

  folder: pathlib.Path
  system: System
  seed: int

  @property
  def name(self) -> str:
    return f"{self.system.name} seed {self.seed}"

  @property
  def run(self) -> pathlib.Path:
    return self.folder / self.system.name / f"seed_{self.seed}"

  @property
  def config(self) -> Config:
    return dataclasses.replace(self.system.config, seed=self.seed)

  def hypotheses(self, split: str) -> pathlib.Path:
    return self.run / "test" / f"{split}.txt"

  @property
  def attention_folder(self) -> pathlib.Path | None:
    """The folder of what it looks at; None for all but the first seed."""
    return None if self.seed else self.run / "look"

  @property
  def result_file(self) -> pathlib.Path:
    return self.run / run_result.FILE

  @functools.cached_property
  def facts(self) -> results.RunFacts:
    """Facts of the training of a finished job, read once.

    Raises:
      InputError: The file is corrupt.
    """
    return self.read_result().facts

  def read_result(self) -> run_result.RunResult:
    """Reads the result of a finished job.

    Raises:
      InputError: The file is corrupt, or a translation or picture was changed.
    """
    try:
      result = run_result.read(self.result_file)
    except InputError as error:
      raise InputError(
        f"{error} Delete it, and run the same command again."
      ) from None
    if wrong := checksums.corrupt_files(self.run, result.files):
      raise InputError(
        f"{wrong}. Delete it, and {self.result_file}, and run the same "
        "command again: what is trained is not trained again."
      )
    return result

  @property
  def finished(self) -> bool:
    """Trained, all test splits translated, and looked at."""
    made = [self.hypotheses(split) for split in self.config.data.test]
    made += [self.result_file, self.attention_folder or self.run]
    return all(path.exists() for path in made)

  def output_sums(self) -> dict[str, dict[str, Any]]:
    """Returns the checksums of the translations and pictures."""
    paths = [self.hypotheses(split) for split in self.config.data.test]
    paths += (
      sorted(self.attention_folder.iterdir()) if self.attention_folder else []
    )
    names = [path.relative_to(self.run).as_posix() for path in paths]
    return checksums.file_checksums(self.run, names)


def jobs(
  folder: pathlib.Path, systems: Sequence[System], seeds: Sequence[int]
) -> list[TrainingJob]:
  """All runs, every system's first seed before any second."""
  return [
    TrainingJob(folder, system, seed) for seed in seeds for system in systems
  ]


def on_prepared(system: System) -> System:
  """Returns the system without the test splits that were left out.

  Optional splits (config.prepare.optional) are left out of the prepared data
  where their files cannot be had.

  Raises:
    InputError: all its test splits were.
  """
  data, left_out = system.config.data, system.manifest.get("left_out", {})
  test = tuple(name for name in data.test if name not in left_out)
  if data.test and not test:
    raise InputError(
      f"{system.name}: all splits of config.data.test were left out when"
      f" {data.directory} was prepared: {', '.join(data.test)}. Give their files"
      " in --raw_dir and prepare again."
    )
  data = dataclasses.replace(data, test=test)
  config = dataclasses.replace(system.config, data=data)
  return dataclasses.replace(system, config=config)


def check(system: System, folder: pathlib.Path) -> Plan:
  """What would stop a run after hours of others, before the first begins.

  Args:
    system: of the comparison.
    folder: of the comparison: a teacher in it may be trained there first.

  Returns:
    what it trains.

  Raises:
    InputError: the config does not fit itself or the prepared data.
  """
  config, manifest = system.config, system.manifest
  try:
    plan = resolve(config, manifest)
    schema.features_for(manifest, plan.features)
    tasks.check(config.data.second, manifest, config.data.directory)
    with_defaults(config)
    resolved = folder.resolve()
    teacher.check(
      plan,
      manifest,
      but=lambda run: resolved in pathlib.Path(run).resolve().parents,
    )
  except InputError as error:
    raise InputError(f"{system.name}: {error}") from None
  if not config.data.test:
    raise InputError(
      "config.data.test names no split to compare on; as in "
      "--config.data.test=\"('validation',)\"."
    )
  for split in config.data.test:
    manifests.split(manifest, split)
  return plan


def check_all(systems: Sequence[System], folder: pathlib.Path) -> list[Plan]:
  """Checks all systems as `check` does, before the first one is trained.

  Raises:
    InputError: names every system that cannot be trained, and why.
  """
  plans, errors = [], []
  for system in systems:
    try:
      plans.append(check(system, folder))
    except InputError as error:
      errors.append(str(error))
  if len(errors) == 1:
    raise InputError(errors[0])
  if errors:
    listed = "\n".join(f"  {error}" for error in errors)
    raise InputError(
      f"{len(errors)} of {len(systems)} systems cannot be trained:\n{listed}"
    )
  return plans


def start_experiment(
  folder: pathlib.Path,
  systems: Sequence[System],
  origin: results.Origin | None = None,
) -> None:
  """Makes a comparison's folder, or adds to what is there.

  Args:
    folder: Folder of the comparison.
    systems: Systems to compare.
    origin: Where the systems came from; None keeps what is there.

  Raises:
    InputError: the folder is that of a single run; or it has a system of this
      name with another config or data: the message names the fields that differ.
  """
  if (folder / workdir.CONFIG).is_file():
    raise InputError(
      f"{folder} is the folder of a single run; name another for a comparison."
    )
  record = _read(folder)
  recorded_systems = record["systems"]
  for system in systems:
    hashes = workdir.hashes(system.manifest)
    if old := recorded_systems.get(system.name):
      _check_same(folder, system, old, hashes=hashes)
    recorded_systems[system.name] = {
      "config": as_dict(system.config),
      "hashes": hashes,
      "published": dict(system.published),
    }
  folder.mkdir(parents=True, exist_ok=True)
  content = {**record, "format": FORMAT, "systems": recorded_systems}
  if origin:
    content["origin"] = dataclasses.asdict(origin)
  files.write_json(folder / FILE, checksums.add_checksum(content))


def failures(failed: Mapping[TrainingJob, str]) -> list[results.FailedRun]:
  """Returns the runs that were given up, for a report."""
  return [
    results.FailedRun(j.system.name, j.seed, why) for j, why in failed.items()
  ]


def other_jobs(folder: pathlib.Path, jobs: Sequence[TrainingJob]) -> list[str]:
  """Names of finished runs that are in the folder and not among `jobs`."""
  runs = {job.run for job in jobs}
  return [
    f"{system} {path.parent.name.replace('_', ' ')}"
    for system in _read(folder)["systems"]
    for path in sorted((folder / system).glob(f"seed_*/{run_result.FILE}"))
    if path.parent not in runs
  ]


def job(folder: pathlib.Path, system: str, seed: int) -> TrainingJob:
  """A run of a comparison that was begun."""
  entry = _read(folder)["systems"][system]
  config = read_config(entry["config"], CHECKPOINT_MODE)
  # Comparisons of earlier versions do not have what papers published.
  return TrainingJob(
    folder, System(system, config, entry.get("published", {})), seed
  )


def read_origin(folder: pathlib.Path) -> results.Origin:
  """Returns where the systems of a comparison came from."""
  origin = _read(folder).get("origin", {})
  return from_config(
    results.Origin, origin, ConfigPath(FILE) / "origin", CHECKPOINT_MODE
  )


def _read(folder: pathlib.Path) -> dict[str, Any]:
  """Reads comparison.json: config and hashes of "systems", and "origin"."""
  path = folder / FILE
  if not path.is_file():
    return {"systems": {}}
  record = _read_verified(path, "Use another --workdir.")
  if record.get("format") != FORMAT:
    raise InputError(
      f"{path} has format {record.get('format')}; this version reads {FORMAT}. "
      "Use another --workdir."
    )
  return record


def _read_verified(path: pathlib.Path, advice: str) -> dict[str, Any]:
  """A page as it was written; an InputError with the advice where it is not."""
  try:
    return checksums.verify_checksum(files.read_json(path))
  except ValueError as error:
    why = str(error).rstrip(".")
    raise InputError(f"{path} is corrupt ({why}). {advice}") from None


def _check_same(
  folder: pathlib.Path,
  system: System,
  old: Mapping[str, Any],
  *,
  hashes: Mapping[str, Any],
) -> None:
  other = "Use another --workdir, or the settings it began with."
  if old["hashes"] != json.loads(json.dumps(hashes)):
    raise InputError(
      f"{folder} compares on other data than {system.config.data.directory} "
      f"holds now (vocabulary, parser or records differ). {other}"
    )
  was = read_config(old["config"], CHECKPOINT_MODE)
  if changes := workdir.differences(
    was, system.config, but=neutral_options(Config)
  ):
    raise InputError(
      f"{folder} compares {system.name} with another config: "
      f"{workdir.shortened(changes)}. {other}"
    )
