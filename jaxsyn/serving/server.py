"""The server process: its socket, uvicorn, and signals."""

from __future__ import annotations

import asyncio
import errno
import logging
import signal
import socket
import sys
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

import uvicorn

from jaxsyn import exits
from jaxsyn.errors import InputError
from jaxsyn.serving.network_policy import Guard, NetworkPolicy
from jaxsyn.serving.service import Service

SHUTDOWN_SECONDS = 30  # in which running requests may finish
SEND_TIMEOUT = 30.0  # seconds after which a client must have taken data
KEEP_ALIVE = 10  # seconds for which an idle connection is kept
# Receive buffer of a connection in bytes (Linux doubles it, and uses half for
# itself). The event loop parses all of it at once: 256 kB in chunks of one byte
# took seconds. A client sends at most this much per round trip.
RECEIVE_BUFFER = 32768
# Seconds after which the searching thread lets the event loop run.
SWITCH_INTERVAL = 0.001


class Server(uvicorn.Server):
  """A uvicorn server that records the signal that ended it.

  Attributes:
    service: The service.
    ended_by: Signal number; 0: none.
  """

  def __init__(self, config: uvicorn.Config, service: Service):
    super().__init__(config)
    self.service, self.ended_by = service, 0

  def handle_exit(self, sig: int, frame: Any) -> None:
    self.service.state, self.ended_by = "ending", sig
    super().handle_exit(sig, frame)


def bind(host: str, port: int) -> socket.socket:
  """Returns a bound socket.

  Raises:
    InputError: There is no such address, or the port is in use.
  """
  try:
    family, kind, protocol, _, address = socket.getaddrinfo(
      host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )[0]
    sock = socket.socket(family, kind, protocol)
  except OSError as error:
    raise InputError(f"--host={host}: {error.strerror}.") from None
  try:
    # Accepted connections inherit these options.
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BUFFER)
    if hasattr(socket, "TCP_USER_TIMEOUT"):  # Linux
      milliseconds = round(SEND_TIMEOUT * 1000)
      sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, milliseconds)
    sock.bind(address)
  except OSError as error:
    sock.close()
    advice = "Choose another, as in --host 127.0.0.1."
    if error.errno in (errno.EADDRINUSE, errno.EACCES):
      advice = "Choose another port; --port 0 takes a free one."
    raise InputError(
      f"--host={host} --port={port}: {error.strerror}. {advice}"
    ) from None
  return sock


def url_of(sock: socket.socket) -> str:
  host, port = sock.getsockname()[:2]
  return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def create_server(
  service: Service, policy: NetworkPolicy, *, proxies: str = ""
) -> Server:
  """Returns a server of a service, which is not running yet.

  Args:
    service: The service.
    policy: Hosts and origins that are allowed.
    proxies: Comma-separated addresses whose X-Forwarded-For is trusted.
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
    timeout_keep_alive=KEEP_ALIVE,
    timeout_graceful_shutdown=SHUTDOWN_SECONDS,
  )
  return Server(config, service)


def serve(
  server: Server,
  sock: socket.socket,
  *,
  prepare: Callable[[], None],
  on_ready: Callable[[], None],
) -> None:
  """Serves until a signal, which is then raised as an exception.

  Args:
    server: Server of `create_server`.
    sock: Socket of `bind`.
    prepare: Function to call in a thread before requests are accepted; meanwhile
      GET /health reports the progress.
    on_ready: Called when requests are accepted.

  Raises:
    BaseException: `prepare` has raised it.
  """
  sys.setswitchinterval(SWITCH_INTERVAL)
  if signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:  # nohup ignores it
    signal.signal(signal.SIGHUP, server.handle_exit)  # uvicorn does not
  service = server.service
  prepared: Future[None] = Future()

  def prepare_in_thread() -> None:
    try:
      prepare()
      if service.state == "starting":
        service.state = "ok"
        on_ready()
    except BaseException as error:
      server.should_exit = True
      prepared.set_exception(error)
    else:
      prepared.set_result(None)

  # At the end, XLA may be compiling.
  exits.abandon(prepared)
  exits.abandon(service.worker.done)
  service.worker.start()
  sock.listen(server.config.backlog)  # before `on_ready` prints the address
  threading.Thread(
    target=prepare_in_thread, name="preparing", daemon=True
  ).start()
  try:
    asyncio.run(server.serve(sockets=[sock]))
  finally:
    service.close()
    sock.close()
  if prepared.done():
    prepared.result()
  # uvicorn raises the signal again, but a shell that runs a background job ignores
  # SIGINT, so that the exit status would be 0.
  if server.ended_by == signal.SIGINT:
    raise KeyboardInterrupt
  if server.ended_by:
    raise exits.TerminationSignal(server.ended_by)
