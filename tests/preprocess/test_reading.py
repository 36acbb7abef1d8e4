"""Input streams are cut into chunks of lines and trees."""

import pytest
import stage_runs
from raw_corpora import chain

from jaxsyn.config import read_config
from jaxsyn.configs import base
from jaxsyn.data.options import DataConfig
from jaxsyn.data.sentence import conllu, text
from jaxsyn.errors import InputError
from jaxsyn.preprocess.job import JobContext, PrepareJob, SplitInput
from jaxsyn.preprocess.outputs import Outputs
from jaxsyn.preprocess.raw import Source


def chunks_of(folder, lines, size, streams):
  """Reads the streams of one split; returns its chunks of `size` lines."""
  config = read_config(base.get_config())
  sources = {name: tuple(map(Source, paths)) for name, paths in streams.items()}
  job = PrepareJob(
    DataConfig(config.data, config.prepare),
    Outputs(folder / "outputs"),
    new=folder / "new",
    cache=folder / "cache",
    splits=(SplitInput("train", lines, sources, size),),
    parsers={},
  )
  context = JobContext(job)
  stage_runs.run(context, ["read"])
  return [context.chunk(number) for number in range(context.chunk_count)]


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
@pytest.mark.parametrize(("size", "first"), [(1, 2), (7, 0), (7, 2), (99, 0)])
def test_chunks_have_the_lines_of_all_files(tmp_path, name, size, first):
  paths = [tmp_path / file for file in "abc"]
  lines, places = [], []
  for path in paths:
    path.write_bytes(TEXTS[name])
    found = text.read_lines(path)
    lines += found
    places += [f"{path}:{i}" for i in range(1, len(found) + 1)]
  selection = f"{first + 1}-" if first else ""
  streams = {"source": paths, "target": paths}
  if first and first >= len(lines):
    with pytest.raises(InputError, match="FIRST-LAST"):
      chunks_of(tmp_path, selection, size, streams)
    return
  chunks = chunks_of(tmp_path, selection, size, streams)
  assert [line for c in chunks for line in c.texts("source")] == lines[first:]
  rows = [(chunk, row) for chunk in chunks for row in range(len(chunk.lines))]
  assert [c.place("source", row) for c, row in rows] == places[first:]
  assert all(len(chunk.lines) == size for chunk in chunks[:-1])
  indices = [i for chunk in chunks for i in chunk.lines]
  assert indices == list(range(first, len(lines)))


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
  return lines, trees


@pytest.mark.parametrize("size", [1, 5, 100])
@pytest.mark.parametrize("selection", ["", "4-9", "13-"])
def test_trees_are_cut_like_the_text(tmp_path, size, selection):
  lines, trees = treebank()
  source, *parts = (
    tmp_path / name for name in ("text", "a.conllu", "b.conllu")
  )
  source.write_text("".join(f"{line}\n" for line in lines))
  parts[0].write_text("\ufeff" + "".join(trees[:8]), newline="")
  parts[1].write_text("".join(trees[8:]), newline="")
  streams = {"source": [source], "target": [source], "trees.source": parts}
  found = []
  for chunk in chunks_of(tmp_path, selection, size, streams):
    found += chunk.parses("trees.source", chunk.texts("source"))
  blocks = [block for path in parts for block in conllu.read(path)]
  expected = list(conllu.match(blocks, lines, "text"))
  rows = {"": slice(None), "4-9": slice(3, 9), "13-": slice(12, None)}
  assert found == expected[rows[selection]]


@pytest.mark.parametrize(
  ("trees", "lines", "message"),
  [
    (["ab cd"], "", r"a\.conllu:1: the word 'cd' is not in the .*Line 1 of"),
    (["ab", "cd", "x y"], "", r"a\.conllu:5: .*'x y', comes after the last li"),
    (["ab", "cd", "x y"], "2-2", r"a\.conllu:5: .* comes after the last line"),
    (["ab"], "", r"text:2: the CoNLL-U has no tree for"),
  ],
)
def test_reports_trees_of_other_lines(tmp_path, trees, lines, message):
  path, source = tmp_path / "a.conllu", tmp_path / "text"
  source.write_text("ab\ncd\n")
  path.write_text("".join(map(chain, trees)))
  streams = {"source": [source], "target": [source], "trees.source": [path]}
  with pytest.raises(InputError, match=message):
    chunks_of(tmp_path, lines, 1, streams)


@pytest.mark.parametrize("after", [b"", b"\n", b"\nlast"])
def test_reports_a_line_that_is_too_long(tmp_path, monkeypatch, after):
  monkeypatch.setattr(text, "LONGEST", 10)
  path = tmp_path / "text"
  streams = {"source": [path], "target": [path]}
  path.write_bytes(b"one\n" * 2 + b"x" * 10 + after)
  chunks_of(tmp_path / "good", "", 1, streams)
  path.write_bytes(b"one\n" * 2 + b"x" * 11 + after)
  with pytest.raises(InputError, match=r"text:3: .* than 10 bytes"):
    chunks_of(tmp_path / "bad", "", 1, streams)
