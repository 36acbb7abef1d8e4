"""Raw files: what is read, what is refused, what is fetched."""

import gzip
import hashlib
import http.server
import threading

import pytest

from jaxsyn.errors import InputError
from preprocess import raw


def write(path, data: bytes):
  path.write_bytes(data)
  return path


@pytest.mark.parametrize(
  ("data", "lines"),
  [
    (b"", []),
    (b"\n", [""]),
    (b"one\ntwo\n", ["one", "two"]),
    (b"one\ntwo", ["one", "two"]),
    (b"one\n\nthree\n", ["one", "", "three"]),
    (b"\xef\xbb\xbfone\n", ["one"]),  # byte order mark
    (b"one\r\ntwo\r\n", ["one", "two"]),
    ("a\u2028b\u0085c\x0bd\x0ce\x1cf\rg\n".encode(), None),  # one line
    (b"nul\x00in\n", ["nul\x00in"]),
  ],
)
def test_lines(tmp_path, data, lines):
  if lines is None:
    lines = [data.decode()[:-1]]
  assert raw.read_lines(write(tmp_path / "a.txt", data)) == lines
  packed = write(tmp_path / "a.gz", gzip.compress(data))
  assert raw.read_lines(packed) == lines


def test_not_utf8(tmp_path):
  path = write(tmp_path / "a.en", b"fine\nso f\xfcr\n")
  with pytest.raises(
    InputError, match=r"a\.en:2: byte 5 \(0xfc\) is not UTF-8"
  ):
    raw.read_lines(path)


def test_faulty_files(tmp_path):
  whole = gzip.compress(b"line\n" * 1000)
  for name, data in (("cut.gz", whole[:30]), ("plain.gz", b"line\n")):
    with pytest.raises(InputError, match=rf"{name} cannot be unpacked"):
      raw.read_lines(write(tmp_path / name, data))
  with pytest.raises(InputError, match=r"no\.txt is missing"):
    raw.read_lines(tmp_path / "no.txt")


def test_unequal_length(tmp_path):
  source = write(tmp_path / "a.en", b"1\n2\n3\n")
  target = write(tmp_path / "a.de", b"1\n2\n")
  message = r"a\.en has 3 lines, but .*a\.de has 2.*Look at line 3"
  with pytest.raises(InputError, match=message):
    raw.read_pairs(source, target)


TREE = """# sent_id = 1
# text = Vom Haus\u00a0 .
1-2\tVom\t_\t_\t_\t_\t_\t_\t_\t_
1\tvon\t_\t_\t_\t_\t3\tcase\t_\t_
2\tdem\t_\t_\t_\t_\t3\tdet\t_\t_
3\tHaus\t_\t_\t_\t_\t0\troot\t_\t_
3.1\tnichts\t_\t_\t_\t_\t_\t_\t_\t_
4\t.\t_\t_\t_\t_\t3\tpunct\t_\t_

"""


@pytest.mark.parametrize("name", ["a.conllu", "a.conllu.gz"])
def test_lines_of_a_treebank(tmp_path, name):
  pack = gzip.compress if name.endswith(".gz") else bytes
  path = write(tmp_path / name, pack((TREE * 2).encode()))
  line = "Vom Haus\u00a0 ."  # to the letter, not put together of the words
  assert raw.sentences(path) == [line, line]
  pairs = raw.read_pairs(path, write(tmp_path / "a.en", b"one\ntwo\n"))
  assert pairs.source == [line, line] and pairs.target == ["one", "two"]


@pytest.mark.parametrize(
  ("old", "new", "message"),
  [
    # The second block starts on line 10.
    ("# text = Vom", "# text_en = Of", r"a\.conllu:10: .* no `# text = "),
    ("# text = Vom Haus\u00a0 .", "# text =  ", r"a\.conllu:10: .* no `# text"),
    ("Haus\u00a0", "Haus\u2028", r"a\.conllu:10: .* line break in it: 'Vom"),
    ("Haus\u00a0", "Haus\r", r"a\.conllu:10: .* line break in it: 'Vom"),
    ("\t0\troot", "\t9\troot", r"a\.conllu:15: the head of word 3 is 9"),
  ],
)
def test_faulty_treebank(tmp_path, old, new, message):
  path = write(tmp_path / "a.conllu", (TREE + TREE.replace(old, new)).encode())
  with pytest.raises(InputError, match=message):
    raw.sentences(path)


def test_hash_tells_sides_apart(tmp_path):
  a, b = write(tmp_path / "a", b"x\ny\n"), write(tmp_path / "b", b"x\nz\n")
  assert raw.read_pairs(a, b).sha256 != raw.read_pairs(b, a).sha256


def test_missing_without_address(tmp_path):
  with pytest.raises(
    InputError, match=r"a\.en is nowhere: --raw_dir is not set"
  ):
    raw.find("a.en", "", tmp_path, {})
  with pytest.raises(InputError, match=r"a\.en is not in .*gives no address"):
    raw.find("a.en", str(tmp_path), tmp_path / "own", {})


def test_other_file_than_the_config_means(tmp_path):
  path = write(tmp_path / "a.en", b"other")
  downloads = {"a.en": ("https://example.org/a.en", "0" * 64)}
  with pytest.raises(InputError, match=r"a\.en is not the file.*says 0000"):
    raw.find("a.en", str(path.parent), tmp_path / "own", downloads)


BODY = b"some text\n" * 5000


class Server(http.server.BaseHTTPRequestHandler):
  """Serves BODY under any name, from any byte on; 404 for /gone."""

  def do_GET(self):
    start = self.headers.get("Range", "bytes=0-").removeprefix("bytes=")
    start = int(start.removesuffix("-"))
    self.server.starts.append(start)
    gone = self.path == "/gone"
    self.send_response(404 if gone else 206 if start else 200)
    self.end_headers()
    self.wfile.write(b"" if gone else BODY[start:])

  def log_message(self, *_):
    pass


@pytest.fixture
def server():
  with http.server.HTTPServer(("127.0.0.1", 0), Server) as server:
    server.starts = []
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server
    server.shutdown()


def address(server, name):
  return f"http://127.0.0.1:{server.server_port}/{name}"


def test_fetched_once_and_resumed(server, tmp_path):
  digest = hashlib.sha256(BODY).hexdigest()
  downloads = {"a.en": (address(server, "a.en"), digest)}
  write(tmp_path / "a.en.partial", BODY[:700])  # an interrupted run's
  for _ in range(2):
    path = raw.find("a.en", "", tmp_path, downloads)
    assert path.read_bytes() == BODY
  assert server.starts == [700]
  assert [p.name for p in tmp_path.iterdir()] == ["a.en"]


def test_fetched_with_another_checksum(server, tmp_path):
  downloads = {"a.en": (address(server, "a.en"), "0" * 64)}
  with pytest.raises(InputError, match=r"a\.en has changed or was cut off"):
    raw.find("a.en", "", tmp_path, downloads)
  assert list(tmp_path.iterdir()) == []


def test_cannot_be_fetched(server, tmp_path):
  downloads = {"a.en": (address(server, "gone"), "0" * 64)}
  message = r"a\.en cannot be fetched from .*gone \(.*404.*by hand to .*a\.en"
  with pytest.raises(InputError, match=message):
    raw.find("a.en", "", tmp_path, downloads)
  downloads = {"a.en": ("http://127.0.0.1:9/a.en", "0" * 64)}  # nobody there
  with pytest.raises(InputError, match=r"cannot be fetched"):
    raw.find("a.en", "", tmp_path, downloads)
