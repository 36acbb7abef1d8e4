"""A server process: start, shutdown, and latency during hostile requests."""

import contextlib
import http.client
import json
import os
import re
import signal
import socket
import threading
import time

import pytest
from serving_client import LINE, serving, wait_until_ready

from jaxsyn.errors import InputError
from jaxsyn.serving import server

# Seconds. With other tests, which keep the cores busy, a request can wait for the
# scheduler; the stalls that these tests are about last 4 s and more.
LONGEST_STALL = 2.0 if "PYTEST_XDIST_WORKER" in os.environ else 1.0
SLOWDOWN = 5  # of the latency before, where other processes use the machine
CONNECTIONS = 20
POST = b"POST /translate HTTP/1.1\r\nHost: localhost\r\n"
HEALTH = b"GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
CHUNKED = b"Transfer-Encoding: chunked\r\n\r\n"


@pytest.fixture(scope="module")
def port(runs, environment):
  """Port of a server, which prints it before it compiles programs."""
  flags = ("--compile=16", "--together=32", "--timeout=4")
  limit = f"--connections={CONNECTIONS}"
  with serving(environment, f"it={runs['pascal']}", *flags, limit) as process:
    line = process.stderr.readline()
    found = re.match(r"listening at http://127\.0\.0\.1:(\d+); compiling", line)
    assert found, line + process.stderr.read()
    port = int(found[1])
    assert request(port, "/health") == (503, {"status": "starting"})
    assert wait_until_ready(process) == port
    assert request(port, "/health") == (200, {"status": "ok"})
    for _ in range(3):
      request(port, "/translate", {"text": LINE})
    yield port
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=60) == 128 + signal.SIGTERM


def request(port, path, body=None, timeout=60.0):
  """Returns status and JSON of a response; a body is JSON, or bytes."""
  if body is not None and not isinstance(body, bytes):
    body = json.dumps(body).encode()
  connection = http.client.HTTPConnection("127.0.0.1", port, timeout=timeout)
  with contextlib.closing(connection) as client:
    client.request("GET" if body is None else "POST", path, body)
    response = client.getresponse()
    return response.status, json.loads(response.read())


def send_raw(port, *parts):
  """Sends bytes; returns what the server sends until it closes the connection."""
  with socket.create_connection(("127.0.0.1", port), timeout=20) as client:
    reply = b""
    with contextlib.suppress(ConnectionError):
      for part in parts:
        client.sendall(part)
    with contextlib.suppress(ConnectionError):
      while part := client.recv(65536):
        reply += part
  return reply


@pytest.fixture(scope="module")
def longest_stall(port):
  """Maximum duration of a request in seconds, from that without an attack."""
  with Stopwatch(port) as stopwatch:
    time.sleep(1)
  return max(LONGEST_STALL, SLOWDOWN * max(stopwatch.worst.values()))


class Stopwatch:
  """Measures small requests in threads during a `with` block.

  Attributes:
    worst: Longest duration of a request in seconds, by path.
    statuses: All statuses, by path.
  """

  def __init__(self, port, paths=("/health", "/translate")):
    self._port, self._ended = port, threading.Event()
    self.worst = dict.fromkeys(paths, 0.0)
    self.statuses = {path: set() for path in paths}
    self._threads = [
      threading.Thread(target=self._measure, args=(path,)) for path in paths
    ]

  def __enter__(self):
    for thread in self._threads:
      thread.start()
    time.sleep(0.2)
    return self

  def __exit__(self, *_):
    time.sleep(0.2)
    self._ended.set()
    for thread in self._threads:
      thread.join()

  def check(self, longest_stall):
    assert max(self.worst.values()) < longest_stall, self.worst
    assert all(seen == {200} for seen in self.statuses.values()), self.statuses

  def _measure(self, path):
    body = {"text": LINE} if path == "/translate" else None
    while not self._ended.is_set():
      start = time.monotonic()
      try:
        status = request(self._port, path, body, timeout=15)[0]
      except OSError:
        status = None
      duration = time.monotonic() - start
      self.worst[path] = max(self.worst[path], duration)
      self.statuses[path].add(status)
      time.sleep(0.02)


WORD = "{}\ta\t_\t_\t_\t_\t{}\tdet\t_\t_\n"
LARGE_BODIES = {
  "nested": b'{"text": ' + b"[" * 450_000 + b"]" * 450_000 + b"}",
  "long name": {"a" * 400_000: ["b"] * 100_000},
  "long prefix": {"requests": [{"text": LINE, "target_prefix": "the cow " * 22_500}]},
  "long tree": {"conllu": "".join(WORD.format(i, i - 1) for i in range(1, 35_000))},
  "too large": b" " * 10_000_000,
}  # fmt: skip


@pytest.mark.parametrize("name", LARGE_BODIES)
def test_large_bodies_do_not_stall_other_requests(port, longest_stall, name):
  with Stopwatch(port) as stopwatch:
    status, _ = request(port, "/translate", LARGE_BODIES[name])
  assert status in (400, 413, 422)
  stopwatch.check(longest_stall)


def test_chunks_do_not_stall_other_requests(port, longest_stall):
  chunks = b"1\r\n \r\n" * 100_000
  end = time.monotonic() + 2
  with Stopwatch(port) as stopwatch:
    while time.monotonic() < end:
      reply = send_raw(port, POST + CHUNKED, chunks)
      assert b" 411 " in reply[:20] or reply == b""
  stopwatch.check(longest_stall)
  reply = send_raw(port, POST + CHUNKED, b"1\r\n{\r\n0\r\n\r\n")
  assert reply.startswith(b"HTTP/1.1 411 ") and b"Send its length." in reply


def time_of_a_request(port):
  start = time.monotonic()
  status, _ = request(port, "/translate", {"text": LINE})
  return time.monotonic() - start if status == 200 else float("inf")


def test_abandoned_requests_leave_the_worker(port, longest_stall):
  long = {"text": LINE, "target_prefix": "the cow sleeps . " * 25}
  body = json.dumps({"requests": [long] * 100}).encode()
  for _ in range(10):  # the first ones wait for their programs
    status, answer = request(port, "/translate", body)
    assert status == 503 and "no response within" in answer["error"]
    if time_of_a_request(port) < longest_stall:
      break
  else:
    raise AssertionError("a request that timed out delays others")
  for stream in (False, True):  # the client disconnects
    fields = {"requests": [long] * 100, "stream": stream}
    body = json.dumps(fields).encode()
    with socket.create_connection(("127.0.0.1", port)) as client:
      client.sendall(POST + b"Content-Length: %d\r\n\r\n" % len(body) + body)
      time.sleep(1)
    assert time_of_a_request(port) < longest_stall


def test_limits_connections(port):
  with contextlib.ExitStack() as stack:
    for _ in range(CONNECTIONS):
      stack.enter_context(socket.create_connection(("127.0.0.1", port)))
    reply = send_raw(port, HEALTH)
    assert reply.startswith(b"HTTP/1.1 503 ")
  assert b'{"status": "ok"}' in send_raw(port, HEALTH)


def test_a_connection_receives_32_kb_before_the_server_reads():
  """The window limits what the event loop parses at once."""
  with server.listen("127.0.0.1", 0) as listening, socket.socket() as client:
    client.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
    client.connect(listening.getsockname())
    client.settimeout(0.5)
    sent = 0
    with contextlib.suppress(TimeoutError):
      while sent < 10**6:
        sent += client.send(b"x" * 1024)
  assert 32_000 < sent < 128_000


def test_names_the_address_that_cannot_be_bound():
  with server.listen("127.0.0.1", 0) as one:
    port = one.getsockname()[1]
    with pytest.raises(InputError, match=f"--port={port}: Address already"):
      server.listen("127.0.0.1", port)
  for host in ("192.0.2.1", "no.such.host.invalid"):
    with pytest.raises(InputError, match=f"--host={re.escape(host)}"):
      server.listen(host, 0)


def wait_until_closed(port):
  end = time.monotonic() + 20
  while time.monotonic() < end:
    try:
      socket.create_connection(("127.0.0.1", port)).close()
    except OSError:
      return
    time.sleep(0.05)
  raise AssertionError(f"port {port} still listens")


def test_finishes_requests_before_it_stops(start):
  # The tests may run under nohup, which makes a server ignore SIGHUP.
  number = signal.SIGHUP
  process = start("--compile=0", "--beam=2", "--together=2", number=number)
  port = wait_until_ready(process)
  client = http.client.HTTPConnection("127.0.0.1", port, timeout=300)
  body = {"requests": [{"text": LINE}] * 6, "nbest": 2, "stream": True}
  client.request("POST", "/translate", json.dumps(body))
  response = client.getresponse()
  first = json.loads(response.readline())
  assert len(first["nbest"]) == 2
  process.send_signal(number)
  wait_until_closed(port)
  indices = [first["index"], *(json.loads(line)["index"] for line in response)]
  assert sorted(indices) == [*range(6)]
  out, err = process.communicate(timeout=60)
  assert process.returncode == 128 + number
  assert (out, err) == ("", f"ended by {number.name}\n")


def test_the_second_ctrl_c_ends_it_at_once(start):
  # A shell ignores SIGINT in background jobs.
  process = start("--compile=0", handler=signal.SIG_IGN)
  port = wait_until_ready(process)
  with socket.create_connection(("127.0.0.1", port)) as client:
    # The server waits for the rest of this body.
    client.sendall(POST + b"Content-Length: 100\r\n\r\n{")
    time.sleep(0.5)
    os.kill(process.pid, signal.SIGINT)
    time.sleep(1)
    assert process.poll() is None
    os.kill(process.pid, signal.SIGINT)
    _, err = process.communicate(timeout=15)
  assert process.returncode == 130 and err.endswith("interrupted\n")
