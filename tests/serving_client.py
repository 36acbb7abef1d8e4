"""Clients and processes of `jaxsyn serve`."""

import asyncio
import contextlib
import json
import re
import signal
import subprocess
import sys

import httpx

LINE, OTHER = "a cow sleeps .", "the duck runs ."


class ServiceClient:
  """Client of a service in this process, without sockets."""

  def __init__(self, service, hosts=("localhost",), origins=()):
    self.service, self.app = service, service.app(hosts, origins)

  def __call__(self, path, body=None, **options):
    """Returns the response to a request; a body is JSON, or bytes."""
    return self.all([(path, body)], **options)[0]

  def all(self, requests, *, method=None, headers=()):
    """Returns the responses to simultaneous requests."""

    async def send():
      transport = httpx.ASGITransport(self.app, raise_app_exceptions=False)
      async with httpx.AsyncClient(
        transport=transport, base_url="http://localhost", timeout=120
      ) as client:
        return await asyncio.gather(
          *(send_one(client, path, body) for path, body in requests)
        )

    def send_one(client, path, body):
      if body is not None and not isinstance(body, bytes):
        body = json.dumps(body).encode()
      verb = method or ("GET" if body is None else "POST")
      return client.request(verb, path, content=body, headers=dict(headers))

    return asyncio.run(send())


@contextlib.contextmanager
def serving(environment, *arguments, number=signal.SIGINT, handler=signal.SIG_DFL):  # fmt: skip
  """Yields a process of `jaxsyn serve`, which starts with a signal's handler."""
  process = subprocess.Popen(
    [sys.executable, "-m", "jaxsyn", "serve", "--port=0", *arguments],
    stdout=subprocess.PIPE,
    stderr=subprocess.PIPE,
    text=True,
    env=environment | {"PYTHONUNBUFFERED": "1"},
    preexec_fn=lambda: signal.signal(number, handler),
  )
  try:
    yield process
  finally:
    process.kill()
    process.communicate()


def wait_until_ready(process):
  """Returns the port of a server that accepts requests."""
  line = process.stdout.readline()
  matches = re.fullmatch(r"serving .* at http://127\.0\.0\.1:(\d+)\n", line)
  assert matches, line + process.stderr.read()
  return int(matches[1])
