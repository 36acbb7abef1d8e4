"""Chunks, their reuse, and trees that come as CoNLL-U."""

import gzip
import pathlib

import pytest

from jaxsyn.data.sentence import conllu
from jaxsyn.data.sentence.parser import UDPipe
from jaxsyn.errors import InputError
from preprocess import parse
from preprocess.raw import Pairs
from preprocess.split import RawSplit

LINES = [f"Sentence number {i} is here ." for i in range(2000)]


def test_chunks_cover_all_lines():
  found = parse.chunks(LINES)
  assert [i for chunk in found for i in chunk] == list(range(2000))
  assert len(found) > 8
  assert parse.chunks([]) == []
  assert parse.chunks(["same"] * 1025) == [
    range(0, 512),
    range(512, 1024),
    range(1024, 1025),
  ]


def test_a_new_line_changes_one_chunk():
  def texts(lines):
    return {tuple(lines[i] for i in chunk) for chunk in parse.chunks(lines)}

  changed = [*LINES[:700], "One more line .", *LINES[700:]]
  assert len(texts(changed) - texts(LINES)) <= 2


def test_write_text_is_the_same_always(tmp_path):
  for name in "ab":
    parse.write_text(tmp_path / name, ["one\n", "zwei ü\n"])
  data = (tmp_path / "a").read_bytes()
  assert data == (tmp_path / "b").read_bytes()
  assert gzip.decompress(data).decode() == "one\nzwei ü\n"


@pytest.fixture(scope="module")
def parser(shared_data):
  path = shared_data / "udpipe" / "english.udpipe"
  if not path.is_file():
    pytest.skip(f"no parser at {path}")
  return UDPipe(path)


def split_of(trees, lines, kept):
  files = (pathlib.Path("text"), pathlib.Path("other"))
  pairs = Pairs(lines, lines, files, sha256="")
  return RawSplit("train", pairs, kept, given={"source": trees})


LONG = "ten thousand words " * 3333
TEXT = ["Two men play.", "", "I can't. You can!", "nul\x00 line", LONG]


def test_parsed_and_joined(parser, tmp_path):
  files = parse.parse(TEXT, parser, tmp_path / "work", workers=1, what="test")
  out = tmp_path / "out.conllu.gz"
  lines = ["", "", *TEXT[:3], "", "", *TEXT[3:]]
  split = split_of(None, lines, [2, 3, 4, 7, 8])
  relations = parse.join(split, "source", out, files)
  read = conllu.read(out)
  assert relations == {label for block in read for label in block.relation_W}
  found = list(conllu.match(conllu.read(out), TEXT, "text"))
  assert [p.text for p in found] == TEXT
  assert [p.parsed for p in found] == [True, False, True, False, False]
  assert found[4].head_W == (0,)  # no 100 million distances
  assert (found[4].start_W, found[4].end_W) == ((0,), (len(LONG) - 1,))
  assert found[0].head_W == parser(TEXT[0]).head_W
  ids = [
    comment.removeprefix("# sent_id = ")
    for block in conllu.read(out)
    for comment in block.comments
    if comment.startswith("# sent_id")
  ]
  assert ids == ["train-3", "train-5", "train-8", "train-9"]


def test_processes_and_reuse(parser, tmp_path, monkeypatch):
  work = tmp_path / "work"
  lines = LINES[:400]
  files = parse.parse(lines, parser, work, workers=2, what="test")
  assert len(set(files)) == len(parse.chunks(lines)) > 2
  data = [file.read_bytes() for file in files]

  done = []
  monkeypatch.setattr(
    parse,
    "_parse_chunk",
    lambda _, file, texts: done.append(file) or len(texts),
  )
  again = parse.parse(lines, parser, work, workers=1, what="test")
  assert again == files and not done
  files[1].unlink()
  parse.parse(lines, parser, work, workers=1, what="test")
  assert done == [files[1]]
  # Another beam is another parser.
  done.clear()
  other = UDPipe(parser.path, beam=1)
  parse.parse(lines, other, work, workers=1, what="test")
  assert len(done) == len(files)

  # Two processes write what one does.
  monkeypatch.undo()
  one = parse.parse(lines, parser, tmp_path / "one", workers=1, what="test")
  assert [file.read_bytes() for file in one] == data


DAMAGE = {
  "cut": lambda data: data[:40],
  "empty": lambda data: b"",
  "flipped": lambda data: data[:90] + bytes([data[90] ^ 4]) + data[91:],
  "another one": lambda data: gzip.compress(b"# chunk = 0.conllu.gz\n"),
}


@pytest.mark.parametrize("how", DAMAGE)
def test_damaged_chunk(parser, tmp_path, how, capsys):
  def run():
    files = parse.parse(TEXT, parser, tmp_path, workers=1, what="test")
    out = tmp_path / "x.gz"
    parse.join(split_of(None, TEXT, range(5)), "source", out, files)
    return files, (tmp_path / "x.gz").read_bytes()

  files, expected = run()
  whole = files[0].read_bytes()
  files[0].write_bytes(DAMAGE[how](whole))
  assert run() == (files, expected)
  assert files[0].read_bytes() == whole
  assert f"damaged: {files[0]} is parsed again" in capsys.readouterr().out


def given(tmp_path, forms):
  rows = "".join(
    f"{i}\t{form}\t_\t_\t_\t_\t{i - 1}\t{'dep' if i > 1 else 'root'}\t_\t_\n"
    for i, form in enumerate(forms, 1)
  )
  return rows + "\n"


def test_taken_for_the_kept_lines(tmp_path):
  lines = ["a b", "c", "", "d e"]
  file = tmp_path / "all.conllu"
  file.write_text(
    given(tmp_path, "ab") + given(tmp_path, "c") + given(tmp_path, "de")
  )
  out = tmp_path / "out.gz"
  relations = parse.take(split_of(file, lines, [0, 2, 3]), "source", out)
  assert relations == {"dep", "root"}
  kept = [lines[i] for i in (0, 2, 3)]
  found = list(conllu.match(conllu.read(out), kept, "text"))
  assert [p.head_W for p in found] == [(0, 0), (), (0, 0)]


def test_other_text(tmp_path):
  file = tmp_path / "all.conllu"
  file.write_text(given(tmp_path, "ab") + given(tmp_path, "cX"))
  out = tmp_path / "out.gz"
  with pytest.raises(InputError, match=r"all.conllu:4: .*'X'.*Line 2 of text"):
    parse.take(split_of(file, ["a b", "c d"], [0, 1]), "source", out)
  assert not out.exists()
