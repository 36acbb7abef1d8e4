"""Reading and writing of text files; test sets of WMT in SGML and XML."""

import gzip

import pytest
import zstandard

from jaxsyn.data.sentence.text import read_lines, writer
from jaxsyn.errors import InputError

SOURCE = """<srcset setid="newstest2015" srclang="any">
<doc sysid="ref" docid="1012-bbc" genre="news" origlang="en">
<hl>
<seg id="1">India and Japan prime ministers meet in Tokyo</seg>
</hl>
<p>
<seg id="2">Q&amp;A: &quot;5 &lt; 7&quot;, said AT&T &#8211; &#x2014; &apos;so&apos;.</seg>
<seg id="3">
  Two
\tlines\u00a0here
</seg>
</p>
</doc>
<DOC docid="2" genre="news"><P>
<SEG>A seg without an id</SEG> <seg id="2"></seg>
<!-- <seg id="9">not this one</seg> -->
</P></DOC>
</srcset>
"""
SEGMENTS = [
  "India and Japan prime ministers meet in Tokyo",
  "Q&A: \"5 < 7\", said AT&T \u2013 \u2014 'so'.",
  "Two lines\u00a0here",
  "A seg without an id",
  "",
]
REFERENCE = SOURCE.replace("srcset", "refset").replace("India", "Indien")
XML_SOURCE = """<?xml version='1.0' encoding='utf-8'?>
<dataset id="newstest2021.en-de">
  <doc id="a" origlang="en">
    <src lang="en"><p><seg id="1">One</seg><seg id="2">Two</seg></p></src>
"""
XML_REFERENCE = """    <ref lang="de" translator="A"><p>
      <seg id="1">Eins</seg><seg id="2">Zwei</seg></p></ref>
"""
XML_END = "  </doc>\n</dataset>\n"


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
    ("a.gz", gzip.compress(PLAIN, mtime=0)[:-9], "a.gz cannot be unpacked"),
    ("a.zst", PLAIN, r"a.zst cannot be unpacked .*does not start as"),
    ("a.gz", None, "a.gz is missing"),
    (
      "a.sgm",
      SOURCE.replace("Tokyo", "T\xf6kyo").encode("latin1"),
      r"a\.sgm:4: .*not UTF-8.*iconv",
    ),
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


@pytest.mark.parametrize(
  "text, lines",
  [
    (SOURCE, SEGMENTS),
    (SOURCE.replace("\n", "\r\n"), SEGMENTS),
    (f"\ufeff\n  {SOURCE}", SEGMENTS),
    (f'<!DOCTYPE mteval SYSTEM "mteval.dtd">\n{SOURCE}', SEGMENTS),
    (f"<mteval>\n{SOURCE}</mteval>", SEGMENTS),
    (SOURCE.replace("srcset", "TSTSET"), SEGMENTS),
    (XML_SOURCE + XML_END, ["One", "Two"]),
    # Text that only mentions tags stays text.
    ("<seg> is a tag\n", ["<seg> is a tag"]),
    ("<srcse\nb\n", ["<srcse", "b"]),
    ("\n\n<b>x</b>\n", ["", "", "<b>x</b>"]),
    ("<", ["<"]),
  ],
)
def test_lines_are_the_segments_in_order(tmp_path, text, lines):
  (tmp_path / "a.xml").write_text(text, newline="")
  assert read_lines(tmp_path / "a.xml") == lines
  (tmp_path / "a.gz").write_bytes(gzip.compress(text.encode()))
  assert read_lines(tmp_path / "a.gz") == lines


@pytest.mark.parametrize(
  "text, message",
  [
    (SOURCE.replace("Tokyo</seg>", "Tokyo"), ":4: .* no counterpart"),
    (SOURCE.replace("here\n</seg>", "here"), ":8: .* no counterpart"),
    (SOURCE.replace("Tokyo</seg>", "</seg></seg>"), ":4: .* no counterpart"),
    (SOURCE.replace("</srcset>", "<seg>cut"), ":18: .* no counterpart"),
    (SOURCE.replace("</srcset>", "</srcset><seg>a</seg>"), ":18: .* in no set"),
    (
      XML_SOURCE + XML_REFERENCE + XML_END,
      r'sets: <src lang="en">, <ref .*"A">\. .* one',
    ),
    (SOURCE + REFERENCE, r"several sets: <srcset .*>, <refset "),
    (
      REFERENCE + REFERENCE.replace("<refset", '<refset refid="b"'),
      r'several sets: <refset .*>, <refset refid="b"',
    ),
    ("<?xml version='1.0'?>\n<tmx><seg>a</seg></tmx>\n", ":2: .* in no set"),
    ("<srcset>\n</srcset>\n", "no <seg>"),
  ],
)
def test_rejects_files_without_exactly_one_set(tmp_path, text, message):
  path = tmp_path / "a.xml"
  path.write_text(text)
  with pytest.raises(InputError, match=rf"a\.xml.*{message}"):
    read_lines(path)
