"""What all tests share. JAX is set up here, before any test imports it."""

from __future__ import annotations

import os
import pathlib

import pytest

# Eight devices simulated on few cores dead-lock in collectives unless the
# thread pool is larger than the devices (XLA's in-process rendezvous).
os.environ.setdefault("PJRT_NPROC", "64")
os.environ.setdefault("JAX_PLATFORMS", "cpu")

ROOT = pathlib.Path(__file__).resolve().parent.parent


@pytest.fixture(scope="session")
def shared_data() -> pathlib.Path:
  """The folder of real corpora, treebanks and parsers, or a skip."""
  path = pathlib.Path(
    os.environ.get("JAXSYN_DATA", ROOT.parent / "shared" / "data")
  )
  if not path.is_dir():
    pytest.skip(f"no real data at {path}; set JAXSYN_DATA to its folder")
  return path
