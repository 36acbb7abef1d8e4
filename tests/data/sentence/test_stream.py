"""Input that is translated as it arrives."""

import contextlib
import gzip
import itertools
import os
import re
import threading

import pytest

from jaxsyn.data.sentence import text
from jaxsyn.data.sentence.stream import chunks, sentences
from jaxsyn.data.sentence.text import Faulty
from jaxsyn.errors import InputError

BAD = b"one\nso f\xfcr\nthree\nnul\0in\nfive\n"
TREE = "1\t{}\t_\t_\t_\t_\t0\troot\t_\t_\n\n"


@contextlib.contextmanager
def pipe():
  """The path of a pipe, and its other end."""
  read_end, write_end = os.pipe()
  with os.fdopen(write_end, "wb", buffering=0) as writer:
    stop = threading.Timer(20, writer.close)  # a test would wait for ever
    stop.start()
    yield f"/dev/fd/{read_end}", writer
    stop.cancel()
  os.close(read_end)


def write_later(writer, data, *, is_last=False):
  def write():
    writer.write(data)
    if is_last:
      writer.close()

  threading.Timer(0.1, write).start()


def texts(chunk):
  """Texts of lines and parses; None for a Faulty."""
  return [s if isinstance(s, str) else getattr(s, "text", None) for s in chunk]


# What is written, what is written after a pause, and chunks that are complete.
LINES = [
  (b"\n", b"", [[""]]),
  (b"a\nb\n", b"", [["a", "b"]]),
  (b"c", b"d\n", [["cd"]]),
  (b"e\n", b"", [["e"]]),
]
FULL = [
  (b"a\nb\nc\nd\n", b"", [["a", "b"], ["c", "d"], []]),
  (b"e", b"\nf\ng\nh\n", [["e", "f"], ["g", "h"]]),
]
TREES = [  # complete at a blank line
  (TREE.format(1).encode(), b"", [["1"]]),
  (TREE.format(2).encode()[:-1], b"\n", [["2"]]),
]


@pytest.mark.parametrize(
  "trees, size, writes",
  [(False, 1000, LINES), (False, 2, FULL), (True, 9, TREES)],
)
def test_chunks_are_the_available_sentences(trees, size, writes):
  """They come before anything else is written."""
  with pipe() as (path, writer):
    answers = chunks(sentences(path, trees), size)
    for first, second, expected in writes:
      writer.write(first)
      if second:
        write_later(writer, second)
      assert [texts(next(answers)) for _ in expected] == expected
    writer.write(b"x\ny" if not trees else TREE.format("x").encode())
    writer.close()
    (rest,) = (chunk for chunk in answers if chunk)
    assert texts(rest) == (["x"] if trees else ["x", "y"])


@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_a_file_is_in_full_chunks_and_in_order(tmp_path, pack):
  lines = [str(i) for i in range(3000)]
  content = "".join(f"{line}\n" for line in lines).encode()
  (tmp_path / "a").write_bytes(pack(content))
  result = list(chunks(sentences(str(tmp_path / "a"), trees=False), 1000))
  assert [len(chunk) for chunk in result] == [1000, 1000, 1000]
  assert list(itertools.chain(*result)) == lines
  with pipe() as (path, writer):
    writer.write(pack(content[:7000]))
    write_later(writer, pack(content[7000:]), is_last=True)
    result = chunks(sentences(path, trees=False), 1000)
    assert list(itertools.chain(*result)) == lines


def test_rejects_lines_without_an_end(monkeypatch, tmp_path):
  monkeypatch.setattr(text, "LONGEST", 100)
  monkeypatch.setattr(text, "_BLOCK", 64)
  with pytest.raises(InputError, match="zero:1: the line has more than 100 by"):
    text.read_lines("/dev/zero")
  parts = [b"a", b"b" * 301, b"c" * 100, b"d"]
  (tmp_path / "a").write_bytes(b"\n".join(parts))
  (result,) = chunks(sentences(str(tmp_path / "a"), trees=False), 1000)
  assert texts(result) == ["a", None, "c" * 100, "d"]
  assert [isinstance(item, Faulty) for item in result] == [0, 1, 0, 0]


def test_errors_of_lines(tmp_path):
  path = tmp_path / "a"
  path.write_bytes(BAD)
  (result,) = chunks(sentences(str(path), trees=False), 1000)
  assert texts(result) == ["one", None, "three", None, "five"]
  assert [isinstance(item, Faulty) for item in result] == [0, 1, 0, 1, 0]
  assert "a:2: byte 5 (0xfc) is not UTF-8" in result[1].message
  assert re.search("a:4: character 4 is NUL.*UTF-16", result[3].message)
  strict = text.strict_items(sentences(str(path), trees=False))
  assert next(strict) == "one"  # the line before the error
  with pytest.raises(InputError, match=r"a:2: byte 5 \(0xfc\) is not UTF-8"):
    next(strict)


def test_errors_of_trees(tmp_path):
  """An error in a tree is one of its sentence, which may have several trees."""
  path, name = tmp_path / "a.conllu", "# sent_id = x\n"
  trees = (name + TREE.format("one"), name + "1\ttwo\n\n", TREE.format("three"))
  path.write_text("".join(trees))
  (result,) = chunks(sentences(str(path), True), 1000)
  assert texts(result) == [None, "three"]
  assert "a.conllu:5: 2 columns" in result[0].message
  with pytest.raises(InputError, match=r"a\.conllu:5: 2 columns"):
    list(text.strict_items(sentences(str(path), True)))
  path.write_bytes(TREE.format("f\xfcr").encode("latin-1"))
  assert texts(sentences(str(path), True)) == [None]


def test_trees_with_the_same_name_are_one_sentence(tmp_path):
  names = ["x", "x", "y", "", ""]
  blocks = [
    (f"# sent_id = {name}\n" if name else "") + TREE.format(i)
    for i, name in enumerate(names)
  ]
  (tmp_path / "a.conllu").write_text("".join(blocks))
  parses = list(sentences(str(tmp_path / "a.conllu"), True))
  assert [parse.text for parse in parses] == ["0 1", "2", "3", "4"]
