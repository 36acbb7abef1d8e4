"""Tokenizers for scoring, and their selection by language.

The tokenizers are sacreBLEU's. Its default, "13a", separates punctuation from
words between spaces. In a script without spaces a sentence would be one word, and
BLEU of Japanese would be 0.0 for any model.
"""

from __future__ import annotations

import itertools
import re
import unicodedata
from collections.abc import Callable, Iterable
from typing import Any

import sacrebleu

from jaxsyn.data.sentence.language_codes import TWO_LETTER_CODES, short
from jaxsyn.errors import InputError, did_you_mean

# Tokenizers of sacreBLEU that need other packages -> jaxsyn's extra.
EXTRAS = {"ja-mecab": "ja", "ko-mecab": "ko"}
# Tokenizers that need spaces between words.
OF_BLANKS = ("13a", "intl", "none")
# Language -> tokenizers that suit it better than "13a"; the first that is installed
# is used. Scripts without spaces that have no tokenizer are split into characters.
LANGUAGES = {
  "zh": ("zh",),
  "ja": ("ja-mecab", "char"),
  "ko": ("ko-mecab", "char"),
  **dict.fromkeys(("th", "km", "lo", "my", "shn", "bo", "dz"), ("char",)),
}
# Other codes and names of these languages, besides those of ISO 639-3.
ALIASES = {
  **dict.fromkeys(("cn", "cmn", "yue", "wuu", "hak", "gan", "hsn"), "zh"),
  **dict.fromkeys(("nan", "lzh", "chi", "chinese"), "zh"),
  **dict.fromkeys(("jp", "japanese"), "ja"),
  "korean": "ko",
  "thai": "th",
  "bur": "my",
  "burmese": "my",
  "tib": "bo",
}
# Prefixes of Unicode names of letters, in scripts without spaces between words.
_UNSPACED = (
  "CJK ",
  "HIRAGANA ",
  "KATAKANA ",
  "THAI ",
  "LAO ",
  "KHMER ",
  "MYANMAR ",
  "TIBETAN ",
)


def default(language: str) -> str:
  """Returns the best installed tokenizer for a language.

  Args:
    language: Code of ISO 639 ("ja", "jpn"), with or without script and region
      ("zh-CN", "jpn_Jpan"); "" and languages that need no other tokenizer have
      "13a".
  """
  for name in _suitable(language):
    try:
      bleu_of(name)
    except InputError:
      continue
    return name
  return "13a"


def summary(language: str) -> str:
  """Returns a line with the tokenizer of a language and the reason for it."""
  chosen, suitable = default(language), _suitable(language)
  if suitable and chosen == suitable[0]:
    return f"tokenizer {chosen}, which suits {language!r}."
  if suitable:
    return (
      f"tokenizer {chosen}, because {suitable[0]}, which suits {language!r} better, "
      f"is not installed: {_install(suitable[0])}."
    )
  if is_known(language):
    return f"tokenizer 13a, because {language!r} separates words with spaces."
  return (
    f"tokenizer 13a, which needs spaces between words: {language!r} is neither a "
    f"code of ISO 639-1 nor one of {', '.join(LANGUAGES)}."
  )


def is_known(language: str) -> bool:
  """Returns whether a text is a known language code or name (`ALIASES`)."""
  return short(language) in TWO_LETTER_CODES or bool(_suitable(language))


def resolved(tokenizer: str, language: str) -> str:
  """Returns the given tokenizer, or for "" the default of the language.

  Raises:
    InputError: The tokenizer is unknown or not installed.
  """
  tokenizer = tokenizer or default(language)
  bleu_of(tokenizer)
  return tokenizer


def without_blanks(lines: Iterable[str]) -> bool:
  """Guesses from the first lines whether a text has no spaces between words."""
  text = "".join(itertools.islice(lines, 100))
  letters = [c for c in text if c.isalpha()]
  unspaced = sum(unicodedata.name(c, "").startswith(_UNSPACED) for c in letters)
  # Tokenized text has a space every few characters.
  return 2 * unspaced > len(letters) and 8 * text.count(" ") < len(letters)


def cutter(
  tokenizer: str, lowercase: bool = False
) -> Callable[[str], list[str]]:
  """Returns a function that splits a line into words with a tokenizer.

  Raises:
    InputError: The tokenizer is unknown or not installed.
  """
  bleu = bleu_of(tokenizer, lowercase)
  return lambda line: bleu._preprocess_segment(line).split()


def bleu_of(
  tokenizer: str, lowercase: bool = False, **options: Any
) -> sacrebleu.BLEU:
  """Returns sacreBLEU's BLEU metric with the given tokenizer.

  Raises:
    InputError: The tokenizer is unknown or not installed.
  """
  if tokenizer not in sacrebleu.BLEU.TOKENIZERS:
    known = did_you_mean(tokenizer, sacrebleu.BLEU.TOKENIZERS)
    raise InputError(f"sacreBLEU has no tokenizer {tokenizer!r}. {known}")
  try:
    return sacrebleu.BLEU(tokenize=tokenizer, lowercase=lowercase, **options)
  except (RuntimeError, AssertionError, ImportError) as error:
    if tokenizer not in EXTRAS:
      raise
    raise InputError(
      f"the tokenizer {tokenizer!r} needs packages that are not installed: "
      f"{_install(tokenizer)}."
    ) from error
  except OSError as error:  # tokenizers with a model, which is downloaded
    raise InputError(
      f"the model of the tokenizer {tokenizer!r} cannot be downloaded ({error})."
    ) from error


def _install(tokenizer: str) -> str:
  return f"pip install -e '.[{EXTRAS[tokenizer]}]'"


def _suitable(language: str) -> tuple[str, ...]:
  """Returns tokenizers that suit a language better than "13a", best first."""
  first, *others = re.split(r"[-_@. ]+", language.strip().lower())
  if "latn" in others:  # romanized, with spaces
    return ()
  return LANGUAGES.get(ALIASES.get(first, short(first)), ())
