"""Tests statistics of corpora, languages of file names, and sizes that suit them."""

import collections
import gzip

import pytest

from jaxsyn import new
from jaxsyn.errors import InputError
from jaxsyn.preprocess import corpus
from jaxsyn.preprocess.corpus import CorpusStats, Files, Side, corpus_stats


@pytest.fixture
def text(tmp_path):
  """Returns a function that writes the bytes of both sides to files."""

  def make(*sides, ending=""):
    names = []
    for language, content in zip(("en", "fr"), sides):
      file = tmp_path / f"train.{language}{ending}"
      file.write_bytes(content)
      names.append(str(file))
    return Files(*names)

  return make


def lines(words):
  return "".join(f"{word}\n" for word in words).encode()


def test_statistics_of_some_pairs(text, monkeypatch):
  files = text(b"a cat\n\na cat\nsame\n", b"un chat\nvide\nun chat\nsame\n")
  seen = corpus_stats(files)
  assert (seen.count, seen.examined, len(seen.pairs)) == (4, 4, 3)
  # Between blanks: 2 + 0 + 2 + 1, and 2 + 1 + 2 + 1.
  assert (seen.source.words, seen.target.words) == (5, 6)
  # Letters: acat twice, same; unchat twice, vide, same.
  assert (seen.source.letters, seen.target.letters) == (12, 20)
  assert seen.source.characters["a"] == 5
  monkeypatch.setattr(corpus, "EXAMINED_PAIRS", 2)
  seen = corpus_stats(files)
  assert (seen.count, seen.examined, len(seen.pairs)) == (4, 2, 2)
  files = text("犬が走る。\n猫。\n".encode(), b"A dog runs.\nA cat.\n")
  message = corpus.findings({"train": corpus_stats(files)}, 0, [])[0]
  assert "mean length 3.5 characters and 2.5 words; 0 duplicates" in message


def test_line_ends_and_tables_do_not_matter(text, tmp_path):
  plain = corpus_stats(text(b"a\nb\n", b"c\nd\n"))
  (tmp_path / "x.tsv").write_bytes(b"a\tc\nb\td\n")
  pack = gzip.compress
  for files in (
    text(b"\xef\xbb\xbfa\r\nb\r\n", b"\xef\xbb\xbfc\r\nd\r\n"),
    text(pack(b"a\nb\n"), pack(b"c\nd\n"), ending=".gz"),
    Files(str(tmp_path / "x.tsv")),
  ):
    other = corpus_stats(files)
    assert (other.sources, other.pairs) == (plain.sources, plain.pairs)
    assert other.source.characters == {"a": 1, "b": 1}


@pytest.mark.parametrize(
  ("source", "target", "message"),
  [
    (b"a\nb\nc\n", b"x\ny\n", r"train.en has 3 lines, but \S+train.fr has 2: .* line 3"),
    (b"", b"", "there is no line"),
    ("a\n".encode("utf-16"), b"a\n", r"train.en:1: byte 1 \(0xff\) .* iconv -f utf-16"),
    ("a\nb\n".encode("utf-16-le"), b"a\nb\n", r"NUL in line 1; .* iconv -f utf-16"),
    (b"a\nf\xfcr\n", b"a\nb\n", r"train.en:2: byte 2 \(0xfc\) is not UTF-8"),
  ],
  ids=["unequal", "empty files", "UTF-16", "no byte order mark", "latin1"],
)  # fmt: skip
def test_invalid_text(text, source, target, message):
  with pytest.raises(InputError, match=message):
    corpus_stats(text(source, target))


@pytest.mark.parametrize(
  ("names", "message"),
  [
    (["nowhere.en", "nowhere.fr"], "nowhere.en is missing or no file"),
    (["s3://b/a.en", "s3://b/a.fr"], "a.en is missing or no file on this"),
    (["a.en"], "a.en: give a file of the source and one of the target"),
    (["a.tsv", "b.fr"], "a.tsv and b.fr: give a file of the source"),
    (["x.conllu", "x.tsv"], "x.conllu is a treebank, not text"),
    (["x.tsv"], r"x.tsv:2: 3 columns.* cut -f1,2"),
    (["a,b.tsv"], "'a,b.tsv': rename the file. In a config, commas"),
  ],
)
def test_invalid_files(tmp_path, monkeypatch, names, message):
  monkeypatch.chdir(tmp_path)
  for name in ("x.tsv", "a,b.tsv", "x.conllu"):
    (tmp_path / name).write_text("a\tb\na\tb\tc\n")
  with pytest.raises(InputError, match=message):
    corpus_stats(Files(*names))


def test_warns_of_held_out_pairs_of_other_lengths(text):
  for first, is_odd in ((5, True), (9, False)):
    source = ["word " * first] * 5 + ["word " * 9] * 45
    stats = corpus_stats(text(lines(source), lines(["b"] * 50)))
    messages = corpus.findings({"train": stats}, 5, ["test"])
    assert any("shorter or longer" in message for message in messages) == is_odd


def test_warns_of_test_sources_in_training(text):
  # Two of the first four occur again, one with another target.
  source = ["one", "two", "three", "four", *(f"w{i}" for i in range(20))]
  source += ["two", "three"]
  target = [word.upper() for word in source[:-1]] + ["DREI"]
  train = corpus_stats(text(lines(source), lines(target)))
  message = corpus.findings({"train": train}, 2, ["validation", "test"])[-1]
  assert (
    "2 of the 4 sources of validation and test also occur in train" in message
  )
  test = corpus_stats(text(lines(["w3", "new"]), lines(["W3", "NEW"])))
  splits = {"train": train, "test": test}
  message = corpus.findings(splits, 0, [])[-1]
  assert message.startswith("warning: 1 of the 2 sources of test also occur")
  # w3 is held out, so that it is not in training.
  messages = corpus.findings(splits, 8, ["validation"])
  assert not [m for m in messages if "of test" in m and "warning" in m]


@pytest.mark.parametrize(
  ("file", "column", "code"),
  [
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
    ("en", 0, ""),
  ],
)
def test_the_language_of_a_file_name(file, column, code):
  assert corpus.language_of_name(file, column) == code


def stats_of(words=11.9, examined=1000, characters="abcdefghijklmnopq"):
  """Returns statistics of text with a number of words per line."""
  count = round(words * examined)
  side = Side(words=count, letters=5 * count)
  side.characters = collections.Counter(characters)
  side.sample = ["some words with blanks"]
  return CorpusStats(
    Files("a", "b"),
    examined,
    examined,
    side,
    side,
    pairs=set(range(examined)),
    lengths=[120] * examined,
  )


@pytest.mark.parametrize(
  ("pairs", "held_out", "vocabulary", "updates"),
  [
    (50, 5, 1000, 2000),
    (5000, 500, 2000, 2000),
    (19_900, 1000, 7900, 4800),
    (29_000, 1000, 8000, 7000),
    (150_000, 1000, 8000, 20_000),
    (236_000, 1000, 16_000, None),
    (4_500_000, 2000, 32_000, None),
  ],
)
def test_sizes_for_corpora(pairs, held_out, vocabulary, updates):
  """The training of large corpora has a published length."""
  assert corpus.count_held_out(stats_of(examined=pairs)) == held_out
  assert new.vocabulary_size(pairs, stats_of())[:2] == (vocabulary, 1.0)
  assert (new.size_of(pairs).updates == 0) == (updates is not None)
  if updates is not None:
    assert new.training_steps(pairs, stats_of(), vocabulary)[0] == updates


def test_a_vocabulary_includes_the_characters_of_the_text():
  # 600 equally frequent characters: all but 0.05 % are all 600; with the four
  # special symbols, twice 604, rounded up.
  kanji = "".join(chr(0x4E00 + i) for i in range(600))
  size, coverage, reason = new.vocabulary_size(1000, stats_of(characters=kanji))
  assert (size, coverage) == (1300, 0.9995)
  assert "twice the 604 characters" in reason
  # A hundred that are 1 in 2,001 together are omitted: 200 + 4, twice.
  rare = dict.fromkeys(kanji[:200], 1000) | dict.fromkeys(kanji[200:300], 1)
  size, coverage, _ = new.vocabulary_size(1000, stats_of(characters=rare))
  assert (size, coverage) == (1000, 0.9995)


def test_training_steps_of_text_without_blanks():
  sample = stats_of()
  sample.source.sample = ["犬が草の上を走っている。"]  # 24 letters / 1.5 = 16
  sample.source.letters = 24 * sample.examined
  # 1,000 pairs are 8 batches of 2,048 / 16 = 128, and 27 * 29 * 8 = 6,264.
  assert new.training_steps(29_000, sample, 8000)[0] == 6300


@pytest.mark.parametrize(
  ("name", "pairs", "batches"),
  [
    # Numbers of batches of the prepared corpora, with 8,000 and 2,300 subwords.
    ("multi30k/train.{}.gz en de", 29_000, 259),
    ("mafand/hau.train.{}.gz en hau", 5_865, 188),  # sentences of all lengths
  ],
)
def test_training_steps_are_27_epochs_of_real_text(
  shared_data, name, pairs, batches
):
  pattern, *sides = name.split()
  paths = [str(shared_data / pattern.format(side)) for side in sides]
  stats = corpus.corpus_stats(Files(*paths))
  vocabulary, _, _ = new.vocabulary_size(pairs, stats)
  updates, reason = new.training_steps(stats.count, stats, vocabulary)
  assert updates / batches == pytest.approx(27, rel=0.05)
  assert "about 27 epochs" in reason
