"""Local server with the API of the Hugging Face Hub for one model."""

from __future__ import annotations

import contextlib
import hashlib
import http.server
import json
import pathlib
import threading

SHA = "0123456789abcdef0123456789abcdef01234567"  # of the only commit


class _Handler(http.server.BaseHTTPRequestHandler):
  def do_GET(self):
    self._answer(body=True)

  def do_HEAD(self):
    self._answer(body=False)

  def _answer(self, body: bool) -> None:
    self.server.asked.append(self.path)
    path, _, _ = self.path.partition("?")
    name, folder = self.server.model
    api = f"/api/models/{name}"
    names = sorted(p.name for p in folder.iterdir())
    if path in (api, f"{api}/revision/main", f"{api}/revision/{SHA}"):
      document = {"id": name, "sha": SHA, "siblings": [{"rfilename": n} for n in names]}  # fmt: skip
      self._send(json.dumps(document).encode(), body)
      return
    if path in (f"{api}/tree/main", f"{api}/tree/{SHA}"):
      entries = [
        {"type": "file", "path": n, "size": (folder / n).stat().st_size, "oid": SHA}
        for n in names
      ]  # fmt: skip
      self._send(json.dumps(entries).encode(), body)
      return
    for revision in ("main", SHA):
      file = folder / path.removeprefix(f"/{name}/resolve/{revision}/")
      if path.startswith(f"/{name}/resolve/{revision}/") and file.is_file():
        self._send(file.read_bytes(), body, kind="application/octet-stream")
        return
    lacking = "Revision" if path.startswith(api) else "Repo"
    headers = {"X-Error-Code": f"{lacking}NotFound"}
    self._send(b"{}", body, status=404, headers=headers)

  def _send(
    self, data, body, *, status=200, kind="application/json", headers=()
  ):
    self.send_response(status)
    self.send_header("Content-Type", kind)
    self.send_header("Content-Length", str(len(data)))
    self.send_header("ETag", f'"{hashlib.sha1(data).hexdigest()}"')
    self.send_header("X-Repo-Commit", SHA)
    for name, value in dict(headers).items():
      self.send_header(name, value)
    self.end_headers()
    if body:
      with contextlib.suppress(ConnectionError):
        self.wfile.write(data)

  def log_message(self, *_):
    pass


@contextlib.contextmanager
def serve(name: str, folder: pathlib.Path):
  """Yields the server of a model: its `url`, and requested paths `asked`."""
  with http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Handler) as server:
    server.model, server.asked = (name, folder), []
    server.url = f"http://127.0.0.1:{server.server_port}"
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server
    server.shutdown()
