"""Which run of a tracking service a folder's is, when it goes on."""

from __future__ import annotations

import secrets

from jaxsyn.storage import files
from jaxsyn.training.writers.writer import Begun

FILE = "tracked.json"


def known(run: Begun, service: str) -> str:
  """The name of the run there; "" where the run begins, or nobody knows."""
  path = run.workdir / FILE
  if not run.start or not files.is_file(path):
    return ""
  try:
    found = files.read_json(path).get(service, "")
  except (ValueError, AttributeError):  # damaged: it is another run there
    return ""
  return found if isinstance(found, str) else ""


def remember(run: Begun, service: str, name: str) -> None:
  """Writes the name down."""
  path = run.workdir / FILE
  try:
    page = files.read_json(path)
  except (OSError, ValueError):
    page = {}
  files.write_json(path, {**page, service: name})


def identity(run: Begun, service: str) -> str:
  """The name of the run there: a fresh one where it begins."""
  if found := known(run, service):
    return found
  name = secrets.token_hex(8)
  remember(run, service, name)
  return name
