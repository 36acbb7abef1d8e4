"""Runs gcp-storage-emulator with generations and conditional uploads.

Orbax needs both, and the emulator has neither. Uploads are parsed here too:
the emulator's mail parser loses the last byte of a file that ends in a
carriage return. Usage: google_store.py PORT.
"""

from __future__ import annotations

import http
import json
import re
import sys
import threading

from gcp_storage_emulator import server
from gcp_storage_emulator.exceptions import NotFound
from gcp_storage_emulator.handlers import objects


def _generation(storage, bucket: str, name: str) -> str:
  try:
    return storage.get_file_obj(bucket, name)["generation"]
  except NotFound:
    return "0"


def _with_generations(download):
  """Adds the header with the generation of an object to its download."""

  def handle(request, response, storage, *args, **kwargs):
    bucket, name = (request.params[n] for n in ("bucket_name", "object_id"))
    generation = _generation(storage, bucket, name)
    if [generation] == request.query.get("ifGenerationNotMatch"):
      response.status = http.HTTPStatus.NOT_MODIFIED
      return
    response["x-goog-generation"] = generation
    download(request, response, storage, *args, **kwargs)

  return handle


def _with_conditions(insert):
  """Rejects an upload if the object has another generation than expected."""

  def handle(request, response, storage, *args, **kwargs):
    expected = request.query.get("ifGenerationMatch")
    if expected and "name" in request.query:
      bucket, (name,) = request.params["bucket_name"], request.query["name"]
      if expected != [_generation(storage, bucket, name)]:
        response.status = http.HTTPStatus.PRECONDITION_FAILED
        return
    insert(request, response, storage, *args, **kwargs)

  return handle


def _with_exact_uploads(read):
  """Parses a file and its metadata in one upload without changing a byte."""

  def handle(request, query):
    kind = request.headers.get("Content-Type") or ""
    if not kind.startswith("multipart/related"):
      return read(request, query)
    body = server._decode_raw_data(server._read_raw_data(request), request)
    boundary = b"--" + re.search('boundary="?([^";]+)', kind)[1].encode()
    _, meta, part = body.split(boundary, 2)
    newline = b"\r\n" if part.startswith(b"\r\n") else b"\n"
    part = part.rpartition(newline + boundary + b"--")[0]
    header, content = part.split(2 * newline, 1)
    return {
      "meta": json.loads(meta.split(2 * newline, 1)[1]),
      "content": content,
      "content-type": header.decode().partition(":")[2].strip(),
    }

  return handle


def _replace(old, new):
  """Replaces a handler in all routes."""
  server.HANDLERS = tuple(
    (
      pattern,
      {verb: new if f is old else f for verb, f in handlers.items()},
    )
    for pattern, handlers in server.HANDLERS
  )


if __name__ == "__main__":
  server._read_data = _with_exact_uploads(server._read_data)
  plain_download, plain_insert = objects.download, objects.insert
  objects.download = _with_generations(plain_download)  # `get` calls it
  _replace(plain_download, objects.download)
  _replace(plain_insert, _with_conditions(plain_insert))
  server.create_server("127.0.0.1", int(sys.argv[1]), True, "bucket").start()
  threading.Event().wait()
