"""How a language is cut into words before they are counted.

The tokenisers are sacreBLEU's; which of them a language needs is said here and
nowhere else. "13a", sacreBLEU's default, cuts punctuation from words that stand
between blanks. Where a script has no blanks it makes one word of a sentence, and
BLEU of Japanese is 0.0 whatever a model has learnt.
"""

from __future__ import annotations

import itertools
import re
import unicodedata
from collections.abc import Callable, Iterable
from typing import Any

import sacrebleu

from jaxsyn.errors import InputError, did_you_mean

# Tokenisers of sacreBLEU that stand on packages of their own -> our extra.
EXTRAS = {"ja-mecab": "ja", "ko-mecab": "ko"}
# Those that need blanks between words.
OF_BLANKS = ("13a", "intl", "none")
# Of a language, the first that is installed. Only what 13a does not fit: sacreBLEU
# has "zh"; MeCab for Japanese and Korean; for scripts without blanks between
# words it has nothing but characters.
_FITTING = {
  "zh": ("zh",),
  "ja": ("ja-mecab", "char"),
  "ko": ("ko-mecab", "char"),
  "th": ("char",),
  "km": ("char",),
  "lo": ("char",),
  "my": ("char",),
  "shn": ("char",),
  "bo": ("char",),
  "dz": ("char",),
}
# Codes of ISO 639-2 and 639-3, names, and what people write, -> the same.
_CALLED = {
  "zh": "zho chi cmn yue wuu hak gan hsn lzh cn chinese mandarin cantonese",
  "ja": "jpn jp japanese",
  "ko": "kor korean",
  "th": "tha thai",
  "km": "khm khmer",
  "lo": "lao laotian",
  "my": "mya bur burmese",
  "shn": "shan",
  "bo": "bod tib tibetan",
  "dz": "dzo dzongkha",
}
# How Unicode calls the letters of scripts that put no blanks between words.
_UNSPACED = (
  *("CJK ", "HIRAGANA ", "KATAKANA ", "THAI ", "LAO ", "KHMER ", "MYANMAR "),
  "TIBETAN ",
)
# Codes of ISO 15924: a script may be another than the language's usual one.
_SCRIPTS = {
  "zh": "hans hant hani bopo",
  "ja": "jpan hira kana hrkt",
  "ko": "kore hang",
  "th": "thai",
  "km": "khmr",
  "lo": "laoo",
  "my": "mymr",
  "bo": "tibt",
}


def default(language: str) -> str:
  """The tokeniser that fits a language, of those that are installed.

  Args:
    language: a code of ISO 639 ("ja", "jpn"), with or without script and region
      ("zh-CN", "zh_hans", "jpn_Jpan"), or an English name; "" or one that needs
      nothing else has "13a".
  """
  for name in _FITTING.get(_known(language), ()):
    try:
      bleu_of(name)
    except InputError:
      continue
    return name
  return "13a"


def settled(tokenizer: str, language: str) -> str:
  """The tokeniser asked for, or where it is "" the default of a language.

  Raises:
    InputError: there is none of this name, or it is not installed.
  """
  tokenizer = tokenizer or default(language)
  bleu_of(tokenizer)
  return tokenizer


def without_blanks(lines: Iterable[str], sample: int = 100) -> bool:
  """Whether text has words that no blanks part, by its script and its blanks.

  Args:
    lines: of the text.
    sample: so many of them are looked at.
  """
  text = "".join(itertools.islice(lines, sample))
  letters = [c for c in text if c.isalpha()]
  of_script = sum(
    unicodedata.name(c, "").startswith(_UNSPACED) for c in letters
  )
  # Text that a tokeniser has cut has a blank every few characters.
  return 2 * of_script > len(letters) and 8 * text.count(" ") < len(letters)


def cutter(tokenizer: str, lowercase: bool = False) -> Callable[[str], list]:
  """A function that cuts a line into words.

  Raises:
    InputError: as `settled`.
  """
  bleu = bleu_of(tokenizer, lowercase)
  return lambda line: bleu._preprocess_segment(line).split()


def bleu_of(
  tokenizer: str, lowercase: bool = False, **options: Any
) -> sacrebleu.BLEU:
  """sacreBLEU's BLEU, and with it its tokeniser.

  Raises:
    InputError: no such tokeniser, or its packages are not installed.
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
      f"pip install 'jaxsyn[{EXTRAS[tokenizer]}]' (in a checkout: "
      f"pip install -e '.[{EXTRAS[tokenizer]}]')."
    ) from error
  except OSError as error:  # those that stand on a model fetch it
    raise InputError(
      f"the model of the tokenizer {tokenizer!r} cannot be fetched ({error}). "
      "Try again with a network, or take another tokenizer."
    ) from error


def _known(language: str) -> str:
  """A key of _FITTING; "" for a language that is not in it."""
  first, *others = re.split(r"[-_@. ]+", language.strip().lower())
  for script in others:
    for known, scripts in _SCRIPTS.items():
      if script in scripts.split():
        return known
    if len(script) == 4 and script.isalpha():  # Latn, Cyrl: has its blanks
      return ""
  called = (k for k, names in _CALLED.items() if first in (k, *names.split()))
  return next(called, "")
