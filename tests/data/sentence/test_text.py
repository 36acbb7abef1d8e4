"""Reading and writing of text files."""

import gzip

import pytest
import zstandard

from jaxsyn.data.sentence.text import read_lines, writer
from jaxsyn.errors import InputError


@pytest.mark.parametrize(
  "content, lines",
  [
    (b"", []),
    (b"a\nb\n", ["a", "b"]),
    (b"a\n\nb", ["a", "", "b"]),
    (b"\xef\xbb\xbfa\r\nb\r\n", ["a", "b"]),  # byte order mark, CRLF
    ("a\u2028b\u0085c\x0bd\n".encode(), ["a\u2028b\u0085c\x0bd"]),
  ],
)
def test_lines_end_at_newlines_alone(tmp_path, content, lines):
  pack = {"a": bytes, "a.gz": gzip.compress, "a.zst": zstandard.compress}
  for name, compress in pack.items():
    (tmp_path / name).write_bytes(compress(content))
    assert read_lines(tmp_path / name) == lines
    if content and name != "a":  # several frames
      path = tmp_path / f"two_{name}"
      path.write_bytes(compress(content[:1]) + compress(content[1:]))
      assert read_lines(path) == lines


PLAIN = b"a\n" * 1000


@pytest.mark.parametrize(
  "name, content, message",
  [
    ("a", b"fine\nf\xfcr\n", r"a:2: byte 2 \(0xfc\) is not UTF-8"),
    ("a", "two\n".encode("utf-16"), r"a:1: byte 1 .* iconv -f utf-16"),
    ("a.zst", zstandard.compress(PLAIN)[:-3], "a.zst cannot be unpacked"),
    ("a.gz", gzip.compress(PLAIN)[:-9], "a.gz cannot be unpacked"),
    ("a.zst", PLAIN, r"a.zst cannot be unpacked .*does not start as"),
    ("a.gz", None, "a.gz is missing"),
  ],
)
def test_errors_name_the_file(tmp_path, name, content, message):
  if content is not None:
    (tmp_path / name).write_bytes(content)
  with pytest.raises(InputError, match=message):
    read_lines(tmp_path / name)


def test_files_are_written_atomically(tmp_path, capsys):
  path = tmp_path / "out" / "a"
  with writer(path) as write:
    write("ä")
    write("b")
  assert path.read_text(encoding="utf-8") == "ä\nb\n"
  with pytest.raises(KeyError), writer(tmp_path / "b") as write:
    write("half")
    raise KeyError
  assert not list(tmp_path.glob("b*"))
  with writer("-") as write:
    write("c")
    assert capsys.readouterr().out == "c\n"
