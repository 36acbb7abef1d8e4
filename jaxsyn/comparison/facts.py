"""Collects facts about a run other than scores: time, size, machine, code."""

from __future__ import annotations

import os
import pathlib
import platform
import re
import statistics
import subprocess
from importlib import metadata
from typing import Any

import jax

import jaxsyn
from jaxsyn.comparison import results
from jaxsyn.comparison.planned_jobs import TrainingJob
from jaxsyn.scoring import selection
from jaxsyn.session import workdir
from jaxsyn.storage import files
from jaxsyn.training import loop

PACKAGES = (
  "jax",
  "jaxlib",
  "flax",
  "optax",
  "orbax-checkpoint",
  "numpy",
  "sentencepiece",
  "sacrebleu",
)


def of_run(
  job: TrainingJob,
  outcome: loop.TrainingEnd,
  params: Any,
) -> results.RunFacts:
  """Returns steps, time, size and machine of a run that has just finished.

  Args:
    job: The run.
    outcome: Result of its training.
    params: Parameters that translated.
  """
  speeds = [r["tokens_per_s"] for r in job.records() if "tokens_per_s" in r]
  reached = outcome.progress
  return results.RunFacts(
    step=outcome.step,
    reason=outcome.reason,
    selection=selection.title(workdir.open_run(job.run).config.train),
    best_step=reached.best_step,
    best_score=reached.best_score,
    minutes=reached.minutes,
    tokens=reached.tokens,
    tokens_per_s=statistics.median(speeds) if speeds else 0.0,
    parameters=sum(x.size for x in jax.tree.leaves(params)),
    machine=machine(),
    wrong_parents=workdir.wrong_parents(job.run),
  )


def dataset(job: TrainingJob) -> results.DatasetFacts:
  """Returns the languages, sizes and hashes of a run's dataset."""
  data, manifest = job.config.data, job.system.manifest
  return results.DatasetFacts(
    name=data.name,
    directory=data.directory,
    source_language=data.source_language,
    target_language=data.target_language,
    pairs={n: entry["examples"] for n, entry in manifest["splits"].items()},
    hashes=workdir.hashes(manifest),
    left_out=tuple(manifest.get("left_out", ())),
  )


def curve(job: TrainingJob) -> tuple[results.Point, ...]:
  """Reads the learning curve of a run from its log."""
  points = []
  not_values = ("kind", "step", "time", "minutes", "seconds", "tokenizer")
  for record in job.validations():
    values = {n: float(v) for n, v in record.items() if n not in not_values}
    minutes = float(record["minutes"])
    points.append(results.Point(record["step"], minutes, values))
  return tuple(points)


def machine() -> results.Machine:
  """Describes the current machine, with its JAX devices and packages."""
  cpuinfo = pathlib.Path("/proc/cpuinfo")
  text = cpuinfo.read_text(encoding="utf-8") if cpuinfo.is_file() else ""
  model = re.search(r"^model name[^:\n]*:(.*)", text, re.MULTILINE)
  processor = model[1].strip() if model else platform.processor()
  return results.Machine(
    device=jax.devices()[0].device_kind,
    devices=jax.device_count(),
    processor=processor or platform.machine(),
    cores=os.cpu_count() or 1,
    system=platform.platform(terse=True),
    python=platform.python_version(),
    packages={name: metadata.version(name) for name in PACKAGES},
  )


def record_commit(run: pathlib.Path) -> str | None:
  """Records the Git commit of this code in a run directory.

  Returns:
    All commits, with commas: several if the run was resumed with other code;
    None outside a checkout.
  """
  path = run / "commits.txt"
  commits = path.read_text().split() if path.is_file() else []
  if commit_id := commit():
    commits = [*dict.fromkeys([*commits, commit_id])]
    files.write_text(path, "".join(f"{one}\n" for one in commits))
  return ",".join(commits) or None


def commit() -> str | None:
  """Returns the Git commit of this code, or None outside a checkout.

  It ends with "+changes" if files are modified.
  """
  file = pathlib.Path(jaxsyn.__file__).resolve()

  def git(*words: str) -> str:
    command = ["git", "-C", str(file.parent), *words]
    return subprocess.run(
      command, capture_output=True, text=True, check=True, timeout=30
    ).stdout.strip()

  try:
    # A package that is installed inside another checkout is not in its index.
    git("ls-files", "--error-unmatch", file.name)
    modified = git("status", "--porcelain", "-uno")
    return git("rev-parse", "HEAD") + ("+changes" if modified else "")
  except (OSError, subprocess.SubprocessError):
    return None
