"""Runs the server process: socket, uvicorn, signals, initial compilation."""

from __future__ import annotations

import asyncio
import itertools
import logging
import signal
import socket
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any

import uvicorn
from starlette.types import ASGIApp

from jaxsyn.data.schema import EOS
from jaxsyn.data.sentence.conllu import unparsed
from jaxsyn.decode.translator import SHORTEST
from jaxsyn.errors import InputError
from jaxsyn.serving.runs import ServedRun
from jaxsyn.serving.service import Service
from jaxsyn.session import Session
from jaxsyn.utils import exits, progress

SHUTDOWN_SECONDS = 30  # in which running requests may finish
# Receive buffer of a connection in bytes (Linux doubles it, and uses half for
# itself). The event loop parses it all at once: 256 kB in chunks of one byte
# took seconds. A client sends at most this much per round trip.
RECEIVE_BUFFER = 32768
# Seconds after which the searching thread lets the event loop run.
SWITCH_INTERVAL = 0.001


def listen(host: str, port: int) -> socket.socket:
  """Opens a listening socket at a host and a port.

  Raises:
    InputError: There is no such address, or the port is in use.
  """
  is_v6 = ":" in host
  family = socket.AF_INET6 if is_v6 else socket.AF_INET
  try:
    sock = socket.create_server(
      (host, port), family=family, dualstack_ipv6=is_v6
    )
  except OSError as error:
    raise InputError(
      f"--host={host} --port={port}: {error.strerror}. Choose another port "
      "(--port 0 takes a free one), or another address, as in --host 127.0.0.1."
    ) from None
  # Accepted connections inherit it.
  sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BUFFER)
  return sock


def url_of(sock: socket.socket) -> str:
  host, port = sock.getsockname()[:2]
  return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def host_names(host: str, allowed_hosts: Sequence[str]) -> list[str]:
  """Returns the names that the Host header of a request may have.

  Args:
    host: Address at which the server listens. Its names are unknown if it is
      "0.0.0.0"; then all names are allowed, unless others are given.
    allowed_hosts: Further names; "*.example.org" for subdomains.

  Raises:
    InputError: A name has a "*" elsewhere.
  """
  for name in allowed_hosts:
    if "*" in name.removeprefix("*.") and name != "*":
      raise InputError(
        f"--allowed_hosts={name}: names such as example.org or *.example.org."
      )
  if host in ("", "0.0.0.0", "::") and not allowed_hosts:
    return ["*"]
  address = f"[{host}]" if ":" in host else host
  return ["localhost", "127.0.0.1", "[::1]", address, *allowed_hosts]


class Server(uvicorn.Server):
  """A uvicorn server that records the signal that ended it.

  Attributes:
    ended_by: Number of the signal that ended the server; 0: no signal.
  """

  def __init__(self, service: Service, app: ASGIApp):
    config = uvicorn.Config(
      app,
      loop="asyncio",
      http="h11",
      limit_concurrency=service.limits.connections + 1,
      ws="none",
      lifespan="off",
      log_config=None,
      log_level=logging.ERROR,
      access_log=False,
      server_header=False,
      proxy_headers=False,
      timeout_graceful_shutdown=SHUTDOWN_SECONDS,
    )
    super().__init__(config)
    self.ended_by, self._service = 0, service

  def handle_exit(self, sig: int, frame: Any) -> None:
    self._service.state, self.ended_by = "ending", sig
    super().handle_exit(sig, frame)


def serve(
  service: Service,
  app: ASGIApp,
  sock: socket.socket,
  *,
  prepare: Callable[[], None],
  on_ready: Callable[[], None],
) -> None:
  """Serves requests until a signal arrives; then raises TerminationSignal.

  Args:
    service: The service.
    app: Its application.
    sock: Socket of `listen`.
    prepare: Function to call in the thread that uses the devices before requests
      are accepted.
    on_ready: Called when requests are accepted.

  Raises:
    Exception: `prepare` has raised it.
  """
  sys.setswitchinterval(SWITCH_INTERVAL)
  server = Server(service, app)
  if signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:  # nohup ignores it
    signal.signal(signal.SIGHUP, server.handle_exit)  # uvicorn does not

  def on_prepared(prepared: Future[None]) -> None:
    if prepared.exception():
      server.should_exit = True
    elif service.state == "starting":
      service.state = "ok"
      on_ready()

  prepared = service.worker.call(prepare)
  prepared.add_done_callback(on_prepared)
  try:
    asyncio.run(server.serve(sockets=[sock]))
  finally:
    exits.abandon(service.close())  # XLA may be compiling
    sock.close()
  if prepared.done():
    prepared.result()
  # uvicorn raises the signal again, but a shell that runs a background job ignores
  # SIGINT, so that the exit status would be 0.
  if server.ended_by == signal.SIGINT:
    raise KeyboardInterrupt
  if server.ended_by:
    raise exits.TerminationSignal(server.ended_by)


def compile_programs(service: Service, longest: int) -> None:
  """Compiles the translation programs for sentences up to a maximum length.

  The programs for short sentences come first, for every run.

  Args:
    service: Service whose runs translate.
    longest: Subwords of a sentence, including EOS; 0 disables compilation.
  """
  widths = [SHORTEST]
  while widths[-1] <= longest:
    widths.append(2 * widths[-1])
  widths.pop()
  runs = service.runs.values()
  # Lengths take very different times: no remaining time is shown.
  with progress.bar(
    "compiling programs",
    total=len(widths) * len(runs),
    unit="length",
    speed=False,
  ) as bar:
    for width, run in itertools.product(widths, runs):
      _compile_width(run, width, service.worker.max_sentences(run))
      bar.advance()


def _compile_width(run: ServedRun, width: int, max_sentences: int) -> None:
  """Compiles the programs of a run for sentences padded to `width` subwords."""
  session = run.session
  examples = _examples(session, width)
  known: set[Any] = set()
  for count in range(1, max_sentences + 1):
    batch = examples[:1] * count
    sizes = session.translator.sizes(batch)
    if not sizes <= known:
      session.translator.compile(session.params, batch)
    known |= sizes
  # A search of sentences of different lengths also compiles the programs that
  # move the remaining sentences to a smaller batch.
  session.search(
    list(itertools.islice(itertools.cycle(examples), max_sentences))
  )
  if len(session.members) == 1:  # an ensemble cannot be inspected
    _inspect(run, examples[0])


def _examples(session: Session, width: int) -> list[Any]:
  """Returns made-up sentences, one of each length that is padded to `width`."""
  parses = []
  for words in range(1, width):
    text = " ".join("a" * words)
    length = len(session.reader.fit(text).pieces.id) + 1  # with EOS
    if width // 2 < length <= width:
      parses.append(unparsed(text))
  return [example for example, _ in session.reader.read_all(parses)]


def _inspect(run: ServedRun, example: Any) -> None:
  """Compiles the programs for /inspect by inspecting an example sentence."""
  (params,), (arrays,) = run.session.params, example
  list(run.inspector.maps(params, [arrays], [(EOS,)]))
