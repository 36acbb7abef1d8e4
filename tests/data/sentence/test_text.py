"""Strict lines in, whole files out."""

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


def test_bad_files_are_named(tmp_path):
  bad = tmp_path / "bad"
  bad.write_bytes(b"fine\nf\xfcr\n")
  with pytest.raises(InputError, match=r"bad:2: byte 2 \(0xfc\) is not UTF-8"):
    read_lines(bad)
  with pytest.raises(InputError, match="nowhere is missing"):
    read_lines(tmp_path / "nowhere")
  bad.write_bytes("two lines\n".encode("utf-16"))
  with pytest.raises(InputError, match=r"bad:1: byte 1 .* iconv -f utf-16"):
    read_lines(bad)
  cut = tmp_path / "cut.zst"
  cut.write_bytes(zstandard.compress(b"a\n" * 1000)[:-3])
  with pytest.raises(InputError, match="cannot be unpacked"):
    read_lines(cut)
  cut = tmp_path / "cut.gz"
  cut.write_bytes(gzip.compress(b"a\n" * 1000)[:-9])
  with pytest.raises(InputError, match="cannot be unpacked"):
    read_lines(cut)
  plain = tmp_path / "plain.zst"
  plain.write_bytes(b"a\n")
  with pytest.raises(InputError, match="cannot be unpacked"):
    read_lines(plain)
  plain = tmp_path / "plain.gz"
  plain.write_bytes(b"a\n")
  with pytest.raises(InputError, match=r"unpacked .*does not start as"):
    read_lines(plain)


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
