"""Tests offsets in raw text, round trips, sampling and errors of vocabularies."""

from __future__ import annotations

import collections
import gzip
import hashlib
import itertools
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest
import sacrebleu
import sentencepiece

from jaxsyn.data.schema import BOS, EOS, PAD, UNK
from jaxsyn.data.sentence import segmentation, vocabulary
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
  """3,000 captions and Japanese sentences, and the whole Czech validation."""
  lines = []
  for name, count in (
    ("multi30k/train.en.gz", 1000),
    ("multi30k/train.de.gz", 1000),
    ("multi30k/val.cs.gz", 1014),
    ("multi30k/val.fr.gz", 1014),
    ("enja/train.ja.gz", 1000),
  ):
    with gzip.open(shared_data / name, "rt", newline="\n") as file:
      lines += [line.rstrip("\n") for line in itertools.islice(file, count)]
  return lines


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


def test_other_model_types_have_no_whole_words(small, tmp_path):
  assert not small.whole_words
  for type in ("unigram", "char"):
    model = vocabulary.train(
      ["a b"], tmp_path / type, Subwords(size=9, type=type)
    )
    assert not model.whole_words


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


@pytest.mark.parametrize("text", HARD)
def test_whole_words_of_difficult_text(words, text):
  check_words(words, text)


def test_whole_words_of_real_lines(real_lines, tmp_path):
  """4,000 words of five languages; and those kept are the most frequent."""
  model = vocabulary.train(
    real_lines, tmp_path / "v.model", Subwords(size=4000, type="word")
  )
  assert model.size == 4000
  for line in real_lines[::3]:
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


@pytest.mark.parametrize("coverage", [1.0, 0.98])
def test_keeps_most_frequent_words_with_rare_letters(tmp_path, coverage):
  # x... 4, é 3; b, c and ｃ (NFKC: c) 2 each, of which b comes first; a 1. Of the
  # letters 98 % are x, so at that coverage others would count as rare.
  long = "x" * 200
  lines = [f"{long} é ｃ", f"{long} é b", f"{long} é b", f"{long} c a"]
  model = vocabulary.train(
    lines,
    tmp_path / "v.model",
    Subwords(size=7, type="word", character_coverage=coverage),
  )
  saved = [model._processor.id_to_piece(i) for i in range(4, model.size)]
  assert saved == [f"▁{long}", "▁é", "▁b"]
  assert model.encode("b é c a").id == [6, 5, UNK, UNK]


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
  text = "👩\u200d👩\u200d👧 Two"
  pieces = small.encode(text)
  assert (pieces.begin[-1], pieces.end[-1]) == (5, 9)
  assert "".join(surfaces(small, text)) == text


def test_spelled_out_character_belongs_to_one_piece(small):
  # NFKC: ½ -> 1⁄2. Two pieces or three, one of them holds the character.
  assert [s.strip() for s in surfaces(small, "½")].count("½") == 1
  # ﬁ -> fi, within the word "ﬁnally".
  assert "".join(surfaces(small, "ﬁnally")) == "ﬁnally"


def test_full_width_letters_and_blanks_are_normalized(small):
  expected = small.encode("full width").id
  assert small.encode("ｆｕｌｌ　ｗｉｄｔｈ").id == expected
  assert small.encode("full\u00a0width").id == expected


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


def test_special_symbols_in_text_are_ordinary_text(small):
  assert not {PAD, BOS, EOS} & set(small.encode("<s> a </s> <pad>").id)


def test_decode_stops_at_eos_and_skips_padding(small):
  ids = small.encode("A man walks").id
  noisy = [BOS, PAD, *ids, -1, small.size, 10**6, EOS, *ids]
  assert small.decode(noisy) == "A man walks"
  assert small.decode([]) == small.decode([EOS]) == ""
  assert small.encode("").id == []
  assert small.encode(" \u3000").id == []


def test_special_ids_and_hash(small):
  reference = sentencepiece.SentencePieceProcessor(model_file=str(small.path))
  assert [reference.id_to_piece(i) for i in range(4)] == [
    "<pad>",
    "<unk>",
    "<s>",
    "</s>",
  ]
  digest = hashlib.sha256(small.path.read_bytes()).hexdigest()
  assert small.sha256 == vocabulary.Vocabulary(small.path).sha256 == digest
  assert small.size == reference.vocab_size() == 120


@pytest.mark.parametrize("type", ["bpe", "unigram", "word", "char"])
def test_training_is_deterministic(tmp_path, type):
  one, two = (
    vocabulary.train(LINES, tmp_path / name, Subwords(size=60, type=type))
    for name in ("one.model", "two.model")
  )
  assert one.sha256 == two.sha256
  assert sorted(p.name for p in tmp_path.iterdir()) == [
    "one.model",
    "two.model",
  ]


@pytest.mark.parametrize("type", ["bpe", "unigram", "word", "char"])
def test_size_is_reduced_to_the_text(tmp_path, type):
  model = vocabulary.train(
    LINES, tmp_path / "v", Subwords(size=9000, type=type)
  )
  assert 4 < model.size < 500
  assert UNK not in model.encode("A man eats bread .").id or type == "word"


def test_trains_on_long_lines(tmp_path):
  # SentencePiece leaves out lines above 4,192 bytes unless told otherwise.
  model = vocabulary.train(["ab " * 5000], tmp_path / "v", Subwords(size=9))
  assert UNK not in model.encode("ab ab").id


def test_rejects_a_size_below_the_characters(tmp_path):
  # Characters: "▁", a, b, c and the four special symbols.
  with pytest.raises(InputError, match=r"of 5 pieces .* at least 8"):
    vocabulary.train(["a b c"], tmp_path / "v.model", Subwords(size=5))
  with pytest.raises(InputError, match="no text to train"):
    vocabulary.train(["", "  "], tmp_path / "v", Subwords(size=9))
  assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("content", [b"", b"no model at all", None])
def test_rejects_files_that_are_not_a_model(small, tmp_path, content):
  path = tmp_path / "bad.model"
  path.write_bytes(
    small.path.read_bytes()[:-100] if content is None else content
  )
  with pytest.raises(
    InputError, match=r"bad.model: not a \(complete\) Sentence"
  ):
    vocabulary.Vocabulary(path)
  with pytest.raises(InputError, match=r"none.model: cannot read the voc"):
    vocabulary.Vocabulary(tmp_path / "none.model")


def test_rejects_a_model_with_other_special_symbols(tmp_path):
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


def drawn(vocabulary, line, seed, alpha=0.3):
  return vocabulary.sample(line, seed, alpha)


def test_sample_depends_only_on_the_seed(sampled):
  """Whatever was drawn before, and in whatever thread."""
  lines = [*LINES[:5], *HARD]
  first = [drawn(sampled, line, seed) for seed, line in enumerate(lines)]
  jobs = [*enumerate(lines)][::-1] * 3
  with ThreadPoolExecutor(3) as pool:
    result = [*pool.map(lambda job: drawn(sampled, job[1], job[0]), jobs)]
  assert result == first[::-1] * 3
  different = {tuple(drawn(sampled, LINES[1], seed).id) for seed in range(40)}
  assert len(different) > 5


def test_sampled_subwords_spell_the_same_text(sampled):
  for line in (*LINES[:5], *HARD):
    plain = sampled.encode(line)
    for seed in range(20):
      pieces = drawn(sampled, line, seed)
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
    sizes = [len(drawn(sampled, line, s, alpha).id) for s in range(60)]
    return sum(sizes) / len(sizes)

  small_set, some, many = map(mean, (1e-6, 0.3, 0.999))
  if sampled.path.parent.name.startswith("bpe"):
    assert small_set == plain < some < many
    characters = len(line.replace(" ", "")) + line.count(" ") + 1
    assert many > 0.95 * characters
  else:
    assert small_set > some > many >= plain


def test_sampling_is_equal_in_another_process(sampled):
  """SentencePiece's own generator has other numbers in each."""
  result = [drawn(sampled, line, 7).id for line in LINES[:5]]
  code = (
    "import sys; from jaxsyn.data.sentence.vocabulary import Vocabulary\n"
    "one = Vocabulary(sys.argv[1])\n"
    "print([one.sample(line, 7, 0.3).id for line in sys.argv[2:]])"
  )
  command = [sys.executable, "-c", code, str(sampled.path), *LINES[:5]]
  done = subprocess.run(command, check=True, capture_output=True, text=True)
  assert done.stdout.strip() == str(result)


@pytest.mark.parametrize("kind", ["bpe", "unigram"])
def test_sampling_without_noise_equals_sentencepiece(
  kind, real_lines, tmp_path
):
  """Merges that are never left out; of all segmentations the most probable."""
  options = Subwords(size=3000, type=kind, character_coverage=0.9995)
  expected = vocabulary.train(
    real_lines, tmp_path / "vocabulary.model", options
  )
  alpha = 0.0
  if kind == "unigram":
    cut = segmentation.by_lattice
    expected._segment = lambda normal, scores, alpha, rng: cut(
      normal, scores, 1.0, None
    )
  for line in (*real_lines[::4], *HARD, "", " "):
    assert expected.sample(line, 0, alpha) == expected.encode(line), line


def test_can_sample_depends_on_the_model_type(sampled, tmp_path):
  assert sampled.can_sample
  for kind in ("char", "word"):
    options = Subwords(size=120, type=kind)
    expected = vocabulary.train(LINES, tmp_path / f"{kind}.model", options)
    assert not expected.can_sample
