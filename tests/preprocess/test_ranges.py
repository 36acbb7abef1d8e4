"""Any run of lines or trees of a file, however it was cut into ranges."""

import random

import pytest
from raw_corpora import chain

from jaxsyn.data.sentence import conllu
from jaxsyn.data.sentence.align import visible
from jaxsyn.data.sentence.text import read_lines
from jaxsyn.errors import InputError
from jaxsyn.preprocess import ranges
from jaxsyn.preprocess.ranges import LineIndex, LineUnits
from jaxsyn.preprocess.work import Output, Work


def indexed(path, tmp_path, monkeypatch, *, size, form="lines", every=4):
  """The index of a file whose ranges have so many bytes."""
  monkeypatch.setattr(ranges, "RANGE", size)
  monkeypatch.setattr(ranges, "_STRIDE", every)
  ranges._arrays.cache_clear()
  units, work = LineUnits(str(path), path, form, measured=True), Work(tmp_path)
  facts = []
  for index, part in enumerate(units.ranges()):
    result, arrays = ranges.index(units, part)
    Output(work, f"index/{index}").write_arrays("units", arrays)
    facts.append(result)
  return LineIndex(units, facts, 0), work


TEXTS = {
  "plain": b"one\ntwo\n\nfour five\n" * 9,
  "no end": b"one\ntwo\n\nfour",
  "windows": b"\xef\xbb\xbfone\r\n\r\nthree\r\n" * 5,
  "empty": b"",
  "one": b"\n",
  "blank": b"\n" * 50,
  "long": b"a" * 90 + b"\n" + b"b\n" * 30 + b"c" * 200,
}


@pytest.mark.parametrize("name", TEXTS)
@pytest.mark.parametrize("size", [1, 7, 50, 1 << 20])
def test_lines(tmp_path, monkeypatch, name, size):
  path = tmp_path / "text"
  path.write_bytes(TEXTS[name])
  lines = TEXTS[name].split(b"\n")
  lines = lines if lines[-1] else lines[:-1]
  index, work = indexed(path, tmp_path, monkeypatch, size=size)
  assert index.count == index.lines == len(lines) == len(read_lines(path))
  draw = random.Random(3)
  for _ in range(20):
    first = draw.randint(0, len(lines))
    last = draw.randint(first, len(lines))
    assert index.lines_of(work, first, last) == lines[first:last]
    count, seen = index.seen_before(work, first)
    assert count <= first
    before = b"".join(lines[:count]).decode()
    assert seen == len(visible(before))


def treebank():
  """Trees with comments, blank lines, a multi-word token, carriage returns."""
  lines = ["a b", "c", "", "der Hund", "e f g h", "i"] * 4
  trees = [chain(line) for line in lines]
  trees[0] = "# newdoc\n# licence: none\n\n\n" + trees[0]
  trees[3] = (
    "# text = der Hund\n1-2\tder\t_\t_\t_\t_\t_\t_\t_\t_\n"
    + trees[3].split("\n")[0]
    + "\n2\tx\t_\t_\t_\t_\t1\tdep\t_\t_\n3\tHund\t_\t_\t_\t_\t1\tdep\t_\t_\n\n"
  )
  trees[4] = trees[4].replace("\n", "\r\n") + "\r\n"
  return [line for line in lines if line], "".join(trees)


@pytest.mark.parametrize("size", [1, 33, 200, 1 << 20])
def test_trees(tmp_path, monkeypatch, size):
  lines, text = treebank()
  path = tmp_path / "a.conllu"
  path.write_text(text, newline="")
  index, work = indexed(
    path, tmp_path, monkeypatch, size=size, form="trees", every=3
  )
  blocks = list(conllu.read(path))
  assert index.count == len(blocks) == len(lines)
  total = len(visible("".join(lines)))
  assert index.visible == total
  for first in range(len(lines) + 1):
    assert list(index.blocks_from(work, first)) == blocks[first:]
    seen = len(visible("".join(lines[:first])))
    assert list(index.blocks_behind(work, seen)) == blocks[first:]


def test_a_tree_of_two_lines_is_told(tmp_path, monkeypatch):
  path = tmp_path / "a.conllu"
  path.write_text(chain("ab cd") + chain("ef"))
  index, work = indexed(path, tmp_path, monkeypatch, size=99, form="trees")
  with pytest.raises(InputError, match=r"a\.conllu:1: .* words of two lines"):
    list(index.blocks_behind(work, 2))


@pytest.mark.parametrize("size", [5, 20, 1 << 20])
def test_a_line_that_is_no_sentence(tmp_path, monkeypatch, size):
  monkeypatch.setattr(ranges, "LONGEST", 10)
  path = tmp_path / "text"
  for before in (b"", b"one\ntwo\n"):
    for after in (b"", b"\n", b"\nlast"):
      path.write_bytes(before + b"x" * 10 + after)
      indexed(path, tmp_path, monkeypatch, size=size)
      path.write_bytes(before + b"x" * 11 + after)
      line = 1 + before.count(b"\n")
      with pytest.raises(InputError, match=rf"text:{line}: .* than 10 bytes"):
        indexed(path, tmp_path, monkeypatch, size=size)
