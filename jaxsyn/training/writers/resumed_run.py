"""Which run of a tracking service a folder's is, when it goes on."""

from __future__ import annotations

import secrets

from jaxsyn.storage import files
from jaxsyn.training.writers.writer import ResumedRun

FILE = "tracked.json"


def read_id(run: ResumedRun, service: str) -> str:
  """The name of the run there; "" where the run begins, or nobody knows."""
  path = run.workdir / FILE
  if not run.start or not files.is_file(path):
    return ""
  try:
    run_id = files.read_json(path).get(service, "")
  except (ValueError, AttributeError):  # damaged: it is another run there
    return ""
  return run_id if isinstance(run_id, str) else ""


def write_id(run: ResumedRun, service: str, name: str) -> None:
  """Writes the name down."""
  path = run.workdir / FILE
  try:
    ids = files.read_json(path)
  except (OSError, ValueError):
    ids = {}
  files.write_json(path, {**ids, service: name})


def identity(run: ResumedRun, service: str) -> str:
  """The name of the run there: a fresh one where it begins."""
  if run_id := read_id(run, service):
    return run_id
  name = secrets.token_hex(8)
  write_id(run, service, name)
  return name
