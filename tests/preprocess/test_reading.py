"""The first stage: chunks of lines and trees, however the text is cut."""

import pytest
from raw_corpora import chain

from jaxsyn.data.options import DataConfig
from jaxsyn.data.sentence import conllu, text
from jaxsyn.errors import InputError
from jaxsyn.preprocess import reading
from jaxsyn.preprocess.corpus import (
  JobContext,
  PrepareJob,
  SplitInput,
)
from jaxsyn.preprocess.outputs import Outputs, TaskOutput
from jaxsyn.preprocess.readers import Source


def job_of(folder, lines, chunk_lines, **streams):
  """A job of one split, its streams given as paths."""
  from jaxsyn.config import read_config
  from jaxsyn.configs import base

  config = read_config(base.get_config())
  sources = {
    name.replace("_", "."): tuple(Source(path) for path in paths)
    for name, paths in streams.items()
  }
  split = SplitInput("train", lines, sources, chunk_lines)
  return JobContext(
    PrepareJob(
      DataConfig(config.data, config.prepare),
      Outputs(folder / "outputs"),
      new=folder / "new",
      retained=folder / "kept",
      splits=(split,),
      parsers={},
    )
  )


def chunks_of(context):
  """Runs the stage; returns all chunks."""
  results = []
  for number in range(reading.count(context)):
    task = f"read/{number}"
    out = TaskOutput(context.outputs, task)
    out.finish(reading.read(context, number, out))
    results.append(context.outputs.result(task))
  summary = reading.combine(context, results)
  context.outputs.write_summary("read", summary)
  return [context.chunk(n) for n in range(context.chunk_count)]


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
@pytest.mark.parametrize("size", [1, 7, 1000])
@pytest.mark.parametrize("first", [0, 2])
def test_chunks_have_the_lines_of_all_files(tmp_path, name, size, first):
  paths = [tmp_path / file for file in "ab"]
  for path in paths:
    path.write_bytes(TEXTS[name])
  lines, places = [], []
  for path in paths:
    found = text.read_lines(path)
    lines += found
    places += [f"{path}:{i}" for i in range(1, len(found) + 1)]
  selection = f"{first + 1}-" if first else ""
  context = job_of(tmp_path, selection, size, source=paths, target=paths)
  if first >= len(lines) > 0 or (first and not lines):
    with pytest.raises(InputError, match="FIRST-LAST"):
      chunks_of(context)
    return
  chunks = chunks_of(context)
  placed = [one for chunk in chunks for one in chunk.placed("source")]
  assert placed == [*zip(places, lines, strict=True)][first:]
  assert all(len(chunk.lines) == size for chunk in chunks[:-1])
  assert [i for chunk in chunks for i in chunk.lines] == [
    *range(first, len(lines))
  ]


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


@pytest.mark.parametrize("size", [1, 2, 5, 100])
@pytest.mark.parametrize("selection", ["", "4-9", "13-"])
def test_trees_are_cut_where_the_chunks_of_the_text_end(
  tmp_path, size, selection
):
  lines, trees = treebank()
  source, *parts = (
    tmp_path / name for name in ("text", "a.conllu", "b.conllu")
  )
  source.write_text("".join(f"{line}\n" for line in lines))
  parts[0].write_text("\ufeff" + "".join(trees[:8]), newline="")
  parts[1].write_text("".join(trees[8:]), newline="")
  context = job_of(
    tmp_path,
    selection,
    size,
    source=[source],
    target=[source],
    trees_source=parts,
  )
  found = []
  for chunk in chunks_of(context):
    of_chunk = chunk.texts("source")
    parses = list(chunk.trees("trees.source", "source", of_chunk))
    assert [parse.text for parse in parses] == of_chunk
    found += chunk._blocks("trees.source")
  blocks = [block for path in parts for block in conllu.read(path)]
  due = {"": blocks, "4-9": blocks[2:7], "13-": blocks[10:]}[selection]
  assert found == due  # with the same files and lines, for messages


@pytest.mark.parametrize("rest", ["", "x y"])
def test_trees_of_two_lines_or_too_many_are_errors(tmp_path, rest):
  path, source = tmp_path / "a.conllu", tmp_path / "text"
  source.write_text("ab\ncd\n")
  trees = ["ab", "cd", rest] if rest else ["ab cd"]
  path.write_text("".join(map(chain, trees)))
  streams = {"source": [source], "target": [source], "trees_source": [path]}
  context = job_of(tmp_path, "", 1, **streams)
  message = r"a\.conllu:5: this tree, 'x y', comes after the last line"
  if not rest:
    message = r"a\.conllu:1: the word 'cd' is not in the text .*Line 1 of"
  with pytest.raises(InputError, match=message):
    for chunk in chunks_of(context):
      list(chunk.trees("trees.source", "source", chunk.texts("source")))


@pytest.mark.parametrize("count", [0, 2])
def test_a_line_that_is_too_long_for_a_sentence(tmp_path, monkeypatch, count):
  monkeypatch.setattr(text, "LONGEST", 10)
  path = tmp_path / "text"
  for after in (b"", b"\n", b"\nlast"):
    path.write_bytes(b"one\n" * count + b"x" * 10 + after)
    streams = {"source": [path], "target": [path]}
    chunks_of(job_of(tmp_path, "", 1, **streams))
    path.write_bytes(b"one\n" * count + b"x" * 11 + after)
    with pytest.raises(
      InputError, match=rf"text:{count + 1}: .* than 10 bytes"
    ):
      chunks_of(job_of(tmp_path, "", 1, **streams))
