"""Raw files: readers of formats, archives, and downloads."""

import gzip
import hashlib

import pytest
import web_server

from jaxsyn.errors import InputError
from jaxsyn.preprocess import raw
from jaxsyn.preprocess.raw import Source
from jaxsyn.preprocess.readers import READERS, reader_of

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
def test_treebank_lines_are_the_text_comments(tmp_path, name):
  data = (TREE * 2).encode()
  path = tmp_path / name
  path.write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
  line = "Vom Haus\u00a0 ."  # to the letter, not put together of the words
  assert reader_of(name) == "conllu"
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
def test_reports_malformed_treebanks(tmp_path, old, new, message):
  path = tmp_path / "a.conllu"
  path.write_bytes((TREE + TREE.replace(old, new)).encode())
  with pytest.raises(InputError, match=message):
    [*READERS["conllu"].texts(Source(path))]


def raw_files(folder, *downloads, raw_dir=""):
  return raw.RawFiles(str(raw_dir), folder, raw.addresses(downloads))


def test_reports_missing_files(tmp_path):
  with pytest.raises(
    InputError, match=r"a\.en is not found \(--raw_dir is not set\)"
  ):
    raw_files(tmp_path).find("a.en")
  with pytest.raises(
    InputError, match=r"a\.en is not found in .*has no address"
  ):
    raw_files(tmp_path / "fetched", raw_dir=tmp_path).find("a.en")


def test_reports_a_file_with_another_hash(tmp_path):
  (tmp_path / "a.en").write_bytes(b"other")
  download = ("a.en", "https://example.org/a.en", "0" * 64)
  found = raw_files(tmp_path / "fetched", download, raw_dir=tmp_path)
  with pytest.raises(InputError, match=r"a\.en is not the file.*has 0000"):
    found.find("a.en")


BODY = b"some text\n" * 5000
SUM = hashlib.sha256(BODY).hexdigest()


@pytest.mark.parametrize("sha256", [SUM, SUM.upper(), ""])
def test_downloads_a_file_once(tmp_path, sha256):
  with web_server.serve() as server:
    server.answers["a.en"] = BODY
    download = ("a.en", server.url("a.en"), sha256)
    for _ in range(2):
      path = raw_files(tmp_path / "fetched", download, raw_dir=tmp_path).find(
        "a.en"
      )
      assert path.read_bytes() == BODY
    assert server.asked == ["/a.en"]
  assert path == tmp_path / "fetched" / "a.en"


def test_reports_failed_downloads(tmp_path):
  with web_server.serve() as server:
    found = raw_files(tmp_path, ("a.en", server.url("gone"), "0" * 64))
    message = r"a\.en cannot be fetched from .*gone \(.*404.*by hand to .*a\.en"
    with pytest.raises(InputError, match=message):
      found.find("a.en")
  with pytest.raises(InputError, match=r"cannot be fetched .*refused"):
    found.find("a.en")
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
def test_rejects_malformed_downloads(entry):
  good = ("b", "http://h/b", "0" * 64, "500")
  assert raw.addresses([good])["b"].max_bytes == 500
  with pytest.raises(InputError, match=r"prepare\.downloads must hold"):
    raw.addresses([good, entry])


@pytest.mark.parametrize("name", ["a.tar.gz", "a.TGZ", "a.zip", "a.en.bz2"])
def test_rejects_archives_before_downloading(tmp_path, name):
  (tmp_path / name).write_bytes(b"")
  with pytest.raises(InputError, match=rf"{name}: archives are not read\. Unp"):
    raw_files(tmp_path / "fetched", raw_dir=tmp_path).find(name)
