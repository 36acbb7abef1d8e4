"""Test sets of WMT in SGML and XML: their segments are the lines."""

import gzip
import os
import threading

import pytest

from jaxsyn.data.sentence.text import arriving_lines, read_lines
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
DATASET = """<?xml version='1.0' encoding='utf-8'?>
<dataset id="newstest2021.en-de">
  <doc id="a" origlang="en">
    <src lang="en"><p><seg id="1">One</seg><seg id="2">Two</seg></p></src>
    <ref lang="de" translator="A"><p>
      <seg id="1">Eins</seg><seg id="2">Zwei</seg></p></ref>
  </doc>
</dataset>
"""


def write(path, text):
  data = text.encode()
  path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
  return path


@pytest.mark.parametrize("name", ["a.sgm", "a.gz"])
@pytest.mark.parametrize(
  "change",
  [
    lambda text: text,
    lambda text: text.replace("\n", "\r\n"),
    lambda text: f"\ufeff\n  {text}",
    lambda text: f"<?xml version='1.0'?>\n{text}",
    lambda text: f'<!DOCTYPE mteval SYSTEM "mteval.dtd">\n{text}',
    lambda text: f"<mteval>\n{text}</mteval>",
    lambda text: text.replace("srcset", "refset"),
    lambda text: text.replace("srcset", "TSTSET"),
  ],
)
def test_lines_are_the_segments_in_order(tmp_path, name, change):
  assert read_lines(write(tmp_path / name, change(SOURCE))) == LINES


def test_text_that_only_mentions_tags_stays_text(tmp_path):
  for text in ("<seg> is a tag\n", "<srcse\nb\n", "\n\n<b>x</b>\n", "<", ""):
    loaded = read_lines(write(tmp_path / "a.en", text))
    assert loaded == text.removesuffix("\n").split("\n") * bool(text)


def test_a_blank_line_of_a_live_pipe_is_answered(tmp_path):
  path = tmp_path / "pipe"
  os.mkfifo(path)
  seen, more = threading.Event(), []

  def write_slowly():
    with path.open("wb", buffering=0) as pipe:
      pipe.write(b"\n")
      more.append(seen.wait(20))
      pipe.write(b"next\n")

  thread = threading.Thread(target=write_slowly)
  thread.start()
  lines = []
  for line in arriving_lines(path):
    if line is not None:
      lines.append(line)
      seen.set()
  thread.join()
  assert lines == ["", "next"] and more == [True]


@pytest.mark.parametrize(
  ("old", "new", "line", "what"),
  [
    ("Tokyo</seg>", "Tokyo", 4, "is not closed"),
    ("lines\u00a0here\n</seg>", "lines", 8, "is not closed"),
    ("Tokyo</seg>", "Tokyo</seg></seg>", 4, "closes no <seg>"),
    ("</srcset>", "<seg>cut", 18, "is not closed"),
  ],
)
def test_faults_name_the_line(tmp_path, old, new, line, what):
  assert old in SOURCE
  path = write(tmp_path / "a.sgm", SOURCE.replace(old, new))
  with pytest.raises(InputError, match=rf"a\.sgm:{line}: .*{what}"):
    read_lines(path)


@pytest.mark.parametrize(
  ("text", "what"),
  [
    (DATASET, r'sets: <src lang="en">, <ref .*"A">\. .* one'),
    (SOURCE + REFERENCE, r"several sets: <srcset .*>, <refset "),
    (
      REFERENCE.replace("<refset", '<refset refid="a"')
      + REFERENCE.replace("<refset", '<refset refid="b"'),
      r'several sets: <refset refid="a".*>, <refset refid="b"',
    ),
    ("<?xml version='1.0'?>\n<tmx><tuv><seg>a</seg></tuv></tmx>\n", "no set"),
    ("<?xml version='1.0'?>\n<html>text</html>\n", "no <seg>"),
    ("<srcset>\n</srcset>\n", "no <seg>"),
  ],
)
def test_what_has_not_one_set_is_rejected(tmp_path, text, what):
  with pytest.raises(InputError, match=what):
    read_lines(write(tmp_path / "a.xml", text))


def test_one_side_of_the_xml_format(tmp_path):
  source = DATASET[: DATASET.index("    <ref")] + "  </doc>\n</dataset>\n"
  assert read_lines(write(tmp_path / "a.xml", source)) == ["One", "Two"]


def test_another_encoding_is_named(tmp_path):
  path = tmp_path / "a.sgm"
  path.write_bytes(SOURCE.replace("Tokyo", "T\xf6kyo").encode("latin1"))
  with pytest.raises(InputError, match=r"a\.sgm:4: .*not UTF-8.*iconv"):
    read_lines(path)
