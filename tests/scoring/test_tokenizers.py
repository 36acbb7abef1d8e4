"""Which words a language has, and scores of raw text without blanks."""

import importlib.util
import subprocess
import sys

import pytest
from scored import score

from jaxsyn import score as command
from jaxsyn.config import read_config, with_defaults
from jaxsyn.errors import InputError
from jaxsyn.scoring import buckets, selection, tokenizers
from jaxsyn.scoring.settings import Settings

MECAB = bool(importlib.util.find_spec("MeCab"))
JAPANESE = "ja-mecab" if MECAB else "char"

RAW = {
  "ja": ["私はりんごを食べます。", "これは私の本です。", "犬が庭で寝ている。"],
  "zh": ["我昨天去了图书馆。", "这是我的书。", "狗在院子里睡觉。"],
  "th": ["ฉันไปโรงเรียนทุกวัน", "นี่คือหนังสือของฉัน", "สุนัขนอนอยู่ในสวน"],
  "de": ["Ich esse einen Apfel, wie immer.", "Das ist mein Buch.", "Ja."],
}
PARTLY = {  # a word or two are others
  "ja": [
    "私は赤いりんごを食べます。",
    "これは私の車です。",
    "犬が庭で寝ている。",
  ],
  "zh": ["我今天去了图书馆。", "这是我的书。", "猫在院子里睡觉。"],
  "th": ["ฉันไปตลาดทุกวัน", "นี่คือหนังสือของฉัน", "แมวนอนอยู่ในสวน"],
  "de": ["Ich esse einen Apfel, wie oft.", "Das ist mein Haus.", "Ja."],
}


@pytest.mark.parametrize(
  ("languages", "expected"),
  [
    (("", "de", "en", "cs", "qaa", "vi", "jv", "kr"), "13a"),
    (("ja", "JA", "ja-JP", "ja_JP.UTF-8", "jpn", "jpn_Jpan"), JAPANESE),
    (("Japanese", " japanese "), JAPANESE),
    (("zh", "zh-CN", "zh_hans", "zh-Hant-TW", "zho_Hant", "cmn"), "zh"),
    (("yue_Hant", "Chinese", "nan-Hant"), "zh"),
    (("th", "tha_Thai", "km", "khm", "lo", "my", "mya_Mymr", "bo"), "char"),
    # Written in letters that stand between blanks.
    (("ja-Latn", "zh-Latn-pinyin", "srp_Cyrl"), "13a"),
  ],
)
def test_a_language_has_the_tokeniser_that_fits(languages, expected):
  assert {
    name: tokenizers.default(name) for name in languages
  } == dict.fromkeys(languages, expected)


@pytest.fixture
def without_mecab(monkeypatch):
  """As if no package of MeCab were installed."""
  modules = [f"sacrebleu.tokenizers.tokenizer_{x}_mecab" for x in ("ja", "ko")]
  for module in modules:
    monkeypatch.delitem(sys.modules, module, raising=False)
  for package in ("MeCab", "mecab_ko"):
    monkeypatch.setitem(sys.modules, package, None)
  yield
  for module in modules:  # what they found holds for one test alone
    sys.modules.pop(module, None)


def test_characters_stand_in_where_mecab_is_not_installed(without_mecab):
  assert tokenizers.default("ja") == tokenizers.default("ko") == "char"
  with pytest.raises(InputError, match=r"pip install -e '\.\[ja\]'"):
    tokenizers.resolved("ja-mecab", "ja")
  message = tokenizers.summary("ja")
  assert (
    message.startswith("tokenizer char, since")
    and "pip install -e '.[ja]'" in message
  )


def test_a_named_tokenizer_has_priority():
  assert tokenizers.resolved("intl", "ja") == "intl"
  with pytest.raises(InputError, match=r"'13b'\. Did you mean '13a'"):
    tokenizers.resolved("13b", "ja")


@pytest.mark.parametrize("language", RAW)
def test_raw_text_of_any_language_has_a_score(language):
  meant, partly = RAW[language], PARTLY[language]
  tokenizer = tokenizers.default(language)

  def of(message, metric, cut=tokenizer):
    return score(message, [meant], metric, cut).value

  for metric in ("bleu", "chrf", "ribes"):
    assert of(meant, metric) == pytest.approx(100)
    assert 5 < of(partly, metric) < 100
  assert of(meant, "ter") == 0 < of(partly, "ter") < 50
  if language != "de":
    # To "13a" a line is one word, right or wrong.
    assert score(partly[:1], [meant[:1]], "bleu", "13a").value == 0.0


def test_words_that_are_cut_off_are_those_that_are_edited():
  meant, messages = ["我是学生"], ["我是先生"]
  # One of four characters is another; between blanks one word of one is.
  assert score(messages, [meant], "ter", "zh").value == 25.0
  assert score(messages, [meant], "ter", "13a").value == 100.0
  scores = score(messages, [meant], "ter", "zh").signature
  assert "tok:zh" in scores and "tok:tercom" not in scores
  assert "tok:tercom" in score(messages, [meant], "ter", "13a").signature


def test_lengths_are_of_words_where_there_are_no_blanks():
  lines = ["我昨天去了图书馆。" * 2, ""]  # nine characters, twice
  (table,) = buckets.tables(lines, edges=(10, 20), language="zh")
  assert table.by == "source length in words of zh"
  assert [table.labels[i] for i in table.bucket_B] == ["11-20", "0"]
  (table,) = buckets.tables(lines, edges=(10, 20))
  assert [table.labels[i] for i in table.bucket_B] == ["1-10", "0"]


@pytest.fixture
def files(tmp_path):
  meant, message = tmp_path / "meant.ja", tmp_path / "said.ja"
  meant.write_text("\n".join(RAW["ja"]) + "\n")
  message.write_text("\n".join(PARTLY["ja"]) + "\n")
  return str(meant), str(message)


def test_the_command_takes_the_language(files):
  done = subprocess.run(
    [
      *(sys.executable, "-m", "jaxsyn.score", "--reference", files[0]),
      *("--hypothesis", files[1], "--metrics", "bleu,ribes"),
      *("--language", "jpn"),
    ],
    capture_output=True,
    text=True,
    check=True,
  )
  assert done.stdout.count(f"tok:{JAPANESE}") == 2

  # Which was taken, and why, on one line.
  assert done.stderr == f"--language: {tokenizers.summary('jpn')}\n"

  def printed(tokenizer="", **given):
    settings = Settings(("bleu",), tokenizer)
    return command.as_text(command.run(files[:1], files[1:], settings, **given))

  assert "tok:char" in printed("char", language="ja")
  assert "tok:13a" in printed()


def test_a_settled_config_names_its_tokeniser():
  from jaxsyn.configs import base

  config = base.get_config()
  config.data.target_language = "zh-TW"
  loaded = with_defaults(read_config(config)).train
  assert (loaded.tokenizer, selection.title(loaded)) == ("zh", "BLEU (zh)")
  # Installing another tokeniser later changes nothing.
  config.train.tokenizer = loaded.tokenizer
  config.data.target_language = "ja"
  assert with_defaults(read_config(config)).train.tokenizer == "zh"
  config.train.selection = "chrf"
  assert selection.title(read_config(config).train) == "chrF"


def test_smoothing_alone_ranks_as_nothing():
  from jaxsyn.configs import base

  config = base.get_config()
  train = with_defaults(read_config(config)).train
  metric = selection.Selector(train, ["a b c d e", "f g h i j"])
  # Three words right in a row, no four: sacreBLEU's number is above 0.
  result = metric(["a b c x x", "y y y y y"])
  assert result.values["bleu"] > 5 and result.compared == 0.0
  assert result.values["tokenizer"] == "13a"
  result = metric(["a b c d x", "f g h i j"])
  assert result.values["bleu"] == result.compared > 50


@pytest.mark.parametrize(
  ("line", "answer"),
  [
    ("彼は昨日、東京へ行った。", True),
    ("เขาไปโรงเรียน", True),
    ("彼 は 昨日 、 東京 へ 行っ た 。", False),
    ("그는 어제 도쿄에 갔다.", False),
    ("He went to 東京 yesterday.", False),
    ("", False),
  ],
)
def test_text_without_blanks_is_known(line, answer):
  assert tokenizers.without_blanks([line] * 3) is answer
