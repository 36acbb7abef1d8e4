"""Tests that downloads from faulty servers never replace a valid file."""

import gzip
import hashlib
import pathlib
import re
import threading
import time
import urllib.request

import pytest
import web_server

from jaxsyn.data.store import fetch
from jaxsyn.errors import InputError

BODY = b"some text\n" * 5000
SUM = hashlib.sha256(BODY).hexdigest()


@pytest.fixture
def server():
  with web_server.serve() as server:
    yield server


@pytest.fixture
def download(server):
  """Returns a download of a.en, which the server has."""
  server.answers["a.en"] = BODY
  return fetch.Download(server.url("a.en"))


def names(folder: pathlib.Path):
  return sorted(path.name for path in folder.iterdir())


def test_downloads_once_and_records_the_checksum(server, download, tmp_path):
  path, record = tmp_path / "a.en", tmp_path / "a.en.sha256"
  for _ in range(2):
    assert fetch.get(path, download) == SUM
  assert path.read_bytes() == BODY
  assert server.asked == ["/a.en"]
  assert names(tmp_path) == ["a.en", "a.en.sha256"]
  assert re.fullmatch(
    rf"# downloaded from {download.url}, \d{{4}}-\d\d-\d\dT[0-9:]{{8}}\+00:00\n"
    rf"{SUM}  a\.en\n",
    record.read_text(),
  )
  # Later downloads must have the recorded checksum.
  path.unlink()
  server.answers["a.en"] = BODY[:-1] + b"!"
  message = rf"was changed .* {SUM} in .*a\.en\.sha256 \(delete"
  with pytest.raises(InputError, match=message):
    fetch.get(path, download)
  assert names(tmp_path) == ["a.en.sha256"]
  record.write_bytes(b"\xff\x00")
  with pytest.raises(InputError, match=r"a\.en\.sha256 has no SHA-256"):
    fetch.get(path, download)


def test_replaces_a_file_with_another_checksum(
  server, download, tmp_path, capsys
):
  """The checksum in the config precedes the recorded one."""
  path = tmp_path / "a.en"
  fetch.get(path, download)
  for sha256 in (SUM, ""):
    path.write_bytes(b"S" + BODY[1:])
    assert fetch.get(path, download._replace(sha256=sha256)) == SUM
    assert path.read_bytes() == BODY
    assert "a.en was changed" in capsys.readouterr().err
  server.answers["a.en"] = BODY[::-1]
  other = hashlib.sha256(BODY[::-1]).hexdigest()
  assert fetch.get(path, download._replace(sha256=other)) == other
  assert path.read_bytes() == BODY[::-1]
  assert fetch.recorded(path) == other


def test_keeps_and_records_a_file_that_was_not_downloaded(tmp_path):
  path = tmp_path / "a.en"
  path.write_bytes(BODY)
  unreachable = fetch.Download("http://127.0.0.1:9/a.en")
  assert fetch.get(path, unreachable) == SUM
  assert "not downloaded" in (tmp_path / "a.en.sha256").read_text()
  path.write_bytes(BODY[:-1])
  with pytest.raises(fetch.UnreachableError, match="Connection refused"):
    fetch.get(path, unreachable)
  assert path.read_bytes() == BODY[:-1]


def chunked(*parts):
  def answer(handler):
    handler.protocol_version = "HTTP/1.1"
    handler.send_response(200)
    handler.send_header("Transfer-Encoding", "chunked")
    handler.send_header("Connection", "close")
    handler.end_headers()
    handler.wfile.write(b"".join(parts))
    handler.close_connection = True

  return answer


CHUNK = b"%x\r\n%s\r\n" % (len(BODY), BODY)
ZIPPED = gzip.compress(BODY)
BOMB = gzip.compress(bytes(1 << 20))
MIB = 1 << 20


@pytest.mark.parametrize(
  ("name", "response", "sha256", "limit", "message"),
  [
    ("a", web_server.send(BODY[:-7], len(BODY)), "", MIB, "49,993 of 50,000"),
    ("a", web_server.send(BODY[:-7]), SUM, MIB, f"SHA-256 .* {SUM} in config"),
    ("a", web_server.send(BODY), "", len(BODY) - 1, "more than 49,999 bytes"),
    ("a", web_server.endless, SUM, MIB, "has more than 1,048,576 bytes"),
    ("a", web_server.send(BODY, None), "", MIB, "sends no length"),
    ("a", chunked(CHUNK), "", MIB, "IncompleteRead"),
    ("a", web_server.redirect("file:///etc/hostname"), "", MIB, "not allowed"),
    ("a", web_server.send(b"", status=410), "", 9, "HTTP Error 410"),
    ("a.gz", web_server.send(BODY), "", MIB, "not a complete gzip file"),
    ("a.gz", web_server.send(ZIPPED[:-9]), "", MIB, "not a complete gzip file"),
    ("a.gz", web_server.send(BOMB), "", len(BOMB), "after decompression"),
    ("a", lambda handler: time.sleep(0.3), "", MIB, "timed out|closed"),
  ],
)
def test_rejects_wrong_responses(
  server, tmp_path, monkeypatch, name, response, sha256, limit, message
):
  if "timed out" in message:
    monkeypatch.setattr(fetch, "_TIMEOUT", 0.1)
  server.answers["a"] = response
  download = fetch.Download(server.url("a"), sha256, limit)
  with pytest.raises(InputError, match=message):
    fetch.get(tmp_path / name, download)
  assert names(tmp_path) == []


def test_accepts_complete_responses_of_the_largest_size(server, tmp_path):
  """A length is needed only if the checksum is unknown."""
  server.answers |= {
    "exact": web_server.send(BODY),
    "known": web_server.send(BODY, None),
    "chunks": chunked(CHUNK, b"0\r\n\r\n"),
  }
  for name, sha256 in (("exact", ""), ("known", SUM), ("chunks", "")):
    download = fetch.Download(server.url(name), sha256, len(BODY))
    assert fetch.get(tmp_path / name, download) == SUM


@pytest.mark.parametrize(
  "url", ["file:///etc/passwd", "ftp://h/a", "a.en", "http:///a", "http://[/"]
)
def test_rejects_invalid_addresses(tmp_path, url):
  message = r"not an address with http|Invalid IPv6"
  with pytest.raises(InputError, match=message):
    fetch.get(tmp_path / "a", fetch.Download(url))


def test_rejects_redirects_to_addresses_without_encryption(
  server, download, tmp_path, monkeypatch
):
  urlopen = urllib.request.urlopen

  def redirected(request, timeout):
    return urlopen(download.url, timeout=timeout)

  monkeypatch.setattr(urllib.request, "urlopen", redirected)
  with pytest.raises(InputError, match=rf"{download.url}, which is not encr"):
    fetch.get(tmp_path / "a", fetch.Download("https://example.org/a"))
  assert names(tmp_path) == []


def test_concurrent_callers_download_once(server, tmp_path):
  def slow(handler):
    time.sleep(0.1)
    web_server.send(BODY)(handler)

  server.answers["a"] = slow
  (tmp_path / ".a.0123abcd.partial").write_bytes(b"of a killed process")
  download, results = fetch.Download(server.url("a")), []

  def get():
    results.append(fetch.get(tmp_path / "a", download))

  threads = [threading.Thread(target=get) for _ in range(3)]
  for thread in threads:
    thread.start()
  for thread in threads:
    thread.join()
  assert results == [SUM] * 3
  assert server.asked == ["/a"]
  assert names(tmp_path) == ["a", "a.sha256"]
