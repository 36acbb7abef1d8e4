"""Tokenizers of languages, and scores of raw text without spaces."""

import importlib.util
import sys
import types

import pytest
import sacrebleu
from scored import score

from jaxsyn import score as command
from jaxsyn.config import read_config, with_defaults
from jaxsyn.configs import base
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
PARTLY = {  # with other words
  "ja": ["私は赤いりんごを食べます。", "これは私の車です。", RAW["ja"][2]],
  "zh": ["我今天去了图书馆。", "这是我的书。", "猫在院子里睡觉。"],
  "th": ["ฉันไปตลาดทุกวัน", "นี่คือหนังสือของฉัน", "แมวนอนอยู่ในสวน"],
  "de": ["Ich esse einen Apfel, wie oft.", "Das ist mein Haus.", "Ja."],
}


@pytest.mark.parametrize(
  ("languages", "expected"),
  [
    (("", "de", "en", "cs", "qaa", "vi", "jv", "kr"), "13a"),
    (("ja", "JA", "ja-JP", "ja_JP.UTF-8", "jpn", "jpn_Jpan"), JAPANESE),
    ((" Japanese ", "jp"), JAPANESE),
    (("zh", "zh-CN", "zh_hans", "zh-Hant-TW", "zho_Hant", "cmn"), "zh"),
    (("yue_Hant", "Chinese", "nan-Hant"), "zh"),
    (("th", "tha_Thai", "km", "khm", "lo", "my", "mya_Mymr", "bo"), "char"),
    # In scripts with spaces.
    (("ja-Latn", "jpn_Latn", "zh-Latn-pinyin", "srp_Cyrl"), "13a"),
  ],
)
def test_default_tokenizer_of_a_language(languages, expected):
  assert {
    name: tokenizers.default(name) for name in languages
  } == dict.fromkeys(languages, expected)


@pytest.mark.parametrize(
  ("package", "language"), [("MeCab", "ja"), ("mecab_ko", "ko")]
)
def test_characters_replace_a_missing_tokenizer(monkeypatch, package, language):
  module = f"sacrebleu.tokenizers.tokenizer_{language}_mecab"
  monkeypatch.delitem(sys.modules, module, raising=False)
  monkeypatch.setitem(sys.modules, package, None)  # as if not installed
  install = rf"pip install -e '\.\[{language}\]'"
  assert tokenizers.default(language) == "char"
  with pytest.raises(InputError, match=install):
    tokenizers.resolved(f"{language}-mecab", language)
  message = tokenizers.summary(language)
  assert message.startswith("tokenizer char, because")
  assert f"pip install -e '.[{language}]'" in message
  sys.modules.pop(module, None)  # later tests import it again


@pytest.mark.parametrize("language", RAW)
def test_raw_text_of_any_language_has_a_score(language):
  references, partly = RAW[language], PARTLY[language]
  tokenizer = tokenizers.default(language)

  def value(hypotheses, metric):
    return score(hypotheses, [references], metric, tokenizer).value

  for metric in ("bleu", "chrf", "ribes"):
    assert value(references, metric) == pytest.approx(100)
    assert 5 < value(partly, metric) < 100
  assert value(references, "ter") == 0 < value(partly, "ter") < 50
  # To "13a" a line without spaces is one word, right or wrong.
  by_13a = score(partly[:1], [references[:1]], "bleu", "13a").value
  assert (by_13a == 0.0) == (language != "de")


@pytest.mark.parametrize(
  ("package", "language", "hypothesis", "reference"),
  [
    ("MeCab", "ja", "私はりんごを食べます。", "私は赤いりんごを食べます。"),
    ("mecab_ko", "ko", "저는 학교에 가요.", "저는 학교에 갑니다."),
  ],
)
def test_mecab_tokenizes(package, language, hypothesis, reference):
  pytest.importorskip(package)
  tokenizer = f"{language}-mecab"
  bleu = sacrebleu.BLEU(tokenize=tokenizer)
  expected = bleu.corpus_score([hypothesis], [[reference]]).score
  result = score([hypothesis], [[reference]], tokenizer=tokenizer)
  assert result.value == expected > 0
  assert f"tok:{tokenizer}-" in result.signature
  if language == "ja":
    # 私 は りんご を 食べ ます 。 are all aligned, in order; 7 words for 8.
    ribes = score([hypothesis], [[reference]], "ribes", tokenizer=tokenizer)
    assert ribes.value == pytest.approx(100 * 2.718281828 ** (-0.1 / 7))
    assert "tok:ja-mecab-" in ribes.signature


def test_ter_counts_words_of_the_tokenizer():
  # One of four characters differs; between spaces one word of one.
  by_zh, by_13a = (
    score(["我是先生"], [["我是学生"]], "ter", name) for name in ("zh", "13a")
  )
  assert (by_zh.value, by_13a.value) == (25.0, 100.0)
  assert "tok:zh" in by_zh.signature and "tok:tercom" not in by_zh.signature
  assert "tok:tercom" in by_13a.signature


def test_source_length_without_spaces():
  lines = ["我昨天去了图书馆。" * 2, ""]  # nine characters, twice
  for language, by, label in (
    ("zh", "source length in words of zh", "11-20"),
    ("", "source length", "1-10"),
  ):
    facts = buckets.sentence_facts(lines, language=language)
    (table,) = buckets.in_buckets(facts, (10, 20))
    assert table.by == by
    assert [table.labels[i] for i in table.bucket_B] == [label, "0"]


@pytest.mark.parametrize(
  ("options", "tokenizer", "message"),
  [
    ({"language": "jpn"}, JAPANESE, "--language: tokenizer "),
    ({"language": "ja", "tokenizer": "char"}, "char", ""),  # has priority
    ({}, "13a", "no spaces between its words"),
  ],
)
def test_command_selects_and_reports_the_tokenizer(
  tmp_path, capsys, options, tokenizer, message
):
  reference, hypothesis = tmp_path / "reference", tmp_path / "hypothesis"
  reference.write_text("\n".join(RAW["ja"]) + "\n")
  hypothesis.write_text("\n".join(PARTLY["ja"]) + "\n")
  values = {"tokenizer": "", "language": "", "source": "", **options}
  settings = Settings(("bleu", "ribes"), values["tokenizer"])
  result = command.run(
    [reference], [hypothesis], settings, language=values["language"]
  )
  for score_ in result.scores[str(hypothesis)]:
    assert f"tok:{tokenizer}" in score_.signature
  command._report_tokenizers(
    types.SimpleNamespace(**values, reference=[reference])
  )
  error = capsys.readouterr().err
  assert message in error and bool(message) == bool(error)


def test_defaults_record_the_tokenizer():
  config = base.get_config()
  config.data.target_language = "zh-TW"
  loaded = with_defaults(read_config(config)).train
  assert (loaded.tokenizer, selection.title(loaded)) == ("zh", "BLEU (zh)")
  # Installing another tokenizer later has no effect.
  config.train.tokenizer = loaded.tokenizer
  config.data.target_language = "ja"
  assert with_defaults(read_config(config)).train.tokenizer == "zh"
  config.train.selection = "chrf"
  assert selection.title(read_config(config).train) == "chrF"


def test_smoothing_does_not_affect_selection():
  train = with_defaults(read_config(base.get_config())).train
  metric = selection.Selector(train, ["a b c d e", "f g h i j"])
  # Three words right in a row, no four: sacreBLEU's score is above 0.
  result = metric(["a b c x x", "y y y y y"])
  assert result.values["bleu"] > 5 and result.compared == 0.0
  assert result.values["tokenizer"] == "13a"
  result = metric(["a b c d x", "f g h i j"])
  assert result.values["bleu"] == result.compared > 50


@pytest.mark.parametrize(
  ("line", "expected"),
  [
    ("彼は昨日、東京へ行った。", True),
    ("เขาไปโรงเรียน", True),
    ("彼 は 昨日 、 東京 へ 行っ た 。", False),
    ("그는 어제 도쿄에 갔다.", False),
    ("He went to 東京 yesterday.", False),
    ("", False),
  ],
)
def test_detects_text_without_spaces(line, expected):
  assert tokenizers.without_blanks([line] * 3) is expected
