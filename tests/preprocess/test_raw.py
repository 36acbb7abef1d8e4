"""Raw files: what is read, what is refused, what is fetched."""

import gzip
import hashlib

import pytest
import web_server

from jaxsyn.data.sentence.text import read_lines
from jaxsyn.errors import InputError
from jaxsyn.preprocess import raw
from jaxsyn.preprocess.readers import READERS, Source


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
  assert read_lines(write(tmp_path / "a.txt", data)) == lines
  packed = write(tmp_path / "a.gz", gzip.compress(data))
  assert read_lines(packed) == lines


def test_not_utf8(tmp_path):
  path = write(tmp_path / "a.en", b"fine\nso f\xfcr\n")
  with pytest.raises(
    InputError, match=r"a\.en:2: byte 5 \(0xfc\) is not UTF-8"
  ):
    read_lines(path)


def test_faulty_files(tmp_path):
  complete = gzip.compress(b"line\n" * 1000)
  for name, data in (("cut.gz", complete[:30]), ("plain.gz", b"line\n")):
    with pytest.raises(InputError, match=rf"{name} cannot be unpacked"):
      read_lines(write(tmp_path / name, data))
  with pytest.raises(InputError, match=r"no\.txt is missing"):
    read_lines(tmp_path / "no.txt")


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
  assert [*READERS["conllu"].texts(Source(path))] == [line, line]


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
    [*READERS["conllu"].texts(Source(path))]


def test_missing_without_address(tmp_path):
  with pytest.raises(
    InputError, match=r"a\.en is nowhere: --raw_dir is not set"
  ):
    raw.find("a.en", "", own_folder=tmp_path, downloads={})
  with pytest.raises(InputError, match=r"a\.en is not in .*gives no address"):
    raw.find("a.en", str(tmp_path), own_folder=tmp_path / "own", downloads={})


def test_reports_a_file_with_another_hash(tmp_path):
  path = write(tmp_path / "a.en", b"other")
  downloads = raw.addresses([("a.en", "https://example.org/a.en", "0" * 64)])
  with pytest.raises(InputError, match=r"a\.en is not the file.*says 0000"):
    raw.find(
      "a.en", str(path.parent), own_folder=tmp_path / "own", downloads=downloads
    )


BODY = b"some text\n" * 5000
SUM = hashlib.sha256(BODY).hexdigest()


@pytest.mark.parametrize("sha256", [SUM, SUM.upper(), ""])
def test_fetched_once(tmp_path, sha256):
  with web_server.serve() as server:
    server.answers["a.en"] = BODY
    downloads = raw.addresses([("a.en", server.url("a.en"), sha256)])
    for _ in range(2):
      path = raw.find(
        "a.en", str(tmp_path), own_folder=tmp_path / "own", downloads=downloads
      )
      assert path.read_bytes() == BODY
    assert server.asked == ["/a.en"]
  assert path == tmp_path / "own" / "a.en"


def test_cannot_be_fetched(tmp_path):
  with web_server.serve() as server:
    downloads = raw.addresses([("a.en", server.url("gone"), "0" * 64)])
    message = r"a\.en cannot be fetched from .*gone \(.*404.*by hand to .*a\.en"
    with pytest.raises(InputError, match=message):
      raw.find("a.en", "", own_folder=tmp_path, downloads=downloads)
  with pytest.raises(InputError, match=r"cannot be fetched .*refused"):
    raw.find("a.en", "", own_folder=tmp_path, downloads=downloads)
  assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
  "entry",
  [
    (),
    ("a", "http://h/a"),
    ("a", "http://h/a", "0" * 63),
    ("a", "http://h/a", "g" * 64),
    ("a", "http://h/a", "", "5 GB"),
    ("a", "http://h/a", "", "5", "6"),
    ("../a", "http://h/a", ""),
    ("..", "http://h/a", ""),
    ("", "http://h/a", ""),
    ("b", "http://h/a", ""),
  ],
)
def test_faulty_downloads(entry):
  good = ("b", "http://h/b", "0" * 64, "500")
  assert raw.addresses([good])["b"].max_bytes == 500
  with pytest.raises(InputError, match=r"prepare\.downloads must hold"):
    raw.addresses([good, entry])


@pytest.mark.parametrize("name", ["a.tar.gz", "a.TGZ", "a.zip", "a.en.bz2"])
def test_rejects_archives_before_fetching(tmp_path, name):
  (tmp_path / name).write_bytes(b"")
  with pytest.raises(InputError, match=rf"{name}: archives are not read\. Unp"):
    raw.find(name, str(tmp_path), own_folder=tmp_path / "raw", downloads={})
