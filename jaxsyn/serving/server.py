"""A server at a port: uvicorn, its sockets and signals.

Clients that send the head of a request slowly, or nothing, are left to a reverse
proxy: see docs/serving.md.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from typing import Any

import uvicorn

from jaxsyn import exits
from jaxsyn.errors import InputError
from jaxsyn.serving.network_policy import Guard, NetworkPolicy
from jaxsyn.serving.service import Service

ENDING = 30  # seconds in which what is being answered is answered
STUCK = 30.0  # seconds in which nothing of an answer is taken
# Receive buffer of a connection in bytes (Linux doubles it, and uses half for
# itself). All that waits is parsed at once: 256 kB in chunks of one byte took
# seconds. A client sends at most this much per round trip.
BUFFER = 32768
SWITCH = 0.001  # seconds
KEPT = 10  # seconds for which an idle connection is kept


class Server(uvicorn.Server):
  """A server that says when it ends.

  Attributes:
    service: that answers.
    ended_by: the signal that ended it; 0: none.
  """

  def __init__(self, config: uvicorn.Config, service: Service):
    super().__init__(config)
    self.service, self.ended_by = service, 0

  def handle_exit(self, sig: int, frame: Any) -> None:
    self.service.state, self.ended_by = "ending", sig
    super().handle_exit(sig, frame)

  @contextlib.contextmanager
  def capture_signals(self) -> Iterator[None]:
    """SIGHUP too: uvicorn leaves it, and it cut off what was being answered."""
    with super().capture_signals():
      old = signal.getsignal(signal.SIGHUP)
      is_main = threading.current_thread() is threading.main_thread()
      if not is_main or old == signal.SIG_IGN:  # nohup's stays
        yield
        return
      signal.signal(signal.SIGHUP, self.handle_exit)
      try:
        yield
      finally:
        signal.signal(signal.SIGHUP, old)


def bound(host: str, port: int) -> socket.socket:
  """A socket that listens.

  Raises:
    InputError: there is no such address here, or something else listens.
  """
  try:
    family, kind, protocol, _, address = socket.getaddrinfo(
      host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )[0]
    listening = socket.socket(family, kind, protocol)
  except OSError as error:
    raise InputError(f"--host={host}: {error.strerror}.") from None
  try:
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    # Connections that are accepted inherit these.
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, BUFFER)
    if hasattr(socket, "TCP_USER_TIMEOUT"):  # Linux
      listening.setsockopt(
        socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, round(STUCK * 1000)
      )
    listening.bind(address)
  except OSError as error:
    listening.close()
    advice = "Choose another, as in --host 127.0.0.1."
    if error.errno in (errno.EADDRINUSE, errno.EACCES):
      advice = "Choose another port; --port 0 takes a free one."
    raise InputError(
      f"--host={host} --port={port}: {error.strerror}. {advice}"
    ) from None
  except OverflowError:
    listening.close()
    raise InputError(f"--port={port}: ports are from 0 to 65535.") from None
  return listening


def url_of(listening: socket.socket) -> str:
  host, port = listening.getsockname()[:2]
  return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def made(
  service: Service, policy: NetworkPolicy, *, proxies: str = ""
) -> Server:
  """A server of a service, not running yet.

  Args:
    service: that answers.
    policy: from where requests are taken.
    proxies: addresses whose X-Forwarded-For is believed, with commas.
  """
  config = uvicorn.Config(
    Guard(service, policy),
    loop="asyncio",
    http="h11",
    limit_concurrency=service.limits.connections + 1,
    ws="none",
    lifespan="off",
    log_config=None,
    log_level=logging.ERROR,
    access_log=False,
    server_header=False,
    proxy_headers=bool(proxies),
    forwarded_allow_ips=proxies or None,
    timeout_keep_alive=KEPT,
    timeout_graceful_shutdown=ENDING,
  )
  return Server(config, service)


def serve(
  server: Server,
  listening: socket.socket,
  *,
  prepare: Callable[[], None],
  ready: Callable[[], None],
) -> None:
  """Answers until a signal ends it, which is raised again then.

  Args:
    server: of `made`.
    listening: of `bound`.
    prepare: what takes long before the first answer; /health tells meanwhile.
    ready: called when all is done.

  Raises:
    BaseException: what `prepare` raises.
  """
  # Threads of the search are asked more often to let this one answer.
  sys.setswitchinterval(SWITCH)
  service = server.service
  faults: list[BaseException] = []

  def begin() -> None:
    try:
      prepare()
      if service.state == "starting":
        service.state = "ok"
        ready()
    except BaseException as error:
      faults.append(error)
      server.should_exit = True
    finally:
      began.set_result(None)

  # XLA may be in the midst of something when the process is to end.
  began: Future[None] = Future()
  exits.abandon(began)
  exits.abandon(service.worker.done)
  service.worker.start()
  listening.listen(server.config.backlog)  # before `ready` says so
  threading.Thread(target=begin, name="preparing", daemon=True).start()
  try:
    asyncio.run(server.serve(sockets=[listening]))
  finally:
    service.close()
    listening.close()
  if faults:
    raise faults[0]
  # uvicorn raises it again, which does nothing where a shell had SIGINT ignored
  # for a job in the background: the status was 0.
  if server.ended_by == signal.SIGINT:
    raise KeyboardInterrupt
  if server.ended_by:
    raise exits.TerminationSignal(server.ended_by)
