"""A server at a real port: hostile clients, start and shutdown."""

import contextlib
import http.client
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time

import pytest
from serving_client import LINE, listening

from jaxsyn.errors import InputError
from jaxsyn.serving import app, network_policy, server
from jaxsyn.serving.requests import ServiceLimits
from jaxsyn.serving.service import Service

POST = b"POST /translate HTTP/1.1\r\nHost: localhost\r\n"
HEALTH = b"GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"


@pytest.fixture
def port(served, monkeypatch):
  """Port of a service with short timeouts, which translates nothing."""
  monkeypatch.setattr(server, "SEND_TIMEOUT", 1.0)
  monkeypatch.setattr(app, "BODY_SECONDS", 1.0)
  monkeypatch.setattr(network_policy, "LINGER", 0.2)
  service = Service(served, ServiceLimits(connections=20, max_bytes=100_000))
  service.state = "ok"
  with listening(service) as port:
    yield port


def reply_to(port, *parts, every=0.0, buffer=None):
  """Sends bytes; returns what the server sends until it closes the connection."""
  with socket.socket() as client:
    if buffer:
      client.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, buffer)
    client.settimeout(20)
    client.connect(("127.0.0.1", port))
    with contextlib.suppress(ConnectionError):
      for part in parts:
        client.sendall(part)
        time.sleep(every)
    reply = b""
    with contextlib.suppress(ConnectionError):
      while part := client.recv(65536):
        reply += part
  return reply


def test_slow_bodies_time_out(port):
  began = time.monotonic()
  reply = reply_to(port, POST + b"Content-Length: 100\r\n\r\n{")
  assert reply.startswith(b"HTTP/1.1 408 ") and b"did not come within" in reply
  drops = POST + b"Content-Length: 100\r\n\r\n"
  reply = reply_to(port, drops, *[b"{"] * 40, every=0.1)
  assert b" 408 " in reply or reply == b""
  assert time.monotonic() - began < 30
  assert b'{"status": "ok"}' in reply_to(port, HEALTH)


def test_rejects_endless_bodies(port):
  head = POST + b"Content-Length: 10000000000\r\n\r\n"
  reply = reply_to(port, head, *[b"x" * 65536] * 50)
  assert b" 413 " in reply[:20] or reply == b""
  chunked = POST + b"Transfer-Encoding: chunked\r\n\r\n"
  chunk = b"10000\r\n" + b"x" * 65536 + b"\r\n"
  reply = reply_to(port, chunked, *[chunk] * 50)
  assert b" 411 " in reply[:20] or reply == b""
  reply = reply_to(port, chunked, b"1\r\n{\r\n0\r\n\r\n")
  assert reply.startswith(b"HTTP/1.1 411 ") and b"Send its length." in reply


def test_a_connection_receives_32_kb_before_the_server_reads():
  """The window limits what a distant client sends per round trip."""
  with server.bind("127.0.0.1", 0) as listening, socket.socket() as client:
    listening.listen()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
    client.connect(listening.getsockname())
    client.settimeout(0.5)
    sent = 0
    with contextlib.suppress(TimeoutError):
      while sent < 10**6:
        sent += client.send(b"x" * 1024)
  assert 32_000 < sent < 128_000


@pytest.mark.parametrize(
  "line, header, status",
  [
    (b"POST /none", b"A: b", 404),
    (b"POST /runs", b"A: b", 405),
    (b"GET /health", b"A: b", 200),
    (b"POST /translate", b"Origin: https://evil.example", 403),
    (b"POST /translate", b"Host: evil.example", 400),
    (b"POST /translate", b"A: b", 413),
  ],
)
@pytest.mark.parametrize("sent", [1, 300_000])
def test_a_client_with_an_unread_body_gets_the_response(
  port, line, header, status, sent
):
  if status == 413 and sent == 1:
    pytest.skip("the server waits for this body")
  lines = [line + b" HTTP/1.1", b"Content-Length: 300000", header]
  if not header.startswith(b"Host: "):
    lines.append(b"Host: localhost")
  began = time.monotonic()
  body = b"\r\n\r\n" + b"x" * sent
  reply = reply_to(port, b"\r\n".join(lines) + body, buffer=4096)
  assert reply.startswith(b"HTTP/1.1 %d " % status), reply[:200]
  assert b"connection: close" in reply.lower()
  assert time.monotonic() - began < 5


@pytest.mark.parametrize(
  "line",
  [
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n",  # TLS
    b"GET / HTTP/9.9\r\n\r\n",
    b"GET / HTTP/1.1\r\n\r\n",  # no Host
    b"GET / HTTP/1.1\r\nHost: a\r\n" + b"X: y\r\n" * 100_000 + b"\r\n",
    POST + b"Content-Length: -1\r\n\r\n",
    POST + b"Content-Length: 1\r\nContent-Length: 2\r\n\r\n{}",
    POST + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n",
  ],
)
def test_rejects_invalid_http(port, line):
  reply = reply_to(port, line)
  assert reply == b"" or reply.startswith(b"HTTP/1.1 400 ")
  assert b"Traceback" not in reply
  if reply:
    content = reply.partition(b"\r\n\r\n")[2]  # the second is uvicorn's
    assert b'{"error": ' in content or b"Invalid HTTP request" in content


def test_clients_that_do_not_read_are_disconnected(port):
  with socket.create_connection(("127.0.0.1", port)) as client:
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    client.settimeout(0.5)
    end = time.monotonic() + 30
    with pytest.raises(ConnectionError):
      while time.monotonic() < end:
        with contextlib.suppress(TimeoutError):
          client.sendall(
            b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n" * 50
          )


def test_limits_connections(port):
  with contextlib.ExitStack() as stack:
    for _ in range(20):
      stack.enter_context(socket.create_connection(("127.0.0.1", port)))
    reply = reply_to(port, HEALTH)
    assert reply.startswith(b"HTTP/1.1 503 ")
    assert reply.endswith(b"\r\n\r\nService Unavailable")
  assert b'{"status": "ok"}' in reply_to(port, HEALTH)


ODD = [b"[", b"\xff", b"a:b:c", b"bytes=9-1,x", b"-1", b"9" * 400, b'"', b"\xc0\x80,;=%00"]  # fmt: skip


@pytest.mark.parametrize(
  "name",
  [
    *("Origin", "Host", "Content-Type", "Content-Length", "Authorization"),
    *("Range", "If-Range", "If-None-Match", "If-Modified-Since", "Accept"),
    *("Cookie", "Expect", "Connection", "Upgrade", "X-Forwarded-For"),
    *("Access-Control-Request-Method", "Accept-Encoding"),
  ],
)
def test_odd_headers_are_no_internal_error(port, name):
  for value in ODD:
    for line in (b"GET /static/page.js", b"OPTIONS /runs", b"POST /parse"):
      lines = [line + b" HTTP/1.1", name.encode() + b": " + value]
      if name != "Host":
        lines.append(b"Host: localhost")
      lines += [b"Connection: close", b"", b""]
      reply = reply_to(port, b"\r\n".join(lines))
      assert re.match(rb"HTTP/1.1 [234]\d\d ", reply), (line, value, reply)


def test_addresses_that_cannot_be_bound():
  with server.bind("127.0.0.1", 0) as one:
    one.listen()
    port = one.getsockname()[1]
    with pytest.raises(InputError, match=f"--port={port}: Address already"):
      server.bind("127.0.0.1", port)
  with pytest.raises(InputError, match=r"--host=192\.0\.2\.1"):
    server.bind("192.0.2.1", 0)
  with pytest.raises(InputError, match=r"--host=no\.such\.host\.invalid"):
    server.bind("no.such.host.invalid", 0)


@pytest.fixture
def start(runs, environment):
  """A function that starts the command, with a signal handled as told."""
  with contextlib.ExitStack() as stack:

    def start(*flags, number=signal.SIGINT, handler=signal.SIG_DFL):
      command = [sys.executable, "-m", "jaxsyn", "serve", f"it={runs['pascal']}"]  # fmt: skip
      process = stack.enter_context(
        subprocess.Popen(
          [*command, "--port=0", *flags],
          env=environment | {"PYTHONUNBUFFERED": "1"},
          stdout=subprocess.PIPE,
          stderr=subprocess.PIPE,
          text=True,
          preexec_fn=lambda: signal.signal(number, handler),
        )
      )
      stack.callback(process.kill)
      return process

    yield start


def ready_port(process):
  """Waits until a server is ready; returns its port."""
  line = process.stdout.readline()
  matches = re.fullmatch(r"serving it at http://127\.0\.0\.1:(\d+)\n", line)
  assert matches, line + process.stderr.read()
  return int(matches[1])


def health(client):
  client.request("GET", "/health")
  return json.load(client.getresponse())


def wait_until_closed(port):
  end = time.monotonic() + 20
  while time.monotonic() < end:
    try:
      socket.create_connection(("127.0.0.1", port)).close()
    except OSError:
      return
    time.sleep(0.05)
  raise AssertionError(f"port {port} still listens")


# The tests may run under nohup, which makes a server ignore SIGHUP.
@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGTERM])
def test_finishes_requests_before_it_stops(start, number):
  process = start("--compile=0", "--beam=2", "--together=2", number=number)
  port = ready_port(process)
  client = http.client.HTTPConnection("127.0.0.1", port, timeout=300)
  assert health(client) == {"status": "ok"}
  request = {"texts": [LINE] * 6, "nbest": 2, "stream": True}
  client.request("POST", "/translate", json.dumps(request))
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


def test_prints_its_address_before_it_compiles(start):
  process = start("--compile=16", "--together=2")
  line = process.stderr.readline()
  matches = re.fullmatch(
    r"listening at http://127\.0\.0\.1:(\d+); compiling (\d+) sizes, until then "
    r"it answers 503; --compile 0 starts without\n",
    line,
  )
  assert matches, line + process.stderr.read()
  port = int(matches[1])
  client = http.client.HTTPConnection("127.0.0.1", port, timeout=300)
  state = health(client)
  assert state["status"] == "starting"
  assert state["sizes"] == int(matches[2]) > 1
  assert 0 <= state["compiled"] <= state["sizes"]
  assert ready_port(process) == port
  assert health(client) == {"status": "ok"}


def test_the_second_ctrl_c_ends_it_at_once(start):
  # A shell ignores SIGINT in background jobs.
  process = start("--compile=0", handler=signal.SIG_IGN)
  port = ready_port(process)
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
