"""Tests reading and writing of text files."""

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
  (tmp_path / "a").write_bytes(content)
  (tmp_path / "a.gz").write_bytes(gzip.compress(content))
  (tmp_path / "a.zst").write_bytes(zstandard.compress(content))
  for name in ("a", "a.gz", "a.zst"):
    assert read_lines(tmp_path / name) == lines


PLAIN = b"a\n" * 1000


@pytest.mark.parametrize(
  ("name", "content", "message"),
  [
    ("a", b"fine\nf\xfcr\n", r"a:2: byte 2 \(0xfc\) is not UTF-8"),
    ("a", "two\n".encode("utf-16"), r"a:1: byte 1 .* iconv -f utf-16"),
    ("a.zst", zstandard.compress(PLAIN)[:-3], "cannot be unpacked"),
    ("a.gz", gzip.compress(PLAIN)[:-9], "cannot be unpacked"),
    ("a.zst", PLAIN, r"unpacked .*does not start as"),
    ("a.gz", PLAIN, r"unpacked .*does not start as"),
  ],
)
def test_bad_files_are_named(tmp_path, name, content, message):
  with pytest.raises(InputError, match=f"{name} is missing"):
    read_lines(tmp_path / name)
  (tmp_path / name).write_bytes(content)
  with pytest.raises(InputError, match=message):
    read_lines(tmp_path / name)


def test_a_file_appears_whole_or_not_at_all(tmp_path):
  path = tmp_path / "out" / "a"
  with writer(path) as write:
    write("ä")
    write("b")
  assert path.read_text(encoding="utf-8") == "ä\nb\n"
  with pytest.raises(KeyError), writer(tmp_path / "b") as write:
    write("half")
    raise KeyError
  assert not list(tmp_path.glob("b*"))
