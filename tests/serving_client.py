"""Clients of a service in this process: without sockets, or at a port."""

import asyncio
import contextlib
import json
import threading
import time

import httpx

from jaxsyn.serving import server
from jaxsyn.serving.network_policy import Guard, NetworkPolicy

LINE, OTHER = "a cow sleeps .", "the duck runs ."


class ServiceClient:
  """A client of a service, without sockets."""

  def __init__(self, service, **policy):
    self.service = service
    self.app = Guard(service, NetworkPolicy(**policy))

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
def listening(service):
  """Yields the port of a service that runs in a thread of this process."""
  sock = server.bind("127.0.0.1", 0)
  running = server.create_server(service, NetworkPolicy())
  thread = threading.Thread(
    target=lambda: asyncio.run(running.serve(sockets=[sock]))
  )
  thread.start()
  while not running.started:
    time.sleep(0.01)
  try:
    yield sock.getsockname()[1]
  finally:
    running.should_exit = running.force_exit = True
    thread.join(30)
    sock.close()
