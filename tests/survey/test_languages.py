"""The language of a file by its name, and of a text by its lines."""

import pytest

from jaxsyn.survey import languages


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
def test_named(file, column, code):
  assert languages.named(file, column) == code


ENGLISH = ["A dog runs through the grass.", "Two men are talking."] * 10
GERMAN = ["Ein Hund rennt durch das Gras.", "Zwei Männer reden."] * 10
JAPANESE = ["犬が草の上を走っている。"] * 20


def test_guess():
  assert languages.guess(ENGLISH) == ("en", 1.0)
  assert languages.guess(GERMAN) == ("de", 1.0)
  assert languages.guess(JAPANESE) == ("ja", 1.0)
  assert languages.guess(["12", "", "--"]) == ("", 0.0)


def test_what_differs_is_more_than_a_dialect():
  assert languages.differ("en", "de", 0.9)
  assert not languages.differ("en", "de", 0.5)
  assert not languages.differ("en", "", 0.0)
  assert not languages.differ("zh_Hans", "zh", 1.0)
  assert not languages.differ("no", "nb", 1.0)


def test_scripts():
  # 10 letters, of which 8 are Latin.
  assert languages.scripts(["abcd efgh 1!", "яд"]) == [
    ("Latin", 0.8),
    ("Cyrillic", 0.2),
  ]
  assert languages.scripts(["123"]) == []


@pytest.mark.parametrize(
  ("code", "name"),
  [("en", "en"), ("zh-CN", "zh"), ("EN", "en"), ("th", ""), ("qaa", "")],
)
def test_models_of_parsers(code, name):
  assert languages.with_parser(code) == name
