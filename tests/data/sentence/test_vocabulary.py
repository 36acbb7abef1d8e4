"""Vocabularies: offsets in raw text, round trips, sampling and errors."""

from __future__ import annotations

import collections
import hashlib
import itertools
import subprocess
import sys

import pytest
import sentencepiece

from jaxsyn.data.schema import BOS, EOS, PAD, SPECIAL, UNK
from jaxsyn.data.sentence import text, vocabulary
from jaxsyn.data.sentence.vocabulary import Subwords, Vocabulary
from jaxsyn.errors import InputError

LINES = [
  "A man walks in the park .",
  "Two men eat bread in a park .",
  "Ein Mann geht zum Bahnhof .",
  "日本語の文です。",
  "finally full width ½ 1 2",
] * 3

HARD = (
  "A man, ﬁnely ½ dressed",
  "ｆｕｌｌ　ｗｉｄｔｈ park",
  "  two  men ",
  "👩\u200d👩\u200d👧 man 👍🏽 eats",
  "e\u0301te\u0301 nin\u0303o n\u0303",
  "日本語の文です。",
  "a\u00a0b",
  "①② ㍿ corp",
  "\ufeffman \u200bin\u200b the park",
  "ｶﾞｷﾞ park",
  "a\tb\x00c\u2028d",
  "ﷺ man",
  "<s> </s> <pad> <unk>",
  "\U0001f1e9\U0001f1ea \U000e0041",
  "",
  " \u3000",
)


@pytest.fixture(scope="module")
def model(tmp_path_factory):
  """A function type -> a small vocabulary of LINES."""
  folder = tmp_path_factory.mktemp("vocabulary")
  sizes = {"bpe": 120, "unigram": 100, "word": 99}
  models = {
    kind: vocabulary.train(LINES, folder / kind, Subwords(size, kind))
    for kind, size in sizes.items()
  }
  return models.__getitem__


@pytest.fixture(scope="module")
def real_lines(shared_data) -> list[str]:
  """Captions in four languages, and Japanese sentences."""
  names = (
    "multi30k/train.en",
    "multi30k/train.de",
    "multi30k/val.cs",
    "multi30k/val.fr",
    "enja/train.ja",
  )
  files = [text.read_lines(shared_data / f"{name}.gz")[:250] for name in names]
  return list(itertools.chain.from_iterable(files))


def surfaces(model, text) -> list[str]:
  pieces = model.encode(text)
  return [text[b:e] for b, e in zip(pieces.begin, pieces.end)]


def check_spans(model: Vocabulary, text: str) -> None:
  """Spans ascend, and together contain all characters that are not removed."""
  pieces = model.encode(text)
  assert len(pieces.id) == len(pieces.begin) == len(pieces.end)
  assert model.ids(text) == pieces.id
  place = 0
  for begin, end in zip(pieces.begin, pieces.end):
    assert place <= begin <= end <= len(text)
    # Normalization removes the text between two spans.
    assert not model.written(text[place:begin])
    place = end
  assert not model.written(text[place:])


def check_subwords(model: Vocabulary, text: str) -> None:
  """Ids and decoded text are SentencePiece's."""
  check_spans(model, text)
  reference = sentencepiece.SentencePieceProcessor(model_file=str(model.path))
  ids = model.encode(text).id
  assert ids == reference.encode(text)
  assert model.decode(ids) == reference.decode(ids)


def check_words(model: Vocabulary, text: str) -> None:
  """Ids and spans are SentencePiece's, once neighboring UNKs are joined."""
  check_spans(model, text)
  pieces, joined = model.encode(text), []
  runs = itertools.groupby(zip(*pieces), key=lambda row: row[0] == UNK)
  for is_unknown, run in runs:
    run = list(run)
    joined += [(UNK, run[0][1], run[-1][2])] if is_unknown else run
  processor = sentencepiece.SentencePieceProcessor(model_file=str(model.path))
  mapping = processor.encode(text, return_type="offset_mapping")
  assert joined == [
    (id_, *span) for id_, span in zip(mapping["ids"], mapping["offsets"])
  ]
  words = model.written(text).split("▁")[1:]
  assert model.decode(pieces.id) == " ".join(
    "⁇" if id_ == UNK else word
    for id_, word in zip(pieces.id, words, strict=True)
  )


@pytest.mark.parametrize("kind, alpha", [("bpe", 0.0), ("unigram", 1e5)])
def test_subwords_of_real_lines(real_lines, tmp_path, kind, alpha):
  """Ids, text and spans; and sampling without noise gives the same subwords."""
  options = Subwords(size=1000, type=kind, character_coverage=0.9995)
  model = vocabulary.train(real_lines, tmp_path / "v.model", options)
  for line in (*real_lines[::10], *HARD):
    check_subwords(model, line)
    assert model.sample(line, 0, alpha) == model.encode(line), line
  complete = Subwords(size=1000, type=kind)
  model = vocabulary.train(real_lines, tmp_path / "v.model", complete)
  for line in real_lines[::3]:
    ids = model.ids(line)
    assert UNK not in ids
    normal = model.written(line).replace("▁", " ")
    assert model.decode(ids) == normal.removeprefix(" ")


def test_whole_words_of_real_lines(real_lines, tmp_path):
  """The vocabulary has the most frequent words, then the first in code points."""
  options = Subwords(size=1000, type="word")
  model = vocabulary.train(real_lines, tmp_path / "v.model", options)
  for line in [*real_lines[::3], *HARD]:
    check_words(model, line)
  words = " ".join(map(model.written, real_lines)).replace("▁", " ").split()
  count = collections.Counter(words)
  order = sorted(count, key=lambda word: (-count[word], word))
  assert count[order[995]] == count[order[996]]  # a tie at the end
  assert model.pieces(range(4, 1000)) == [f"▁{word}" for word in order[:996]]


@pytest.mark.parametrize("text", HARD)
def test_difficult_text_has_the_subwords_of_sentencepiece(model, text):
  check_subwords(model("bpe"), text)
  check_words(model("word"), text)


@pytest.mark.parametrize("kind", ["bpe", "word"])
def test_decode_stops_at_eos_and_skips_numbers_that_are_no_subwords(
  model, kind
):
  vocabulary = model(kind)
  ids = vocabulary.encode("A man").id
  noisy = [BOS, PAD, *ids, -1, vocabulary.size, 10**6, EOS, *ids]
  assert vocabulary.decode(noisy) == "A man"
  assert vocabulary.decode([]) == vocabulary.decode([EOS]) == ""


def test_offsets_count_characters_of_the_raw_text(model):
  # "▁Two" starts behind an emoji of five characters, which are 18 bytes.
  line = "👩\u200d👩\u200d👧 Two"
  pieces = model("bpe").encode(line)
  assert (pieces.begin[-1], pieces.end[-1]) == (5, 9)
  # NFKC: ½ is 1⁄2, of which one piece has the character; ﬁ is fi.
  for whole in (line, "½", "ﬁnally"):
    assert "".join(surfaces(model("bpe"), whole)).strip() == whole


def test_word_vocabulary_ignores_the_coverage(tmp_path):
  # x... 4, é 3; b, c and ｃ (NFKC: c) 2 each, of which b comes first; a 1. x is
  # 98 % of all letters, so at that coverage others would count as rare.
  long = "x" * 200
  lines = [f"{long} é ｃ", f"{long} é b", f"{long} é b", f"{long} c a"]
  options = Subwords(size=7, type="word", character_coverage=0.98)
  model = vocabulary.train(lines, tmp_path / "v.model", options)
  assert model.pieces(range(4, 7)) == [f"▁{long}", "▁é", "▁b"]
  assert model.encode("b é c a").id == [6, 5, UNK, UNK]


@pytest.mark.parametrize("type", ["bpe", "unigram", "word", "char"])
def test_training_is_deterministic_and_size_is_reduced(tmp_path, type):
  options = Subwords(size=9000, type=type)
  # Lines above 4,192 bytes, SentencePiece's default limit, count too.
  lines = [*LINES, "xyz " * 5000]
  one, two = (
    vocabulary.train(lines, tmp_path / name, options) for name in ("a", "b")
  )
  assert UNK not in one.encode("xyz").id
  assert 4 < one.size < 500
  assert one.pieces([-1, *range(4), one.size]) == ["", *SPECIAL, ""]
  digest = hashlib.sha256(one.path.read_bytes()).hexdigest()
  assert one.sha256 == two.sha256 == digest
  assert sorted(p.name for p in tmp_path.iterdir()) == ["a", "b"]
  assert one.whole_words == (type == "word")
  assert one.can_sample == (type in ("bpe", "unigram"))
  # Special symbols are ordinary text, and blanks and widths are normalized.
  assert not {PAD, BOS, EOS} & set(one.encode("<s> a </s> <pad>").id)
  assert one.encode("ｆｕｌｌ　ｗｉｄｔｈ").id == one.encode("full width").id


def test_rejects_text_and_files_without_a_vocabulary(model, tmp_path):
  # Characters: "▁", a, b, c and the four special symbols.
  with pytest.raises(InputError, match=r"of 5 pieces .* at least 8"):
    vocabulary.train(["a b c"], tmp_path / "v.model", Subwords(size=5))
  with pytest.raises(InputError, match="no text to train"):
    vocabulary.train(["", "  "], tmp_path / "v", Subwords(size=9))
  with pytest.raises(InputError, match=r"none.model: cannot read the voc"):
    Vocabulary(tmp_path / "none.model")
  assert not list(tmp_path.iterdir())
  path = tmp_path / "bad.model"
  for content in (b"", b"no model", model("bpe").path.read_bytes()[:-100]):
    path.write_bytes(content)
    with pytest.raises(InputError, match=r"bad.model: not a \(complete\) Sen"):
      Vocabulary(path)
  sentencepiece.SentencePieceTrainer.train(
    sentence_iterator=iter(LINES),
    model_prefix=str(tmp_path / "other"),
    vocab_size=50,
    minloglevel=2,
  )
  with pytest.raises(InputError, match=r"are \(-1, 0, 1, 2\), but must be"):
    Vocabulary(tmp_path / "other.model")


def test_sample_depends_only_on_the_seed(model):
  """Samples of another process are equal; SentencePiece's own would not be."""
  lines = [*LINES[:5], *(line for line in HARD if "\0" not in line)]
  bpe = model("bpe")
  first = [bpe.sample(line, 7, 0.3) for line in lines]
  assert [bpe.sample(line, 7, 0.3) for line in lines[::-1]] == first[::-1]
  assert len({tuple(bpe.sample(LINES[1], i, 0.3).id) for i in range(40)}) > 5
  code = (
    "import sys; from jaxsyn.data.sentence.vocabulary import Vocabulary\n"
    "one = Vocabulary(sys.argv[1])\n"
    "print([one.sample(line, 7, 0.3).id for line in sys.argv[2:]])"
  )
  command = [sys.executable, "-c", code, str(bpe.path), *lines]
  done = subprocess.run(command, check=True, capture_output=True, text=True)
  assert done.stdout.strip() == str([pieces.id for pieces in first])


@pytest.mark.parametrize("kind", ["bpe", "unigram"])
def test_sampled_subwords_spell_the_same_text(model, kind):
  vocabulary = model(kind)
  for line in (*LINES[:5], *HARD):
    plain = vocabulary.encode(line)
    for seed in range(10):
      pieces = vocabulary.sample(line, seed, 0.3)
      assert vocabulary.decode(pieces.id) == vocabulary.decode(plain.id)
      assert len(pieces.id) == len(pieces.begin) == len(pieces.end)
      if plain.id:
        assert pieces.begin[0] == plain.begin[0]
        assert pieces.end[-1] == plain.end[-1]
        assert pieces.begin[1:] == pieces.end[:-1]
        assert pieces.begin == sorted(pieces.begin)
