"""A service, asked in this process: without sockets, or at a port."""

import asyncio
import contextlib
import json
import threading
import time

import httpx

from jaxsyn.serving import server
from jaxsyn.serving.network_policy import Guard, NetworkPolicy

LINE, OTHER = "a cow sleeps .", "the duck runs ."


class Asked:
  """A service, and a client of it."""

  def __init__(self, service, **doors):
    self.service, self.app = service, Guard(service, NetworkPolicy(**doors))

  def __call__(self, path, told=None, *, method=None, **rest):
    """The answer to a request; `told` is JSON, or bytes as they are."""
    return self.all([(path, told)], method=method, **rest)[0]

  def all(self, asked, *, method=None, headers=(), **rest):
    """The answers to requests made at one time."""

    async def ask():
      transport = httpx.ASGITransport(self.app, raise_app_exceptions=False)
      async with httpx.AsyncClient(
        transport=transport, base_url="http://localhost", timeout=120
      ) as client:
        return await asyncio.gather(
          *(one(client, path, told) for path, told in asked)
        )

    def one(client, path, told):
      body = told
      if told is not None and not isinstance(told, bytes):
        body = json.dumps(told).encode()
      way = method or ("GET" if told is None else "POST")
      return client.request(
        way, path, content=body, headers=dict(headers), **rest
      )

    return asyncio.run(ask())


@contextlib.contextmanager
def listening(service):
  """The port at which a service answers, by a thread of this process."""
  at = server.bind("127.0.0.1", 0)
  running = server.create_server(service, NetworkPolicy())
  thread = threading.Thread(
    target=lambda: asyncio.run(running.serve(sockets=[at]))
  )
  port = at.getsockname()[1]
  thread.start()
  while not running.started:
    time.sleep(0.01)
  try:
    yield port
  finally:
    running.should_exit = running.force_exit = True
    thread.join(30)
    at.close()
