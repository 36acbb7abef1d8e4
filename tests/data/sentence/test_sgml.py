"""Test sets of WMT in SGML and XML: their segments are the lines."""

import gzip

import pytest

from jaxsyn.data.sentence.text import read_lines
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
LINES = [
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
  "text, lines",
  [
    (SOURCE, LINES),
    (SOURCE.replace("\n", "\r\n"), LINES),
    (f"\ufeff\n  {SOURCE}", LINES),
    (f'<!DOCTYPE mteval SYSTEM "mteval.dtd">\n{SOURCE}', LINES),
    (f"<mteval>\n{SOURCE}</mteval>", LINES),
    (SOURCE.replace("srcset", "TSTSET"), LINES),
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
    (SOURCE.replace("Tokyo</seg>", "Tokyo"), ":4: .* is not closed"),
    (SOURCE.replace("here\n</seg>", "here"), ":8: .* is not closed"),
    (SOURCE.replace("Tokyo</seg>", "</seg></seg>"), ":4: .* closes no <seg>"),
    (SOURCE.replace("</srcset>", "<seg>cut"), ":18: .* is not closed"),
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


def test_names_the_line_of_another_encoding(tmp_path):
  path = tmp_path / "a.sgm"
  path.write_bytes(SOURCE.replace("Tokyo", "T\xf6kyo").encode("latin1"))
  with pytest.raises(InputError, match=r"a\.sgm:4: .*not UTF-8.*iconv"):
    read_lines(path)
