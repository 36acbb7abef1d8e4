"""Statistics of corpora, their languages, and sizes that fit them."""

import collections
import gzip

import pytest
import zstandard

from jaxsyn import corpus, new
from jaxsyn.corpus import (
  CorpusStats,
  Files,
  Side,
  contradicts,
  corpus_stats,
  guess_language,
  language_of_name,
)
from jaxsyn.errors import InputError


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
  assert seen.copies == 1
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
  monkeypatch.setattr(corpus, "EXAMINED_PAIRS", 3)
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
  message = new._findings({"train": train}, 2, ["validation", "test"])
  assert message[-1] == (
    "warning: of 4 pairs of validation and test 1 stand in training too, and 2"
    " of their sources: scores will flatter"
  )
  inputs = corpus_stats(text(lines(["w3", "new"]), lines(["W3", "NEW"])))
  message = new._findings({"train": train, "test": inputs}, 0, [])
  assert message[-1].startswith(
    "warning: of 2 pairs of test 1 stand in training"
  )
  message = new._findings({"train": train, "test": inputs}, 8, ["validation"])
  assert not [
    line for line in message if "of test" in line and "warning" in line
  ]


def test_lines_without_blanks_are_measured_in_characters(text):
  seen = corpus_stats(
    text("犬が走る。\n猫。\n".encode(), b"A dog runs.\nA cat.\n")
  )
  message = new._findings({"train": seen}, 0, [])
  assert "3.5 characters and 2.5 words a line, 0 repeated" in message[0]


def test_text_in_order_of_length_is_told(text):
  short = corpus_stats(
    text(lines(["a"] * 5 + ["word " * 9] * 45), lines(["b"] * 50))
  )
  message = new._findings({"train": short}, 5, ["test"])
  assert "are of other lengths than the rest; shuffle them" in message[-1]


@pytest.mark.parametrize(
  ("file", "column", "code"),
  [
    ("text/train.en", 0, "en"),
    ("a.b/train.tok.fr.gz", 0, "fr"),
    ("train.de.zst", 0, "de"),
    ("train.EN", 0, "en"),
    ("train.jp", 0, "ja"),
    ("train.zh_Hans", 0, "zh_Hans"),
    ("train.pt-BR", 0, "pt-BR"),
    ("tatoeba.en-cs.tsv", 0, "en"),
    ("tatoeba.en-cs.tsv.gz", 1, "cs"),
    ("pairs.tsv", 0, ""),
    ("train.txt", 0, ""),
    ("train.src", 0, ""),
    ("en", 0, ""),
  ],
)
def test_the_name_of_a_file_ends_with_its_language(file, column, code):
  assert language_of_name(file, column) == code


ENGLISH = ["A dog runs through the grass.", "Two men are talking."] * 10
GERMAN = ["Ein Hund rennt durch das Gras.", "Zwei Männer reden."] * 10
JAPANESE = ["犬が草の上を走っている。"] * 20


def test_guesses_the_language_of_a_text():
  assert guess_language(ENGLISH) == ("en", 1.0)
  assert guess_language(GERMAN) == ("de", 1.0)
  assert guess_language(JAPANESE) == ("ja", 1.0)
  assert guess_language(["12", "", "--"]) == ("", 0.0)


def test_a_dialect_is_no_contradiction():
  assert contradicts("en", "de", 0.9)
  assert not contradicts("en", "de", 0.5)
  assert not contradicts("en", "", 0.0)
  assert not contradicts("zh_Hans", "zh", 1.0)
  assert not contradicts("no", "nb", 1.0)


@pytest.mark.parametrize(
  ("code", "name"),
  [("en", "en"), ("zh-CN", "zh"), ("EN", "en"), ("th", ""), ("qaa", "")],
)
def test_finds_the_model_of_a_language(code, name):
  assert new.parser_name(code) == name


def seen(words=11.9, looked=1000, characters=""):
  """Returns statistics of text with so many words per line."""
  side = Side(words=round(words * looked), letters=5 * round(words * looked))
  side.characters = collections.Counter(characters or "abcdefghijklmnopq")
  side.sample = ["some words with blanks"]
  return CorpusStats(Files("a", "b"), looked, looked, side, side)


@pytest.mark.parametrize(
  ("pairs", "held"),
  [(20, 2), (400, 40), (2000, 200), (29_000, 1000), (4_000_000, 2000)],
)
def test_held_out(pairs, held):
  stats = seen(looked=pairs)
  stats.last[1].update(dict.fromkeys(range(20), 0))
  assert corpus.count_held_out(stats, 2)[0] == held


@pytest.mark.parametrize(
  ("pairs", "size"),
  [
    (100, 1000),
    (5000, 2000),
    (19_900, 7900),
    (29_000, 8000),
    (236_000, 16_000),
    (4_500_000, 32_000),
  ],
)
def test_vocabulary(pairs, size):
  chosen, _, coverage = corpus.vocabulary_size(pairs, seen())
  assert (chosen, coverage) == (size, 1.0)


def test_a_vocabulary_holds_the_characters_of_the_text():
  # 600 characters, each as frequent: all but 0.05 % are all 600; with the four
  # special symbols, twice 604 and rounded up.
  kanji = "".join(chr(0x4E00 + i) for i in range(600))
  size, reason, coverage = corpus.vocabulary_size(1000, seen(characters=kanji))
  assert (size, coverage) == (1300, 0.9995)
  assert "twice the 604 characters" in reason
  # A hundred that are 1 in 2,001 together are left out: 200 + 4, twice.
  rare = collections.Counter(dict.fromkeys(kanji[:200], 1000))
  rare.update(dict.fromkeys(kanji[200:300], 1))
  sample = seen()
  sample.source.characters = sample.target.characters = rare
  size, _, coverage = corpus.vocabulary_size(1000, sample)
  assert (size, coverage) == (1000, 0.9995)


@pytest.mark.parametrize(
  ("pairs", "updates"),
  [(29_000, 7000), (50, 2000), (8000, 2000), (150_000, 20_000)],
)
def test_updates(pairs, updates):
  """Multi30k's is what its own config says."""
  assert corpus.sizes_of(pairs).updates == 0
  assert corpus.training_steps(pairs, seen(), 8000)[0] == updates


@pytest.mark.parametrize(
  ("pairs", "updates", "dropout"),
  [(200_000, 20_000, 0.3), (1_000_000, 100_000, 0.1)],
)
def test_large_corpora_have_what_was_published(pairs, updates, dropout):
  sizes = corpus.sizes_of(pairs)
  assert (sizes.updates, sizes.dropout) == (updates, dropout)


def test_subwords_where_no_blanks_part_words():
  sample = seen()
  assert corpus.subwords_per_pair(sample, 8000) == pytest.approx(11.9 * 1.54)
  assert corpus.subwords_per_pair(sample, 32_000) == pytest.approx(11.9 * 1.54)
  # Captions of 1,000 subwords were 2.6 and 2.8 a word; between, by the logarithm.
  assert corpus.subwords_per_pair(sample, 1000) == pytest.approx(11.9 * 2.7)
  assert corpus.subwords_per_pair(sample, 500) == pytest.approx(11.9 * 2.7)
  assert corpus.subwords_per_pair(sample, 2000) == pytest.approx(
    11.9 * (1.54 + 2 / 3 * 1.16)
  )
  sample.source.sample = ["犬が草の上を走っている。"]
  sample.source.letters = 24 * sample.examined
  assert (
    corpus.subwords_per_pair(sample, 1000) == 16
  )  # both sides are one here; 24 / 1.5
