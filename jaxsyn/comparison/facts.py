"""What is known of a run beside its scores: time, speed, size, machine."""

from __future__ import annotations

import os
import pathlib
import platform
import statistics
from importlib import metadata
from typing import Any

import jax

from jaxsyn.comparison import progress, results
from jaxsyn.comparison.asked import Job
from jaxsyn.scoring import selection
from jaxsyn.trained import workdir
from jaxsyn.training import loop

PACKAGES = (
  *("jax", "jaxlib", "flax", "optax", "orbax-checkpoint", "numpy"),
  *("sentencepiece", "sacrebleu"),
)


def of_run(
  job: Job, outcome: loop.TrainingEnd, params: Any, notes: tuple[str, ...]
) -> results.RunFacts:
  """The facts of a run that ended, in the process that trained it.

  Args:
    job: the run.
    outcome: of its training.
    params: that it was translated with.
    notes: why they are not those that were asked for.
  """
  key = "tokens_per_s"
  speeds = [r[key] for r in progress.records(job) if key in r]
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
    notes=notes,
    wrong_parents=workdir.wrong_parents(job.run),
  )


def machine() -> results.Machine:
  """This one, with the devices and packages that JAX uses."""
  return results.Machine(
    device=jax.devices()[0].device_kind,
    devices=jax.device_count(),
    processor=_processor(),
    cores=os.cpu_count() or 1,
    system=platform.platform(terse=True),
    python=platform.python_version(),
    packages={name: metadata.version(name) for name in PACKAGES},
  )


def _processor() -> str:
  """The processor's name, as far as the system tells."""
  path = pathlib.Path("/proc/cpuinfo")
  if path.is_file():
    for line in path.read_text(encoding="utf-8").splitlines():
      if line.startswith("model name"):
        return line.partition(":")[2].strip()
  return platform.processor() or platform.machine()
