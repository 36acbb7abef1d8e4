"""Local HTTP server whose responses tests define, also incorrect ones."""

from __future__ import annotations

import contextlib
import http.server
import threading


class _Handler(http.server.BaseHTTPRequestHandler):
  def do_GET(self):
    self.server.asked.append(self.path)
    answer = self.server.answers.get(self.path.lstrip("/"))
    with contextlib.suppress(ConnectionError):  # the client has closed it
      if answer is None:
        self.send_error(404)
      elif callable(answer):
        answer(self)
      else:
        send(answer)(self)

  def log_message(self, *_):
    pass


def send(body: bytes, length: int | None = -1, status: int = 200, **headers):
  """Returns a response; `length` is its header, -1: correct, None: absent."""

  def answer(handler):
    handler.send_response(status)
    if length is not None:
      message = len(body) if length < 0 else length
      handler.send_header("Content-Length", str(message))
    for name, value in headers.items():
      handler.send_header(name.replace("_", "-"), value)
    handler.end_headers()
    handler.wfile.write(body)

  return answer


def redirect(url: str):
  """Returns a response that redirects to another URL."""
  return send(b"", status=302, Location=url)


def endless(handler):
  """Sends a body without an end and without a length."""
  handler.send_response(200)
  handler.end_headers()
  while True:
    handler.wfile.write(b"x" * 65536)


@contextlib.contextmanager
def serve():
  """Yields a server: `answers` by name, requested paths `asked`, `url(name)`."""
  with http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Handler) as server:
    server.answers, server.asked = {}, []
    server.url = lambda name: f"http://127.0.0.1:{server.server_port}/{name}"
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
      yield server
    finally:
      server.shutdown()
      thread.join()
