"""Tests that downloads from faulty servers never replace a valid file."""

import gzip
import hashlib
import pathlib
import re
import threading
import time

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


def names(folder: pathlib.Path):
  return sorted(path.name for path in folder.iterdir())


def test_downloads_once_and_records_the_checksum(server, tmp_path):
  server.answers["a.en"] = BODY
  path, address = tmp_path / "a.en", fetch.Download(server.url("a.en"))
  for _ in range(2):
    assert fetch.get(path, address) == SUM
  assert path.read_bytes() == BODY
  assert server.asked == ["/a.en"]
  assert names(tmp_path) == ["a.en", "a.en.sha256"]
  record = (tmp_path / "a.en.sha256").read_text()
  assert re.fullmatch(
    rf"# downloaded from {address.url}, \d{{4}}-\d\d-\d\dT[0-9:]{{8}}\+00:00\n"
    rf"{SUM}  a\.en\n",
    record,
  )


def test_rejects_content_that_differs_from_the_first_download(server, tmp_path):
  server.answers["a.en"] = BODY
  path, address = tmp_path / "a.en", fetch.Download(server.url("a.en"))
  fetch.get(path, address)
  path.unlink()
  server.answers["a.en"] = BODY[:-1] + b"!"
  with pytest.raises(
    InputError, match=rf"was changed .* {SUM} in .*a\.en\.sha256 \(delete"
  ):
    fetch.get(path, address)
  assert names(tmp_path) == ["a.en.sha256"]


@pytest.mark.parametrize("sha256", [SUM, ""])
def test_downloads_a_corrupt_file_again(server, tmp_path, sha256, capsys):
  server.answers["a.en"] = BODY
  path, address = tmp_path / "a.en", fetch.Download(server.url("a.en"), sha256)
  fetch.get(path, address)
  path.write_bytes(b"S" + BODY[1:])
  assert fetch.get(path, address) == SUM
  assert path.read_bytes() == BODY
  assert "a.en was changed" in capsys.readouterr().err


def test_records_a_file_that_was_not_downloaded(tmp_path):
  path = tmp_path / "a.en"
  path.write_bytes(BODY)
  null = fetch.Download("http://127.0.0.1:9/a.en")
  assert fetch.get(path, null) == SUM
  assert "not downloaded" in (tmp_path / "a.en.sha256").read_text()
  path.write_bytes(BODY[:-1])
  with pytest.raises(InputError, match="refused"):
    fetch.get(path, null)
  assert path.read_bytes() == BODY[:-1]  # the user's own; never lost


def test_rejects_a_corrupt_record(server, tmp_path):
  server.answers["a.en"] = BODY
  path, address = tmp_path / "a.en", fetch.Download(server.url("a.en"))
  fetch.get(path, address)
  (tmp_path / "a.en.sha256").write_bytes(b"\xff\x00")
  with pytest.raises(InputError, match=r"a\.en\.sha256 has no SHA-256"):
    fetch.get(path, address)


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


BOMB = gzip.compress(bytes(1 << 20))
WHOLE_CHUNK = b"%x\r\n%s\r\n" % (len(BODY), BODY)

# Response, SHA-256 and size limit in the config; error message.
RESPONSES = {
  "too short": (
    (web_server.send(BODY[:-7], len(BODY)), "", 1 << 20),
    r"truncated: 49,993 of 50,000 bytes",
  ),
  "longer than it says": (
    (web_server.send(BODY, len(BODY) - 7), SUM, 1 << 20),
    r"changed or truncated: its SHA-256 is",
  ),
  "one byte too large": (
    (web_server.send(BODY), "", len(BODY) - 1),
    r"has more than 49,999 bytes; a fourth",
  ),
  "endless": (
    (web_server.endless, SUM, 1 << 20),
    r"has more than 1,048,576 bytes",
  ),
  "no length, nothing known": (
    (web_server.send(BODY, None), "", 1 << 20),
    r"sends no length",
  ),
  "chunks cut off": (
    (chunked(WHOLE_CHUNK), "", 1 << 20),
    r"IncompleteRead",
  ),
  "a local file": (
    (web_server.redirect("file:///etc/hostname"), "", 1 << 20),
    r"Redirection to url 'file:///etc/hostname' is not allowed",
  ),
  "ftp": (
    (web_server.redirect("ftp://127.0.0.1/a"), "", 1 << 20),
    r"ftp error|refused|timed out|urlopen",
  ),
  "gone": ((web_server.send(b"", status=410), "", 9), r"HTTP Error 410"),
  "another file": (
    (web_server.send(b"another"), SUM, 1 << 20),
    rf"changed or truncated: .* {SUM} in config\.prepare\.downloads",
  ),
  "no gzip": ((web_server.send(BODY), "", 1 << 20), "not a complete gzip file"),
  "gzip that unpacks to gigabytes": (
    (web_server.send(BOMB), "", len(BOMB)),
    "bytes after decompression",
  ),
  "gzip cut off": (
    (web_server.send(gzip.compress(BODY)[:-9]), "", 1 << 20),
    "not a complete gzip file",
  ),
}


@pytest.mark.parametrize("case", RESPONSES)
def test_rejects_wrong_responses(server, tmp_path, case):
  (server.answers["a.gz"], sha256, maximum), message = RESPONSES[case]
  path = tmp_path / "raw" / "a.gz"
  if "gzip" not in case:
    path = path.with_suffix(".en")
  address = fetch.Download(server.url("a.gz"), sha256, maximum)
  with pytest.raises(InputError, match=message):
    fetch.get(path, address)
  assert names(path.parent) == []


def test_accepts_a_response_without_a_length_if_its_checksum_is_known(
  server, tmp_path
):
  server.answers |= {
    "known": web_server.send(BODY, None),
    "chunks": chunked(WHOLE_CHUNK, b"0\r\n\r\n"),
  }
  for name, sha256 in (("known", SUM), ("chunks", "")):
    address = fetch.Download(server.url(name), sha256)
    assert fetch.get(tmp_path / name, address) == SUM


@pytest.mark.parametrize(
  "url", ["file:///etc/passwd", "ftp://h/a", "a.en", "http:///a", "http://[/"]
)
def test_rejects_invalid_addresses(tmp_path, url):
  with pytest.raises(
    InputError, match=r"not an address with http|Invalid IPv6"
  ):
    fetch.get(tmp_path / "a", fetch.Download(url))


def test_redirects_stay_encrypted():
  fetch._check_url("https://mirror.org/a", "https://example.org/a")
  with pytest.raises(InputError, match=r"http://mirror.org/a, which is not"):
    fetch._check_url("http://mirror.org/a", "https://example.org/a")


def test_reports_an_unreachable_server(tmp_path):
  with pytest.raises(InputError, match="Connection refused"):
    fetch.get(tmp_path / "a", fetch.Download("http://127.0.0.1:9/a"))


def test_rejects_a_server_that_stops_sending(server, tmp_path, monkeypatch):
  monkeypatch.setattr(fetch, "_TIMEOUT", 0.2)
  server.answers["hang"] = lambda handler: time.sleep(0.6)
  with pytest.raises(InputError, match=r"timed out|closed"):
    fetch.get(tmp_path / "hang", fetch.Download(server.url("hang")))
  assert names(tmp_path) == []


def test_two_processes_download_once(server, tmp_path):
  def slow(handler):
    time.sleep(0.2)
    web_server.send(BODY)(handler)

  server.answers["a"] = slow
  (tmp_path / ".a.0123abcd.partial").write_bytes(b"of a killed process")
  address, result = fetch.Download(server.url("a")), []
  threads = [
    threading.Thread(
      target=lambda: result.append(fetch.get(tmp_path / "a", address))
    )
    for _ in range(3)
  ]
  for thread in threads:
    thread.start()
  for thread in threads:
    thread.join()
  assert result == [SUM] * 3
  assert server.asked == ["/a"]
  assert names(tmp_path) == ["a", "a.sha256"]
