"""Tests offsets in raw text, round trips, sampling and errors of vocabularies."""

from __future__ import annotations

import collections
import hashlib
import itertools
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest
import sacrebleu
import sentencepiece

from jaxsyn.data.schema import BOS, EOS, PAD, SPECIAL, UNK
from jaxsyn.data.sentence import text, vocabulary
from jaxsyn.data.sentence.vocabulary import Subwords
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
)


@pytest.fixture(scope="module")
def small(tmp_path_factory) -> vocabulary.Vocabulary:
  path = tmp_path_factory.mktemp("vocabulary") / "vocabulary.model"
  return vocabulary.train(LINES, path, Subwords(size=120))


@pytest.fixture(scope="module")
def real_lines(shared_data) -> list[str]:
  """Captions in four languages, and Japanese sentences."""
  names = (
    *("multi30k/train.en", "multi30k/train.de", "multi30k/val.cs"),
    *("multi30k/val.fr", "enja/train.ja"),
  )
  files = [text.read_lines(shared_data / f"{name}.gz")[:1000] for name in names]
  return list(itertools.chain.from_iterable(files))


def check_spans(model: vocabulary.Vocabulary, text: str) -> None:
  """Spans ascend and touch, and together hold every character that counts."""
  pieces = model.encode(text)
  assert len(pieces.id) == len(pieces.begin) == len(pieces.end)
  assert model.ids(text) == pieces.id
  place = 0
  for begin, end in zip(pieces.begin, pieces.end):
    assert place <= begin <= end <= len(text)
    # What stands between two spans is what normalisation takes away.
    assert not model._processor.normalize(text[place:begin])
    place = end
  assert not model._processor.normalize(text[place:])


@pytest.fixture(scope="module")
def words(tmp_path_factory) -> vocabulary.Vocabulary:
  """Whole words of LINES; "zebra" and what else is not in them is unknown."""
  path = tmp_path_factory.mktemp("vocabulary") / "words.model"
  return vocabulary.train(LINES, path, Subwords(size=99, type="word"))


def test_each_word_is_one_piece_even_between_unknown_words(words):
  text = "  A zebra, (or two) walks."
  assert words.whole_words
  assert [s.strip() for s in surfaces(words, text)] == text.split()
  a, *unknown = words.encode(text).id
  # "two" is "two)" here, and "walks" "walks.": what stands between blanks.
  assert a == words.encode("A").id[0] != UNK and unknown == [UNK] * 4
  # U+200B is a blank to SentencePiece, and U+FDFA is four words: the last has
  # the character, the others nothing.
  assert surfaces(words, "man\u200bman") == ["man", "\u200bman"]
  assert surfaces(words, "ﷺ man") == ["", "", "", "ﷺ", " man"]
  assert words.encode("ﷺ man").id[:4] == [UNK] * 4


def check_words(model: vocabulary.Vocabulary, text: str) -> None:
  """Ids and spans are SentencePiece's, once neighbouring UNKs are joined."""
  check_spans(model, text)
  expected = model.encode(text)
  joined = []
  for unknown, run in itertools.groupby(
    zip(*expected), key=lambda row: row[0] == UNK
  ):
    run = list(run)
    joined += [(UNK, run[0][1], run[-1][2])] if unknown else run
  mapping = model._processor.encode(text, return_type="offset_mapping")
  assert joined == [
    (id_, *span) for id_, span in zip(mapping["ids"], mapping["offsets"])
  ]
  normal = model._processor.normalize(text).split("▁")[1:]
  assert (
    model.decode(expected.id).split(" ")
    == [
      "⁇" if id_ == UNK else word
      for id_, word in zip(expected.id, normal, strict=True)
    ]
    or not normal
  )


def test_whole_words_of_real_lines(real_lines, tmp_path):
  """4,000 words of five languages; and those kept are the most frequent."""
  model = vocabulary.train(
    real_lines, tmp_path / "v.model", Subwords(size=4000, type="word")
  )
  assert model.size == 4000
  for line in [*real_lines[::3], *HARD]:
    check_words(model, line)
  processor = model._processor
  count = collections.Counter(
    word for line in real_lines for word in processor.normalize(line).split("▁")
  )
  del count[""]
  # By frequency, then by code point: so are words of one frequency cut off.
  order = sorted(count, key=lambda word: (-count[word], word))
  assert count[order[3995]] == count[order[3996]]  # a tie at the end
  saved = [processor.id_to_piece(i)[1:] for i in range(4, model.size)]
  assert saved == order[:3996]


def test_decodes_unknown_words(words):
  a, man = words.encode("A man").id
  # Set off by blanks, also at the ends and side by side.
  assert words.decode([UNK, a, UNK, UNK, man, UNK]) == "⁇ A ⁇ ⁇ man ⁇"
  assert words.decode([BOS, a, PAD, man, words.size, EOS, UNK]) == "A man"
  assert words.decode([]) == words.decode([EOS]) == ""
  # One token to BLEU, which no reference holds: neither skipped nor split.
  tokenise = sacrebleu.BLEU().tokenizer
  assert tokenise("A ⁇ ⁇ man ⁇") == "A ⁇ ⁇ man ⁇"
  assert sacrebleu.BLEU(tokenize="intl").tokenizer("A ⁇ ⁇ .") == "A ⁇ ⁇ ."
  assert UNK in words.encode("⁇").id


def surfaces(model, text) -> list[str]:
  pieces = model.encode(text)
  return [text[b:e] for b, e in zip(pieces.begin, pieces.end)]


def test_offsets_count_characters_of_the_raw_text(small):
  # "▁Two" starts behind an emoji of five characters, which are 18 bytes.
  line = "👩\u200d👩\u200d👧 Two"
  pieces = small.encode(line)
  assert (pieces.begin[-1], pieces.end[-1]) == (5, 9)
  # NFKC: ½ is 1⁄2, of which one piece holds the character; ﬁ is fi.
  for whole in (line, "½", "ﬁnally"):
    assert "".join(surfaces(small, whole)).strip() == whole


@pytest.mark.parametrize("type", ["bpe", "unigram", "char"])
def test_spans_and_round_trips_of_real_lines(real_lines, tmp_path, type):
  """Ids and text are SentencePiece's own; spans hold every character."""
  model = vocabulary.train(
    real_lines, tmp_path / "v.model", Subwords(size=3000, type=type)
  )
  reference = sentencepiece.SentencePieceProcessor(model_file=str(model.path))
  for line in real_lines[::3]:
    pieces = model.encode(line)
    assert pieces.id == reference.encode(line)
    assert UNK not in pieces.id
    normal = reference.normalize(line).replace("▁", " ")
    assert model.decode(pieces.id) == normal.removeprefix(" ")
    check_spans(model, line)


@pytest.mark.parametrize("text", HARD)
def test_difficult_text_has_the_subwords_of_sentencepiece(small, text):
  reference = sentencepiece.SentencePieceProcessor(model_file=str(small.path))
  ids = small.encode(text).id
  assert ids == reference.encode(text)
  assert small.decode(ids) == reference.decode(ids)
  check_spans(small, text)


def test_decode_stops_at_eos_and_skips_padding(small):
  ids = small.encode("A man walks").id
  noisy = [BOS, PAD, *ids, -1, small.size, 10**6, EOS, *ids]
  assert small.decode(noisy) == "A man walks"
  assert small.decode([]) == small.decode([EOS]) == ""
  assert small.encode("").id == []
  assert small.encode(" \u3000").id == []


def test_word_vocabulary_ignores_the_coverage(tmp_path):
  # x... 4, é 3; b, c and ｃ (NFKC: c) 2 each, of which b comes first; a 1. Of the
  # letters 98 % are x, so at that coverage others would count as rare.
  long = "x" * 200
  lines = [f"{long} é ｃ", f"{long} é b", f"{long} é b", f"{long} c a"]
  options = Subwords(size=7, type="word", character_coverage=0.98)
  model = vocabulary.train(lines, tmp_path / "v.model", options)
  assert model.pieces(range(4, 7)) == [f"▁{long}", "▁é", "▁b"]
  assert model.encode("b é c a").id == [6, 5, UNK, UNK]


@pytest.mark.parametrize("type", ["bpe", "unigram", "word", "char"])
def test_training_is_deterministic_and_size_is_reduced(tmp_path, type):
  options = Subwords(size=9000, type=type)
  one, two = (
    vocabulary.train(LINES, tmp_path / name, options) for name in ("a", "b")
  )
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


def test_trains_on_long_lines(tmp_path):
  # SentencePiece leaves out lines above 4,192 bytes unless told otherwise.
  model = vocabulary.train(["ab " * 5000], tmp_path / "v", Subwords(size=9))
  assert UNK not in model.encode("ab ab").id


def test_rejects_text_and_files_without_a_vocabulary(small, tmp_path):
  # Characters: "▁", a, b, c and the four special symbols.
  with pytest.raises(InputError, match=r"of 5 pieces .* at least 8"):
    vocabulary.train(["a b c"], tmp_path / "v.model", Subwords(size=5))
  with pytest.raises(InputError, match="no text to train"):
    vocabulary.train(["", "  "], tmp_path / "v", Subwords(size=9))
  with pytest.raises(InputError, match=r"none.model: cannot read the voc"):
    vocabulary.Vocabulary(tmp_path / "none.model")
  assert not list(tmp_path.iterdir())
  path = tmp_path / "bad.model"
  for content in (b"", b"no model at all", small.path.read_bytes()[:-100]):
    path.write_bytes(content)
    with pytest.raises(InputError, match=r"bad.model: not a \(complete\) Sen"):
      vocabulary.Vocabulary(path)
  sentencepiece.SentencePieceTrainer.train(
    sentence_iterator=iter(LINES),
    model_prefix=str(tmp_path / "other"),
    vocab_size=50,
    minloglevel=2,
  )
  with pytest.raises(InputError, match=r"are \(-1, 0, 1, 2\), but must be"):
    vocabulary.Vocabulary(tmp_path / "other.model")


@pytest.fixture(scope="module", params=["bpe", "unigram"])
def sampled(request, tmp_path_factory) -> vocabulary.Vocabulary:
  path = tmp_path_factory.mktemp(request.param) / "vocabulary.model"
  options = Subwords(size=100, type=request.param)
  return vocabulary.train(LINES, path, options)


def test_sample_depends_only_on_the_seed(sampled):
  """Not on the samples before, the thread or the process.

  The numbers of SentencePiece's own generator differ between processes.
  """
  lines = [*LINES[:5], *(line for line in HARD if "\0" not in line)]
  first = [sampled.sample(line, 7, 0.3) for line in lines]
  with ThreadPoolExecutor(3) as pool:
    result = pool.map(lambda line: sampled.sample(line, 7, 0.3), lines[::-1])
    assert [*result] == first[::-1]
  seeds = {tuple(sampled.sample(LINES[1], i, 0.3).id) for i in range(40)}
  assert len(seeds) > 5
  code = (
    "import sys; from jaxsyn.data.sentence.vocabulary import Vocabulary\n"
    "one = Vocabulary(sys.argv[1])\n"
    "print([one.sample(line, 7, 0.3).id for line in sys.argv[2:]])"
  )
  command = [sys.executable, "-c", code, str(sampled.path), *lines]
  done = subprocess.run(command, check=True, capture_output=True, text=True)
  assert done.stdout.strip() == str([pieces.id for pieces in first])


def test_sampled_subwords_spell_the_same_text(sampled):
  for line in (*LINES[:5], *HARD):
    plain = sampled.encode(line)
    for seed in range(20):
      pieces = sampled.sample(line, seed, 0.3)
      assert sampled.decode(pieces.id) == sampled.decode(plain.id)
      assert len(pieces.id) == len(pieces.begin) == len(pieces.end)
      if not plain.id:
        continue
      assert pieces.begin[0] == plain.begin[0]
      assert pieces.end[-1] == plain.end[-1]
      assert pieces.begin[1:] == pieces.end[:-1]
      assert [*pieces.begin] == sorted(pieces.begin)


def test_alpha_controls_the_amount_of_sampling(sampled):
  line = LINES[1]
  plain = len(sampled.encode(line).id)

  def mean(alpha):
    sizes = [len(sampled.sample(line, s, alpha).id) for s in range(60)]
    return sum(sizes) / len(sizes)

  low, middle, high = map(mean, (1e-6, 0.3, 0.999))
  if sampled.path.parent.name.startswith("bpe"):
    assert low == plain < middle < high
    characters = len(line.replace(" ", "")) + line.count(" ") + 1
    assert high > 0.95 * characters
  else:
    assert low > middle > high >= plain


@pytest.mark.parametrize(("kind", "alpha"), [("bpe", 0.0), ("unigram", 1e5)])
def test_sampling_without_noise_equals_sentencepiece(
  kind, alpha, real_lines, tmp_path
):
  """No merge is dropped; only the most probable segmentation has weight."""
  options = Subwords(size=3000, type=kind, character_coverage=0.9995)
  model = vocabulary.train(real_lines, tmp_path / "v.model", options)
  for line in (*real_lines[::4], *HARD, "", " "):
    assert model.sample(line, 0, alpha) == model.encode(line), line
