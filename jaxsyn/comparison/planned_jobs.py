"""The plan of a comparison: comparison.json, and the directories of its runs.

  comparison.json      systems with complete configs
  SYSTEM/seed_N/       run directory (`jaxsyn.session.workdir`) with
    test/SPLIT.txt       translations
    look/                attention of a few sentences, first seed only
    result.json          everything that a report needs; written last
    output.txt           output of the run's processes
  log.txt              log of the comparison
  report.json report.html report.md report.tex

Systems and seeds can be added later; existing ones cannot change.
"""

from __future__ import annotations

import dataclasses
import itertools
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
from jaxsyn.storage import checksums
from jaxsyn.training import log

FILE = "comparison.json"
FORMAT = 2


@dataclasses.dataclass(frozen=True, eq=False)
class System:
  """A system to compare: its name and config.

  Attributes:
    name: Name of the system and of its directory.
    config: Config with any seed.
    published: "task split" -> BLEU in the paper, for rows of a paper's table.
  """

  name: str
  config: Config
  published: Mapping[str, float] = dataclasses.field(default_factory=dict)

  @property
  def manifest(self) -> dict[str, Any]:
    """Manifest of the system's dataset: splits, vocabularies, checksums."""
    return manifests.read(self.config.data.directory)


@dataclasses.dataclass(frozen=True, eq=False)
class TrainingJob:
  """Training run of a comparison: system, seed, and run directory."""

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

  @property
  def attention_folder(self) -> pathlib.Path | None:
    """The directory of attention samples; None except for the first seed."""
    return None if self.seed else self.run / "look"

  @property
  def output_file(self) -> pathlib.Path:
    return self.run / "output.txt"

  @property
  def result_file(self) -> pathlib.Path:
    return self.run / run_result.FILE

  def hypotheses(self, split: str) -> pathlib.Path:
    return self.run / "test" / f"{split}.txt"

  @property
  def finished(self) -> bool:
    """Whether all outputs of the run exist."""
    outputs = [self.hypotheses(split) for split in self.config.data.test]
    outputs += [self.result_file, self.attention_folder or self.run]
    return all(path.exists() for path in outputs)

  def records(self) -> list[dict[str, Any]]:
    """Returns the valid records in the run's training log."""
    return log.records(self.run)[0]

  def validations(self) -> list[dict[str, Any]]:
    """Returns validation log records that include the selection metric."""
    metric = self.config.train.selection
    records = (r for r in self.records() if r["kind"] == "validation")
    return [record for record in records if metric in record]

  def last_step(self) -> int:
    """Returns the last step in the run's log, or 0."""
    return max((record["step"] for record in self.records()), default=0)

  def last_output(self, count: int) -> str:
    """Returns the run's last lines of output, joined by " | "."""
    if not self.output_file.is_file():
      return ""
    with self.output_file.open("rb") as file:
      file.seek(max(0, self.output_file.stat().st_size - 4000))
      text = file.read().decode("utf-8", "replace")
    nonempty = [line.strip() for line in text.splitlines() if line.strip()]
    return " | ".join(nonempty[-count:])

  def output_sums(self) -> dict[str, dict[str, Any]]:
    """Returns checksums of the run's translations and attention samples."""
    paths = [self.hypotheses(split) for split in self.config.data.test]
    if self.attention_folder:
      paths += sorted(self.attention_folder.iterdir())
    names = [path.relative_to(self.run).as_posix() for path in paths]
    return checksums.file_checksums(self.run, names)

  def read_result(self) -> run_result.RunResult:
    """Reads the result of a finished run.

    Raises:
      InputError: The result, a translation or a figure is corrupt.
    """
    remedy = "Delete it, and run the same command again."
    result = run_result.read(self.result_file, remedy)
    if message := checksums.corrupt_files(self.run, result.files):
      raise InputError(
        f"{message}. Delete it, and {self.result_file}, and run the same "
        "command again, which does not repeat the training."
      )
    return result


def jobs(
  folder: pathlib.Path, systems: Sequence[System], seeds: Sequence[int]
) -> list[TrainingJob]:
  """Returns one job per system and seed, sorted by seed, then by system."""
  pairs = itertools.product(seeds, systems)
  return [TrainingJob(folder, system, seed) for seed, system in pairs]


def without_missing_splits(system: System) -> System:
  """Returns the system without optional test splits whose files are missing.

  Raises:
    InputError: All test splits were left out.
  """
  data, left_out = system.config.data, system.manifest.get("left_out", {})
  test = tuple(name for name in data.test if name not in left_out)
  if data.test and not test:
    raise InputError(
      f"{system.name}: all splits of config.data.test ({', '.join(data.test)}) "
      f"were left out when {data.directory} was prepared. Put their files in "
      "--raw_dir and prepare again."
    )
  data = dataclasses.replace(data, test=test)
  config = dataclasses.replace(system.config, data=data)
  return dataclasses.replace(system, config=config)


def check(system: System, folder: pathlib.Path) -> Plan:
  """Checks that a system can be trained, before any training starts.

  A teacher in the directory of the comparison need not exist yet.

  Raises:
    InputError: The config does not fit itself or the prepared data.
  """
  config, manifest = system.config, system.manifest
  resolved = folder.resolve()
  try:
    plan = resolve(config, manifest)
    schema.features_for(manifest, plan.features)
    tasks.check(config.data.second, manifest, config.data.directory)
    with_defaults(config)
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
  """Checks that all systems can be trained; the error lists all that cannot."""
  plans, errors = [], []
  for system in systems:
    try:
      plans.append(check(system, folder))
    except InputError as error:
      errors.append(str(error))
  if len(errors) == 1:
    raise InputError(errors[0])
  if errors:
    listed = "".join(f"\n  {error}" for error in errors)
    raise InputError(
      f"{len(errors)} of {len(systems)} systems cannot be trained:{listed}"
    )
  return plans


def record_systems(
  folder: pathlib.Path,
  systems: Sequence[System],
  origin: results.Origin | None = None,
) -> None:
  """Writes systems to comparison.json; creates the directory if missing.

  If `origin` is None, the recorded command-line arguments are kept.

  Raises:
    InputError: The directory is a run directory, or has a system of the same
      name with another config or other data.
  """
  if (folder / workdir.CONFIG).is_file():
    raise InputError(
      f"{folder} is the folder of a single run; name another for a comparison."
    )
  record = _read(folder)
  remedy = "Use another --workdir, or the original settings."
  for system in systems:
    config = system.config
    hashes = json.loads(json.dumps(workdir.hashes(system.manifest)))
    if old := record["systems"].get(system.name):
      if old["hashes"] != hashes:
        raise InputError(
          f"{folder} has runs on other data than {config.data.directory} "
          f"(vocabulary, parser or records differ). {remedy}"
        )
      was = read_config(old["config"], CHECKPOINT_MODE)
      free = neutral_options(Config)
      if changes := workdir.differences(was, config, but=free):
        raise InputError(
          f"{folder} has runs of {system.name} with another config: "
          f"{workdir.shortened(changes)}. {remedy}"
        )
    record["systems"][system.name] = {
      "config": as_dict(config),
      "hashes": hashes,
      "published": dict(system.published),
    }
  folder.mkdir(parents=True, exist_ok=True)
  record["format"] = FORMAT
  if origin:
    record["origin"] = dataclasses.asdict(origin)
  workdir.write_record(folder / FILE, record)


def other_jobs(folder: pathlib.Path, jobs: Sequence[TrainingJob]) -> list[str]:
  """Returns names of a comparison's finished runs that are not in `jobs`."""
  runs = {job.run for job in jobs}
  names = []
  for system in _read(folder)["systems"]:
    for path in sorted((folder / system).glob(f"seed_*/{run_result.FILE}")):
      if path.parent not in runs:
        names.append(f"{system} {path.parent.name.replace('_', ' ')}")
  return names


def job(folder: pathlib.Path, system: str, seed: int) -> TrainingJob:
  """Returns the job of a system and seed in an existing comparison."""
  entry = _read(folder)["systems"][system]
  config = read_config(entry["config"], CHECKPOINT_MODE)
  return TrainingJob(folder, System(system, config, entry["published"]), seed)


def read_origin(folder: pathlib.Path) -> results.Origin:
  """Returns the recorded command-line arguments of a comparison."""
  origin = _read(folder).get("origin", {})
  path = ConfigPath(FILE) / "origin"
  return from_config(results.Origin, origin, path, CHECKPOINT_MODE)


def _read(folder: pathlib.Path) -> dict[str, Any]:
  """Returns the content of comparison.json."""
  path = folder / FILE
  if not path.is_file():
    return {"systems": {}}
  return run_result.read_document(path, FORMAT, "Use another --workdir.")
