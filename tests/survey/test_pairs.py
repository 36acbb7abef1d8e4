"""Looking through text that hurts: what is counted, what is refused and where."""

import gzip

import pytest
import zstandard

from jaxsyn.errors import InputError
from jaxsyn.survey import findings, pairs
from jaxsyn.survey.pairs import Files, corpus_stats


@pytest.fixture
def text(tmp_path):
  """A function (source, target) -> the files that hold these bytes."""

  def make(*sides, ending=""):
    names = []
    for language, content in zip(("en", "fr"), sides):
      file = tmp_path / f"train.{language}{ending}"
      file.write_bytes(content)
      names.append(str(file))
    return Files(*names)

  return make


def test_what_is_seen_of_some_pairs(text):
  long = b"w " * 176
  seen = corpus_stats(
    text(
      b"a cat\n\na cat\nsame\n" + long + b"\n",
      b"un chat\nvide\nun chat\nsame\nx\n",
    )
  )
  assert (seen.count, seen.examined, seen.different) == (5, 5, 4)
  # Between blanks: 2 + 0 + 2 + 1 + 176, and 2 + 1 + 2 + 1 + 1.
  assert (seen.source.words, seen.target.words) == (181, 7)
  # Letters: acat twice, same, 176; unchat twice, vide, same, x.
  assert (seen.source.letters, seen.target.letters) == (188, 21)
  assert {k: n for k, n in seen.dropped.items() if n} == {
    "empty": 1,
    "max_words": 1,
  }
  assert (seen.remaining, seen.copies) == (3, 1)
  assert seen.lengths[0] == len("a cat") + len("un chat")


def test_windows_and_packed_files_are_the_same_text(text, tmp_path):
  plain = corpus_stats(text(b"a\nb\n", b"c\nd\n"))
  windows = corpus_stats(
    text(b"\xef\xbb\xbfa\r\nb\r\n", b"\xef\xbb\xbfc\r\nd\r\n")
  )
  packed = [corpus_stats(text(pack(b"a\nb\n"), pack(b"c\nd\n"), ending=end))
            for end, pack in ((".gz", gzip.compress), (".zst", zstandard.compress))]  # fmt: skip
  (tmp_path / "x.tsv").write_bytes(b"a\tc\nb\td\n")
  table = corpus_stats(Files(str(tmp_path / "x.tsv")))
  for other in (windows, *packed, table):
    assert other.keys == plain.keys and other.count == 2
    assert other.source.characters == {"a": 1, "b": 1}


@pytest.mark.parametrize(
  ("source", "target", "message"),
  [
    (b"a\nb\nc\n", b"x\ny\n", r"train.en has 3 lines, but \S+train.fr has 2: .* Look at line 3"),
    (b"", b"", "there is no line"),
    (b"\n\n", b"a\nb\n", r"no pair can be trained on \(empty 2\)"),
    ("a\n".encode("utf-16"), b"a\n", r"train.en:1: byte 1 \(0xff\) .* iconv -f utf-16"),
    ("a\nb\n".encode("utf-16-le"), b"a\nb\n", "NUL in the first line; it may be UTF-16"),
    (b"a\nf\xfcr\n", b"a\nb\n", r"train.en:2: byte 2 \(0xfc\) is not UTF-8"),
  ],
  ids=["unequal", "empty files", "empty lines", "UTF-16", "no mark", "latin1"],
)  # fmt: skip
def test_text_that_is_refused(text, source, target, message):
  with pytest.raises(InputError, match=message):
    corpus_stats(text(source, target))


@pytest.mark.parametrize(
  ("files", "message"),
  [
    (Files("nowhere.en", "nowhere.fr"), "nowhere.en is missing or no file"),
    (Files("a.en"), "a.en: give a file of the source and one of the target"),
    (Files("a.tsv", "b.fr"), "a.tsv and b.fr: give a file of the source"),
    (Files("a.conllu", "b.fr"), "a.conllu is a treebank"),
  ],
)
def test_files_that_are_refused(files, message):
  with pytest.raises(InputError, match=message):
    corpus_stats(files)


def test_a_table_has_two_columns(tmp_path):
  file = tmp_path / "x.tsv"
  file.write_text("a\tb\na\tb\tc\n")
  with pytest.raises(InputError, match=r"x.tsv:2: 3 columns.* cut -f1,2"):
    corpus_stats(Files(str(file)))


def lines(words):
  return "".join(f"{word}\n" for word in words).encode()


def test_lines_are_counted_beyond_those_looked_at(text, monkeypatch):
  monkeypatch.setattr(pairs, "EXAMINED_PAIRS", 3)
  seen = corpus_stats(text(lines("abcde"), lines("ABCDE")))
  assert (seen.count, seen.examined, seen.different) == (5, 3, 3)
  with pytest.raises(InputError, match=r"has 5 lines, but \S+ has 4"):
    corpus_stats(text(lines("abcde"), lines("ABCD")))


def test_held_out_pairs_that_stand_in_training_are_told(text):
  # Of the first four: one comes again whole, one with another target.
  source = ["one", "two", "three", "four", *(f"w{i}" for i in range(20))]
  source += ["two", "three"]
  target = [word.upper() for word in source[:-1]] + ["DREI"]
  train = corpus_stats(text(lines(source), lines(target)))
  message = findings.of_text({"train": train}, 2, ["validation", "test"])
  assert message[-1] == (
    "warning: of 4 pairs of validation and test 1 stand in training too, and 2"
    " of their sources: scores will flatter"
  )
  inputs = corpus_stats(text(lines(["w3", "new"]), lines(["W3", "NEW"])))
  message = findings.of_text({"train": train, "test": inputs}, 0, [])
  assert message[-1].startswith(
    "warning: of 2 pairs of test 1 stand in training"
  )
  message = findings.of_text(
    {"train": train, "test": inputs}, 8, ["validation"]
  )
  assert not [
    line for line in message if "of test" in line and "warning" in line
  ]


def test_lines_without_blanks_are_measured_in_characters(text):
  seen = corpus_stats(
    text("犬が走る。\n猫。\n".encode(), b"A dog runs.\nA cat.\n")
  )
  message = findings.of_text({"train": seen}, 0, [])
  assert "3.5 characters and 2.5 words a line, 0 repeated" in message[0]


def test_text_in_order_of_length_is_told(text):
  short = corpus_stats(
    text(lines(["a"] * 5 + ["word " * 9] * 45), lines(["b"] * 50))
  )
  message = findings.of_text({"train": short}, 5, ["test"])
  assert "are of other lengths than the rest; shuffle them" in message[-1]
