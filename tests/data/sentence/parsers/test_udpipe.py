"""UDPipe with the real models: every line gives one parse, never an error."""

from __future__ import annotations

import gzip
import hashlib
import itertools

import pytest

from jaxsyn.data.sentence import conllu
from jaxsyn.data.sentence.align import visible
from jaxsyn.data.sentence.parsers.udpipe import UDPipe
from jaxsyn.errors import InputError


@pytest.fixture(scope="module")
def english(shared_data) -> UDPipe:
  return UDPipe(shared_data / "udpipe" / "english.udpipe")


@pytest.fixture(scope="module")
def japanese(shared_data) -> UDPipe:
  return UDPipe(shared_data / "udpipe" / "japanese.udpipe")


def words(parse: conllu.Parse) -> list[str]:
  return [parse.text[s:e] for s, e in zip(parse.start_W, parse.end_W)]


def test_an_english_line(english):
  parse = english(" I can't\u00a0go  home.")
  assert words(parse) == ["I", "can't", "go", "home", "."]
  assert parse.head_W == (2, 2, 2, 2, 2)
  assert parse.relation_W[2] == "root"
  assert parse.parsed


def test_a_german_line(shared_data):
  parse = UDPipe(shared_data / "udpipe" / "german.udpipe")(
    "Er geht zum Bahnhof."
  )
  assert words(parse) == ["Er", "geht", "zum", "Bahnhof", "."]
  zum, bahnhof = 2, 3
  assert parse.head_W[zum] == bahnhof


def test_japanese_lines(japanese):
  parse = japanese("私は学生です。")
  assert words(parse) == ["私", "は", "学生", "です", "。"]
  assert parse.head_W == (2, 0, 2, 2, 2)
  # An ideographic space, half-width katakana and an emoji stay in the text.
  text = "　私は　ｶﾞｷﾞ👩\u200d👧です。"
  parse = japanese(text)
  assert parse.text == text
  assert visible("".join(words(parse))) == visible(text)


def test_a_line_of_two_sentences_stays_one_line(english):
  line = "He sleeps. She reads a book."
  parse = english(line)
  assert "".join(words(parse)) == line.replace(" ", "")
  # UDPipe cuts at a carriage return even where lines are sentences.
  parse = english("He sleeps.\rShe reads.")
  assert words(parse) == ["He", "sleeps", ".", "She", "reads", "."]
  assert parse.head_W[3:] == (4, 4, 4)
  assert english.conllu("He sleeps.\rShe reads.", "1").count("sent_id = 1") == 2


@pytest.mark.parametrize(
  "line",
  [
    "",
    "   ",
    "\u200b",
    "a man\x00 and a dog",
    "a man\u2028in\x85the park\x0b.",
    "👩\u200d👩\u200d👧 likes 👍🏽.",
    "e\u0301te\u0301 \u200b nin\u0303o\ufeff",
    "# text = not a comment",
    "1\t2\t3",
    "x" * 5000,
    "\ufffe\U0010ffff \ue000",
    "-- _ ' \" \\ &amp; \\n",
  ],
)
def test_any_line_gives_one_parse(english, line):
  parse = english(line)
  assert parse.text == line
  text = english.conllu(line, "9")
  (again,) = conllu.match(conllu.blocks_of_text(text, "x"), [line], "raw")
  assert again == parse
  # UDPipe's tokeniser ends at a NUL; blank lines have nothing to parse.
  assert parse.parsed == ("\x00" not in line and bool(visible(line)))


def test_a_line_whose_characters_get_lost_is_flagged(english, monkeypatch):
  lost = "1\ta\t_\t_\t_\t_\t0\troot\t_\t_\n\n"
  monkeypatch.setattr(english, "_text", lambda line: lost)
  parse = english("a man")
  assert not parse.parsed
  assert words(parse) == ["a", "man"]
  text = english.conllu("a man", "3")
  assert text.startswith("# sent_id = 3\n# text = a man\n# parsed = no\n1\ta\t")


def test_the_stored_parses_come_back(english, shared_data):
  """Multi30k: the same parses as the ones stored beside the captions."""
  folder = shared_data / "multi30k"
  with gzip.open(folder / "val.en.gz", "rt", newline="\n") as file:
    lines = [line.rstrip("\n") for line in itertools.islice(file, 100)]
  stored = conllu.read(folder / "parsed" / "val.en.conllu.gz")
  stored = conllu.match(itertools.islice(stored, 100), lines, "val.en")
  text = "".join(english.conllu(line, str(i)) for i, line in enumerate(lines))
  ours = conllu.match(conllu.blocks_of_text(text, "x"), lines, "val.en")
  assert list(ours) == list(stored) == [english(line) for line in lines]


def test_beam(shared_data, english):
  fast = UDPipe(shared_data / "udpipe" / "english.udpipe", beam=1)
  line = "Two young men are playing football in the park."
  assert fast._options == "beam_search=1"
  assert words(fast(line)) == words(english(line))


def test_hash(english):
  content = english.path.read_bytes()
  assert english.sha256 == hashlib.sha256(content).hexdigest()


def test_files_that_are_no_model(tmp_path, english):
  with pytest.raises(InputError, match=r"none.udpipe: no such parser model"):
    UDPipe(tmp_path / "none.udpipe")
  bad = tmp_path / "bad.udpipe"
  for content in (b"", b"<html>", english.path.read_bytes()[:500_000]):
    bad.write_bytes(content)
    with pytest.raises(InputError, match=r"bad.udpipe: not a \(whole\) UDPipe"):
      UDPipe(bad)
