"""Which language a text is in: by the name of its file, and by its lines."""

from __future__ import annotations

import collections
import pathlib
import unicodedata
from collections.abc import Iterable, Sequence

from jaxsyn.data.sentence.language_codes import short
from jaxsyn.scoring import tokenizers

_LINES_PER_GUESS = 10  # lines: one alone is often too short to tell
_SURE = 0.8  # share of them
# What py3langid does not tell apart, or has one code for.
_ALIKE = (
  {"no", "nb", "nn"},
  {"hr", "sr", "bs"},
  {"id", "ms"},
  {"zh", "lzh"},
)


def named(file: str, column: int = 0) -> str:
  """The language that a file's name ends in, as corpus.en.gz; "" if none.

  Args:
    file: its name; of a .tsv with both, as corpus.en-fr.tsv.
    column: of the two of a .tsv.
  """
  name = pathlib.PurePath(file).name
  for ending in (".gz", ".zst"):
    name = name.removesuffix(ending)
  if name.endswith(".tsv"):
    both = name.removesuffix(".tsv").rpartition(".")[2]
    codes = both.replace("_", "-").split("-")
    return _code(codes[column]) if len(codes) == 2 else ""
  return _code(name.rpartition(".")[2]) if "." in name else ""


def _code(word: str) -> str:
  """The code of a language as the rest of jaxsyn has it; "" of anything else."""
  first = word.replace("_", "-").partition("-")[0].lower()
  for code, language in tokenizers.LANGUAGES.items():
    if first in language.called.split():
      return code
  known = tokenizers.is_known(word)
  return (word if len(word) > len(first) else first) if known else ""


def guess(lines: Sequence[str]) -> tuple[str, float]:
  """The language that most of a text seems to be in.

  Returns: its code ("": there are no letters), and the share of the text.
  """
  import py3langid

  real = [line for line in lines if any(map(str.isalpha, line))]
  counts = collections.Counter(
    py3langid.classify(" ".join(real[i : i + _LINES_PER_GUESS]))[0]
    for i in range(0, len(real), _LINES_PER_GUESS)
  )
  if not counts:
    return "", 0.0
  ((code, count),) = counts.most_common(1)
  return code, count / counts.total()


def differ(code: str, guessed: str, share: float) -> bool:
  """Whether a text seems to be in another language than it is said to be."""
  declared = short(code)
  if not guessed or declared == guessed or share < _SURE:
    return False
  return not any({declared, guessed} <= alike for alike in _ALIKE)


def scripts(lines: Iterable[str]) -> list[tuple[str, float]]:
  """The scripts of the letters, most first, and their shares above 1 %."""
  letters = [c for line in lines for c in line if c.isalpha()]
  names = (unicodedata.name(c, "unknown").partition(" ")[0] for c in letters)
  return [
    (name if name == "CJK" else name.capitalize(), n / len(letters))
    for name, n in collections.Counter(names).most_common()
    if 100 * n >= len(letters)
  ]


def with_parser(language: str) -> str:
  """What spacy-udpipe calls the model of a language; "" where it has none."""
  from spacy_udpipe import utils

  for name in (language, language.replace("_", "-").partition("-")[0].lower()):
    if name in utils.LANGUAGES:
      return name
  return ""
