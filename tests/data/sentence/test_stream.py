"""Tests input that is translated as it arrives."""

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
  present, current = os.pipe()

  def write():
    for i, data in enumerate(writes):
      time.sleep(0.2 if i else 0.0)
      os.write(current, data)
    os.close(current)

  thread = threading.Thread(target=write)
  thread.start()
  try:
    yield f"/dev/fd/{present}"
  finally:
    os.close(present)
    thread.join()


def texts(chunk):
  return [s.text if hasattr(s, "text") else s for s in chunk]


def test_what_is_there_is_taken_and_a_slow_writer_is_answered():
  with pipe(b"a\nb\n", b"c", b"d\n", b"e\nf") as path:
    result = list(chunks(sentences(path, trees=False), 1000))
  assert result == [["a", "b"], ["cd"], ["e", "f"]]
  with pipe(b"a\nb\nc\nd\n", b"e", b"\nf\ng\nh\n") as path:
    result = list(chunks(sentences(path, trees=False), 2))
  assert result == [["a", "b"], ["c", "d"], [], ["e", "f"], ["g", "h"]]


def test_an_answer_comes_before_the_next_line_is_written():
  present, current = os.pipe()
  with os.fdopen(current, "wb", buffering=0) as writer:
    stop = threading.Timer(20, writer.close)  # it would wait for ever
    stop.start()
    answers = chunks(sentences(f"/dev/fd/{present}", trees=False), 1000)
    for line in (b"a", b"b", b"c"):
      writer.write(line + b"\n")
      assert next(answers) == [line.decode()]
    stop.cancel()
  assert list(answers) == []
  os.close(present)


@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_a_file_is_in_full_chunks_and_in_order(tmp_path, pack):
  lines = [str(i) for i in range(3000)]
  content = "".join(f"{line}\n" for line in lines).encode()
  (tmp_path / "a").write_bytes(pack(content))
  result = list(chunks(sentences(str(tmp_path / "a"), trees=False), 1000))
  assert [len(chunk) for chunk in result] == [1000, 1000, 1000]
  assert list(itertools.chain(*result)) == lines
  with pipe(*(pack(content[i : i + 5000]) for i in range(0, 13890, 5000))) as p:
    result = chunks(sentences(p, trees=False), 1000)
    assert list(itertools.chain(*result)) == lines


def test_an_endless_line_ends(monkeypatch, tmp_path):
  monkeypatch.setattr(text, "LONGEST", 100)
  with pytest.raises(InputError, match="zero:1: the line has more than 100 by"):
    text.read_lines("/dev/zero")
  (tmp_path / "a").write_bytes(
    b"a\n" + b"b" * 101 + b"\n" + b"c" * 100 + b"\nd"
  )
  (result,) = chunks(sentences(str(tmp_path / "a"), False, "replace"), 1000)
  assert texts(result) == ["a", "b" * 100, "c" * 100, "d"]
  assert [isinstance(item, Faulty) for item in result] == [0, 1, 0, 0]


def test_a_tree_is_answered_at_its_blank_line():
  two = [TREE.format(word).encode() for word in ("one", "two")]
  with pipe(two[0], two[1][:-1], two[1][-1:]) as path:
    result = [texts(c) for c in chunks(sentences(path, True), 1000)]
  assert result == [["one"], ["two"]]


@pytest.mark.parametrize(
  ("errors", "second", "fourth"),
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
  assert next(strict) == ["one"]  # what comes before the error
  with pytest.raises(InputError, match=r"a:2: byte 5 \(0xfc\) is not UTF-8"):
    next(strict)
  path.write_bytes(BAD.replace(b"\xfc", b"u"))
  with pytest.raises(InputError, match=r"a:4: character 4 is NUL.*UTF-16"):
    list(sentences(str(path), trees=False))


@pytest.mark.parametrize("errors", ["replace", "skip"])
def test_errors_of_trees(tmp_path, errors):
  """An error is one of its sentence, which may have several trees."""
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
