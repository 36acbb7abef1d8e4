"""Input that is translated as it arrives."""

import contextlib
import gzip
import itertools
import os
import threading
import time

import pytest

from jaxsyn.data.sentence import text
from jaxsyn.data.sentence.stream import chunks, sentences
from jaxsyn.data.sentence.text import Faulty
from jaxsyn.errors import InputError

BAD = b"one\nso f\xfcr\nthree\nnul\0in\nfive\n"
TREE = "1\t{}\t_\t_\t_\t_\t0\troot\t_\t_\n\n"


@contextlib.contextmanager
def pipe(*writes):
  """The path of a pipe; each write comes after a pause of the writer."""
  read_end, write_end = os.pipe()

  def write():
    for i, data in enumerate(writes):
      time.sleep(0.2 if i else 0.0)
      os.write(write_end, data)
    os.close(write_end)

  thread = threading.Thread(target=write)
  thread.start()
  try:
    yield f"/dev/fd/{read_end}"
  finally:
    os.close(read_end)
    thread.join()


def texts(chunk):
  return [s.text if hasattr(s, "text") else s for s in chunk]


@pytest.mark.parametrize(
  "trees, size, writes, expected",
  [
    (
      False,
      1000,
      (b"a\nb\n", b"c", b"d\n", b"e\nf"),
      [["a", "b"], ["cd"], ["e", "f"]],
    ),
    (
      False,
      2,
      (b"a\nb\nc\nd\n", b"e", b"\nf\ng\nh\n"),
      [["a", "b"], ["c", "d"], [], ["e", "f"], ["g", "h"]],
    ),
    # A tree is complete at its blank line.
    (
      True,
      1000,
      (TREE.format(1).encode(), TREE.format(2).encode()[:-1], b"\n"),
      [["1"], ["2"]],
    ),
  ],
)
def test_chunks_are_the_available_sentences(trees, size, writes, expected):
  with pipe(*writes) as path:
    result = [texts(chunk) for chunk in chunks(sentences(path, trees), size)]
  assert result == expected


def test_an_answer_comes_before_the_next_line_is_written():
  read_end, write_end = os.pipe()
  with os.fdopen(write_end, "wb", buffering=0) as writer:
    stop = threading.Timer(20, writer.close)  # it would wait for ever
    stop.start()
    answers = chunks(sentences(f"/dev/fd/{read_end}", trees=False), 1000)
    for line in (b"", b"a", b"b"):
      writer.write(line + b"\n")
      assert next(answers) == [line.decode()]
    stop.cancel()
  assert list(answers) == []
  os.close(read_end)


@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_a_file_is_in_full_chunks_and_in_order(tmp_path, pack):
  lines = [str(i) for i in range(3000)]
  content = "".join(f"{line}\n" for line in lines).encode()
  (tmp_path / "a").write_bytes(pack(content))
  result = list(chunks(sentences(str(tmp_path / "a"), trees=False), 1000))
  assert [len(chunk) for chunk in result] == [1000, 1000, 1000]
  assert list(itertools.chain(*result)) == lines
  with pipe(*(pack(content[i : i + 7000]) for i in range(0, 13890, 7000))) as p:
    result = chunks(sentences(p, trees=False), 1000)
    assert list(itertools.chain(*result)) == lines


def test_rejects_lines_without_an_end(monkeypatch, tmp_path):
  monkeypatch.setattr(text, "LONGEST", 100)
  monkeypatch.setattr(text, "_BLOCK", 64)
  with pytest.raises(InputError, match="zero:1: the line has more than 100 by"):
    text.read_lines("/dev/zero")
  parts = [b"a", b"b" * 301, b"c" * 100, b"d"]
  (tmp_path / "a").write_bytes(b"\n".join(parts))
  (result,) = chunks(sentences(str(tmp_path / "a"), False, "replace"), 1000)
  assert texts(result) == ["a", "b" * 100, "c" * 100, "d"]
  assert [isinstance(item, Faulty) for item in result] == [0, 1, 0, 0]


@pytest.mark.parametrize(
  "errors, second, fourth",
  [("replace", "so f\ufffdr", "nul\ufffdin"), ("skip", None, None)],
)
def test_errors_of_lines(tmp_path, errors, second, fourth):
  path = tmp_path / "a"
  path.write_bytes(BAD)
  (result,) = chunks(sentences(str(path), False, errors), 1000)
  assert texts(result) == ["one", second, "three", fourth, "five"]
  assert [isinstance(item, Faulty) for item in result] == [0, 1, 0, 1, 0]
  assert "a:2: byte 5 (0xfc)" in result[1].message
  strict = chunks(sentences(str(path), trees=False), 1000)
  assert next(strict) == ["one"]  # the lines before the error
  with pytest.raises(InputError, match=r"a:2: byte 5 \(0xfc\) is not UTF-8"):
    next(strict)
  path.write_bytes(BAD.replace(b"\xfc", b"u"))
  with pytest.raises(InputError, match=r"a:4: character 4 is NUL.*UTF-16"):
    list(sentences(str(path), trees=False))


@pytest.mark.parametrize("errors", ["replace", "skip"])
def test_errors_of_trees(tmp_path, errors):
  """An error in a tree is one of its sentence, which may have several trees."""
  path, name = tmp_path / "a.conllu", "# sent_id = x\n"
  trees = (name + TREE.format("one"), name + "1\ttwo\n\n", TREE.format("three"))
  path.write_text("".join(trees))
  (result,) = chunks(sentences(str(path), True, errors), 1000)
  assert texts(result) == [None, "three"]
  assert "a.conllu:5: 2 columns" in result[0].message
  with pytest.raises(InputError, match=r"a\.conllu:5: 2 columns"):
    list(sentences(str(path), True))
  path.write_bytes(TREE.format("f\xfcr").encode("latin-1"))
  expected = "f\ufffdr" if errors == "replace" else None
  assert texts(sentences(str(path), True, errors)) == [expected]


def test_trees_with_the_same_name_are_one_sentence(tmp_path):
  names = ["x", "x", "y", "", ""]
  blocks = [
    (f"# sent_id = {name}\n" if name else "") + TREE.format(i)
    for i, name in enumerate(names)
  ]
  (tmp_path / "a.conllu").write_text("".join(blocks))
  parses = list(sentences(str(tmp_path / "a.conllu"), True))
  assert [parse.text for parse in parses] == ["0 1", "2", "3", "4"]
