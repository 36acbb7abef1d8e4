"""A server at a real port: clients that take their time, and its end."""

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
from asked_services import LINE, listening

from jaxsyn.errors import InputError
from jaxsyn.serving import body, server
from jaxsyn.serving.limits import ServiceLimits
from jaxsyn.serving.service import Service

POST = b"POST /translate HTTP/1.1\r\nHost: localhost\r\n"


@pytest.fixture
def port(served, monkeypatch):
  """Of a service that is in a hurry with its clients; it translates nothing."""
  monkeypatch.setattr(server, "STUCK", 1.0)
  monkeypatch.setattr(body, "SECONDS", 1.0)
  monkeypatch.setattr(body, "_LINGER", 0.2)
  service = Service(served, ServiceLimits(connections=20, max_bytes=100_000))
  service.state = "ok"
  with listening(service) as port:
    yield port


def spoken(port, *parts, every=0.0):
  """What is answered to some bytes, until the server hangs up."""
  with socket.create_connection(("127.0.0.1", port), timeout=20) as expected:
    with contextlib.suppress(ConnectionError):
      for part in parts:
        expected.sendall(part)
        time.sleep(every)
    message = b""
    with contextlib.suppress(ConnectionError):
      while part := expected.recv(65536):
        message += part
  return message


def test_slow_clients_are_disconnected(port):
  began = time.monotonic()
  half = POST + b"Content-Length: 100\r\n\r\n{"
  message = spoken(port, half)
  assert (
    message.startswith(b"HTTP/1.1 408 ") and b"did not come within" in message
  )
  drops = POST + b"Content-Length: 100\r\n\r\n"
  message = spoken(port, drops, *[b"{"] * 40, every=0.1)
  assert b" 408 " in message or message == b""
  assert time.monotonic() - began < 30
  assert b'{"status": "ok"}' in spoken(
    port,
    b"GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n",
  )


def test_frequent_requests_keep_the_connection(port):
  """Never asking when the server looks, each time within the limits."""
  client = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
  client.connect()
  expected, end = client.sock, time.monotonic() + 3.5
  while time.monotonic() < end:
    client.request("GET", "/health")
    assert client.getresponse().read() == b'{"status": "ok"}'
    assert client.sock is expected
    time.sleep(0.2)
  client.close()


def test_bodies_without_an_end(port):
  message = spoken(port, POST + b"Content-Length: 10000000000\r\n\r\n", *[b"x" * 65536] * 50)  # fmt: skip
  assert b" 413 " in message[:20] or message == b""
  chunked = POST + b"Transfer-Encoding: chunked\r\n\r\n"
  chunk = b"10000\r\n" + b"x" * 65536 + b"\r\n"
  message = spoken(port, chunked, *[chunk] * 50)
  assert b" 411 " in message[:20] or message == b""
  message = spoken(port, chunked, b"1\r\n{\r\n0\r\n\r\n")
  assert message.startswith(b"HTTP/1.1 411 ") and b"Send its length." in message
  # One that ends at once is told why.
  message = spoken(
    port, POST + b"Content-Length: 200000\r\n\r\n" + b"x" * 200_000
  )
  assert (
    message.startswith(b"HTTP/1.1 413 ") and b"at most 100,000 are" in message
  )


def test_a_body_that_is_not_read_ends_the_connection(port):
  head = b" HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n\r\n"
  for line, status in ((b"GET /health", b"200"), (b"POST /none", b"404")):
    began = time.monotonic()
    message = spoken(port, line + head, b"x")
    assert message.startswith(b"HTTP/1.1 " + status)
    assert b"connection: close" in message.lower()
    assert time.monotonic() - began < 5


def test_a_connection_receives_32_kb_before_the_server_reads():
  """The window limits what a distant client sends per round trip."""
  with server.bound("127.0.0.1", 0) as listening, socket.socket() as client:
    listening.listen()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
    client.connect(listening.getsockname())
    client.settimeout(0.5)
    sent = 0
    with contextlib.suppress(TimeoutError):
      while sent < 10**6:
        sent += client.send(b"x" * 1024)
  assert 32_000 < sent < 128_000


def reply_to_large_body(port, line, *headers, size=300_000):
  """Sends a body with a small send buffer; returns the response."""
  with socket.socket() as client:
    client.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
    client.settimeout(20)
    client.connect(("127.0.0.1", port))
    lines = [line + b" HTTP/1.1", b"Content-Length: %d" % size, *headers]
    if not any(header.startswith(b"Host: ") for header in headers):
      lines.append(b"Host: localhost")
    client.sendall(b"\r\n".join(lines) + b"\r\n\r\n" + b"x" * size)
    reply = b""
    while part := client.recv(65536):
      reply += part
  return reply


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
def test_a_client_with_a_large_body_gets_the_response(
  port, line, header, status
):
  reply = reply_to_large_body(port, line, header)
  assert reply.startswith(b"HTTP/1.1 %d " % status), reply[:200]
  assert b"connection: close" in reply.lower()


@pytest.mark.parametrize(
  "line",
  [
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n",  # speaks TLS
    b"GET / HTTP/9.9\r\n\r\n",
    b"GET /\r\n\r\n",
    b"GET / HTTP/1.1\r\n\r\n",  # no Host
    b"GET / HTTP/1.1\r\nHost: a\r\n" + b"X: y\r\n" * 100_000 + b"\r\n",
    POST + b"Content-Length: -1\r\n\r\n",
    POST + b"Content-Length: 1\r\nContent-Length: 2\r\n\r\n{}",
    POST + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n",
  ],
)
def test_rejects_invalid_http(port, line):
  message = spoken(port, line)
  assert message == b"" or message.startswith(b"HTTP/1.1 400 ")
  assert b"Traceback" not in message
  if message:
    # The second is of uvicorn.
    answer = message.partition(b"\r\n\r\n")[2]
    assert b'{"error": ' in answer or b"Invalid HTTP request" in answer


def test_clients_that_do_not_read_are_disconnected(port):
  """Asks again and again, and never reads."""
  with socket.create_connection(("127.0.0.1", port)) as expected:
    expected.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    expected.settimeout(0.5)
    end = time.monotonic() + 30
    with pytest.raises(ConnectionError):
      while time.monotonic() < end:
        with contextlib.suppress(TimeoutError):
          expected.sendall(
            b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n" * 50
          )


def test_too_many_connections(port):
  with contextlib.ExitStack() as stack:
    for _ in range(20):
      stack.enter_context(socket.create_connection(("127.0.0.1", port)))
    message = spoken(port, b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
    assert message.startswith(b"HTTP/1.1 503 ")
    assert message.endswith(b"\r\n\r\nService Unavailable")
  assert b'{"status": "ok"}' in spoken(
    port,
    b"GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n",
  )


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
def test_odd_headers_are_no_fault_of_the_server(port, name):
  for value in ODD:
    for line in (b"GET /static/page.js", b"OPTIONS /runs", b"POST /parse"):
      lines = [line + b" HTTP/1.1", name.encode() + b": " + value]
      if name != "Host":
        lines.append(b"Host: localhost")
      lines += [b"Connection: close", b"", b""]
      message = spoken(port, b"\r\n".join(lines))
      assert re.match(rb"HTTP/1.1 [234]\d\d ", message), (
        line,
        value,
        message[:200],
      )


def test_a_port_that_is_taken():
  with server.bound("127.0.0.1", 0) as one:
    one.listen()
    port = one.getsockname()[1]
    with pytest.raises(InputError, match=f"--port={port}: Address already"):
      server.bound("127.0.0.1", port)
  with pytest.raises(InputError, match=r"--host=192\.0\.2\.1"):
    server.bound("192.0.2.1", 0)
  with pytest.raises(InputError, match=r"--host=no\.such\.host\.invalid"):
    server.bound("no.such.host.invalid", 0)


def wait_until_closed(port):
  """Nobody listens there any more, soon."""
  end = time.monotonic() + 20
  while time.monotonic() < end:
    try:
      socket.create_connection(("127.0.0.1", port)).close()
    except OSError:
      return
    time.sleep(0.05)
  raise AssertionError(f"port {port} still listens")


def test_finishes_requests_before_it_stops(runs, environment):
  """All of it in a process: what is asked before its end is answered."""
  number = signal.SIGHUP
  command = [sys.executable, "-m", "jaxsyn", "serve", f"it={runs['pascal']}"]
  flags = ["--port=0", "--compile=0", "--beam=2", "--together=2"]
  process = subprocess.Popen(
    [*command, *flags],
    env=environment | {"PYTHONUNBUFFERED": "1"},
    stdout=subprocess.PIPE,
    stderr=subprocess.PIPE,
    text=True,
    # The tests may run under nohup, which a server heeds.
    preexec_fn=lambda: signal.signal(number, signal.SIG_DFL),
  )
  try:
    line = process.stdout.readline()
    matches = re.fullmatch(r"serving it at http://127\.0\.0\.1:(\d+)\n", line)
    assert matches, process.stderr.read()
    client = http.client.HTTPConnection(
      "127.0.0.1", int(matches[1]), timeout=300
    )
    client.request("GET", "/health")
    assert json.load(client.getresponse()) == {"status": "ok"}
    message = {"texts": [LINE] * 6, "nbest": 2, "stream": True}
    client.request("POST", "/translate", json.dumps(message))
    answer = client.getresponse()
    first = json.loads(answer.readline())
    assert len(first["nbest"]) == 2
    process.send_signal(number)
    wait_until_closed(int(matches[1]))
    rest = [json.loads(line) for line in answer]
    assert sorted([first["index"], *(one["index"] for one in rest)]) == [
      *range(6)
    ]
    out, err = process.communicate(timeout=60)
    assert process.returncode == 128 + number
    assert (out, err) == ("", f"ended by {number.name}\n")
  finally:
    process.kill()
    process.wait()


def test_prints_its_address_before_it_compiles(runs, environment):
  """And how far it is; --compile 16 is a few sizes of a tiny run."""
  command = [sys.executable, "-m", "jaxsyn", "serve", f"it={runs['pascal']}"]
  process = subprocess.Popen(
    [*command, "--port=0", "--compile=16", "--together=2"],
    env=environment | {"PYTHONUNBUFFERED": "1"},
    stdout=subprocess.PIPE,
    stderr=subprocess.PIPE,
    text=True,
  )
  try:
    line = process.stderr.readline()
    matches = re.fullmatch(
      r"listening at http://127\.0\.0\.1:(\d+); compiling (\d+) sizes, until then "
      r"it answers 503; --compile 0 starts without\n",
      line,
    )
    assert matches, line + process.stderr.read()
    client = http.client.HTTPConnection(
      "127.0.0.1", int(matches[1]), timeout=300
    )
    client.request("GET", "/health")
    message = json.load(client.getresponse())
    # It is not compiled in the moment that this asks.
    assert (
      message["status"] == "starting"
      and message["sizes"] == int(matches[2]) > 1
    )
    assert 0 <= message["compiled"] <= message["sizes"]
    ready = process.stdout.readline()
    assert ready == f"serving it at http://127.0.0.1:{matches[1]}\n"
    client.request("GET", "/health")
    assert json.load(client.getresponse()) == {"status": "ok"}
  finally:
    process.kill()
    process.wait()


def test_the_second_ctrl_c_ends_it_at_once(runs, environment):
  command = [sys.executable, "-m", "jaxsyn", "serve", str(runs["pascal"])]
  process = subprocess.Popen(
    [*command, "--port=0", "--compile=0"],
    env=environment | {"PYTHONUNBUFFERED": "1"},
    stdout=subprocess.PIPE,
    stderr=subprocess.PIPE,
    text=True,
    # A shell has it ignored for jobs in the background.
    preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_IGN),
  )
  try:
    port = int(process.stdout.readline().rpartition(":")[2])
    with socket.create_connection(("127.0.0.1", port)) as expected:
      # A body that comes: the server waits for it.
      expected.sendall(POST + b"Content-Length: 100\r\n\r\n{")
      time.sleep(0.5)
      os.kill(process.pid, signal.SIGINT)
      time.sleep(1)
      assert process.poll() is None
      os.kill(process.pid, signal.SIGINT)
      _, err = process.communicate(timeout=15)
    assert process.returncode == 130 and err.endswith("interrupted\n")
  finally:
    process.kill()
    process.wait()
