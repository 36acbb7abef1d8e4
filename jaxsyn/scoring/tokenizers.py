"""How a language is cut into words before they are counted.

The tokenisers are sacreBLEU's; which of them a language needs is said here and
nowhere else. "13a", sacreBLEU's default, cuts punctuation from words that stand
between blanks. Where a script has no blanks it makes one word of a sentence, and
BLEU of Japanese is 0.0 whatever a model has learnt.
"""

from __future__ import annotations

import dataclasses
import itertools
import re
import unicodedata
from collections.abc import Callable, Iterable
from typing import Any

import sacrebleu

from jaxsyn.data.sentence.language_codes import short
from jaxsyn.errors import InputError, did_you_mean

# Tokenisers of sacreBLEU that stand on packages of their own -> our extra.
EXTRAS = {"ja-mecab": "ja", "ko-mecab": "ko"}
# Those that need blanks between words.
OF_BLANKS = ("13a", "intl", "none")


@dataclasses.dataclass(frozen=True)
class Language:
  """A language that 13a does not fit.

  Attributes:
    tokenizers: those that do, of which the first that is installed is taken.
    called: codes of ISO 639-2 and 639-3, names, and what people write.
    scripts: codes of ISO 15924: a script may be another than the language's
      usual one.
  """

  tokenizers: tuple[str, ...]
  called: str
  scripts: str = ""


# sacreBLEU has "zh"; MeCab for Japanese and Korean; for scripts without blanks
# between words it has nothing but characters.
LANGUAGES = {
  "zh": Language(
    ("zh",),
    "zho chi cmn yue wuu hak gan hsn lzh cn chinese mandarin cantonese",
    "hans hant hani bopo",
  ),
  "ja": Language(
    ("ja-mecab", "char"), "jpn jp japanese", "jpan hira kana hrkt"
  ),
  "ko": Language(("ko-mecab", "char"), "kor korean", "kore hang"),
  "th": Language(("char",), "tha thai", "thai"),
  "km": Language(("char",), "khm khmer", "khmr"),
  "lo": Language(("char",), "lao laotian", "laoo"),
  "my": Language(("char",), "mya bur burmese", "mymr"),
  "shn": Language(("char",), "shan"),
  "bo": Language(("char",), "bod tib tibetan", "tibt"),
  "dz": Language(("char",), "dzo dzongkha"),
}
# How Unicode calls the letters of scripts that put no blanks between words.
_UNSPACED = (
  *("CJK ", "HIRAGANA ", "KATAKANA ", "THAI ", "LAO ", "KHMER ", "MYANMAR "),
  "TIBETAN ",
)
# ISO 639-1, to tell a mistyped code from one that 13a fits.
_CODES = """
aa ab ae af ak am an ar as av ay az ba be bg bh bi bm bn bo br bs ca ce ch co cr
cs cu cv cy da de dv dz ee el en eo es et eu fa ff fi fj fo fr fy ga gd gl gn gu
gv ha he hi ho hr ht hu hy hz ia id ie ig ii ik io is it iu ja jv ka kg ki kj kk
kl km kn ko kr ks ku kv kw ky la lb lg li ln lo lt lu lv mg mh mi mk ml mn mr ms
mt my na nb nd ne ng nl nn no nr nv ny oc oj om or os pa pi pl ps pt qu rm rn ro
ru rw sa sc sd se sg si sk sl sm sn so sq sr ss st su sv sw ta te tg th ti tk tl
tn to tr ts tt tw ty ug uk ur uz ve vi vo wa wo xh yi yo za zh zu
"""


def default(language: str) -> str:
  """The tokeniser that fits a language, of those that are installed.

  Args:
    language: a code of ISO 639 ("ja", "jpn"), with or without script and region
      ("zh-CN", "zh_hans", "jpn_Jpan"), or an English name; "" or one that needs
      nothing else has "13a".
  """
  for name in _fitting(language):
    try:
      bleu_of(name)
    except InputError:
      continue
    return name
  return "13a"


def summary(language: str) -> str:
  """Which tokeniser a language has, and why: one line."""
  chosen, fitting = default(language), _fitting(language)
  if not fitting:
    if is_known(language):
      return f"tokenizer 13a, which fits {language!r} as it has blanks."
    return (
      f"tokenizer 13a, since {language!r} is not known: no code of ISO 639-1, "
      f"nor one of {', '.join(LANGUAGES)}, which need another. 13a needs blanks "
      "between words."
    )
  if chosen == fitting[0]:
    return f"tokenizer {chosen}, which fits {language!r}."
  return (
    f"tokenizer {chosen}, since that which fits {language!r} better is not "
    f"installed: {_advice(fitting[0])}."
  )


def is_known(language: str) -> bool:
  """Whether it is the code of a language, or else one with a tokeniser."""
  first, *_ = _parts(language)
  return short(first) in _CODES.split() or bool(_fitting(language))


def resolved(tokenizer: str, language: str) -> str:
  """The tokeniser asked for, or where it is "" the default of a language.

  Raises:
    InputError: there is none of this name, or it is not installed.
  """
  tokenizer = tokenizer or default(language)
  bleu_of(tokenizer)
  return tokenizer


def without_blanks(lines: Iterable[str]) -> bool:
  """Whether text has words that no blanks part, by its script and its blanks.

  Args:
    lines: of the text, of which the first hundred are looked at.
  """
  text = "".join(itertools.islice(lines, 100))
  letters = [c for c in text if c.isalpha()]
  of_script = sum(
    unicodedata.name(c, "").startswith(_UNSPACED) for c in letters
  )
  # Text that a tokeniser has cut has a blank every few characters.
  return 2 * of_script > len(letters) and 8 * text.count(" ") < len(letters)


def cutter(
  tokenizer: str, lowercase: bool = False
) -> Callable[[str], list[str]]:
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
      f"{_advice(tokenizer)}."
    ) from error
  except OSError as error:  # those that stand on a model fetch it
    raise InputError(
      f"the model of the tokenizer {tokenizer!r} cannot be fetched ({error}). "
      "Try again with a network, or take another tokenizer."
    ) from error


def _advice(tokenizer: str) -> str:
  return f"pip install -e '.[{EXTRAS[tokenizer]}]'"


def _parts(language: str) -> list[str]:
  """Language, script and region."""
  return re.split(r"[-_@. ]+", language.strip().lower())


def _fitting(language: str) -> tuple[str, ...]:
  """The tokenisers that fit a language better than 13a; () if that does."""
  first, *other_parts = _parts(language)
  for script in other_parts:
    for known in LANGUAGES.values():
      if script in known.scripts.split():
        return known.tokenizers
    if len(script) == 4 and script.isalpha():  # Latn, Cyrl: has its blanks
      return ()
  for code, known in LANGUAGES.items():
    if first in (code, *known.called.split()):
      return known.tokenizers
  return ()
