"""Converts the rows of a CoNLL-U sentence to a tree of surface tokens.

`jaxsyn.data.sentence.conllu` reads the lines. A token of a tree is a surface token
of UD: German "zum" (two syntactic words) is one token, because it is one word in the
text. Its parent is the parent of its member nearest to the root.
"""

from __future__ import annotations

import dataclasses
import functools
import re
from collections.abc import Iterable, Sequence

from jaxsyn.data.sentence.align import shortened, visible
from jaxsyn.errors import InputError

NOT_PARSED = "# parsed = no"  # marks a sentence that is only split at spaces

# Columns of CoNLL-U.
ID, FORM, LEMMA, UPOS, XPOS, FEATS, HEAD, RELATION, DEPS, MISC = range(10)
COLUMNS = MISC + 1

NAME = r"sent_id\s*=\s*(\S+)"
_TEXT = r"text\s*=\s*(.*\S)"
# 8, the range 8-9, or the empty node 8.1
_ID = re.compile(r"(0|[1-9]\d{0,8})(?:-([1-9]\d{0,8})|\.[1-9]\d*)?", re.ASCII)
_HEAD = re.compile(r"\d{1,9}", re.ASCII)

Row = tuple[int, list[str]]  # line number in the file, from 1; the columns
# A surface token: its first and last word, form, whether a space follows.
_Token = tuple[int, int, str, bool]


@dataclasses.dataclass(frozen=True)
class Block:
  """Dependency tree of a CoNLL-U sentence, with one node per surface token.

  Attributes:
    file: File name for messages.
    line: Line number of the tree's first line, from 1.
    comments: Comment lines, including their "#".
    form_W: Form of each surface token.
    head_W: Parent of each token, from 0; a root is its own parent.
    relation_W: Dependency relation of each token.
    space_after_W: Whether a space follows the token in the text.
    line_W: CoNLL-U line of each token; of a multi-word token, the line of its
      member nearest to the root.
  """

  file: str
  line: int
  comments: tuple[str, ...]
  form_W: tuple[str, ...]
  head_W: tuple[int, ...]
  relation_W: tuple[str, ...]
  space_after_W: tuple[bool, ...]
  line_W: tuple[str, ...]

  @property
  def name(self) -> str:
    """Value of the sentence's `# sent_id` comment, or ""."""
    return comment_value(self.comments, NAME)

  @property
  def parsed(self) -> bool:
    """Whether the sentence has a tree, that is, no comment "parsed = no"."""
    return NOT_PARSED not in self.comments

  @functools.cached_property
  def visible(self) -> str:
    """All words joined, without whitespace and invisible characters."""
    return visible("".join(self.form_W))

  @property
  def comment_text(self) -> str:
    """Value of the sentence's `# text` comment, or ""."""
    return comment_value(self.comments, _TEXT)

  @property
  def text(self) -> str:
    """Text of the `# text` comment, or else the sentence's joined words."""
    blanks = (" " if space else "" for space in self.space_after_W)
    joined = "".join(map("".join, zip(self.form_W, blanks))).strip()
    return self.comment_text or joined


def comment_value(comments: Iterable[str], pattern: str) -> str:
  """Returns the value of the first comment that matches a pattern, or ""."""
  matches = (re.match(rf"#\s*{pattern}", comment) for comment in comments)
  return next((match[1] for match in matches if match), "")


def joined(
  file: str, line: int, comments: tuple[str, ...], rows: Sequence[Row]
) -> Block:
  """Converts a sentence's CoNLL-U rows to a tree over its surface tokens."""
  words, tokens = _checked(file, rows)
  heads = [0, *(int(columns[HEAD]) for _, columns in words)]  # by id
  depths = _depths(file, heads, words)
  token_of = [0]  # syntactic word, by id -> its surface token
  for token, (low, high, _, _) in enumerate(tokens):
    token_of += [token] * (high + 1 - low)
  head_W, row_W = [], []
  for token, (low, high, _, _) in enumerate(tokens):
    # The parent of the member nearest to the root is outside the token, and taking
    # it cannot close a cycle: the parent's token is nearer to the root still.
    top = low
    if low < high:
      top = min(range(low, high + 1), key=depths.__getitem__)
    head_W.append(token_of[heads[top]] if heads[top] else token)
    row_W.append(words[top - 1][1])
  return Block(
    file,
    line,
    comments,
    form_W=tuple(form for _, _, form, _ in tokens),
    head_W=tuple(head_W),
    relation_W=tuple(columns[RELATION] for columns in row_W),
    space_after_W=tuple(space for _, _, _, space in tokens),
    line_W=tuple(map("\t".join, row_W)),
  )


def _checked(file: str, rows: Sequence[Row]) -> tuple[list[Row], list[_Token]]:
  """Validates CoNLL-U rows; returns syntactic words and surface tokens.

  Raises:
    InputError: Ids, forms, heads or ranges are malformed.
  """
  words: list[Row] = []
  tokens: list[_Token] = []
  covered, last_range = 0, ""  # last word that has a token; message of a range
  for row in rows:
    line, columns = row
    name, form, head = columns[ID], columns[FORM], columns[HEAD]
    has_space = "SpaceAfter=No" not in columns[MISC]
    word, last = len(words) + 1, 0
    # Matching the pattern for each row took a tenth of the reading time.
    if name != str(word):
      id_, is_empty = _ID.fullmatch(name), "." in name
      if not id_ or int(id_[1]) != word - is_empty:
        raise InputError(
          f"{file}:{line}: the id is {shortened(name)}, expected {word};"
          " ids must count up from 1 in every sentence."
        )
      if is_empty:
        continue
      last = int(id_[2])
    if not form:
      raise InputError(f"{file}:{line}: the word has no form (second column).")
    if last:
      last_range = f"{file}:{line}: the multi-word token {name}"
      if word <= covered or last < word:
        raise InputError(
          f"{last_range} overlaps another or ends before it starts; ranges must"
          " be disjoint and ascending."
        )
      covered = last
      tokens.append((word, last, form, has_space))
      continue
    if not _HEAD.fullmatch(head):
      raise InputError(
        f"{file}:{line}: the head (seventh column) is {shortened(head)}, but"
        " must be a word's id or 0; was the text parsed?"
      )
    words.append(row)
    if word > covered:  # not a member of a multi-word token
      covered = word
      tokens.append((word, word, form, has_space))
  if not words:
    raise InputError(
      f"{file}:{rows[0][0]}: a sentence without words; remove the block."
    )
  if covered > len(words):
    raise InputError(
      f"{last_range} reaches beyond the last word, {len(words)}."
    )
  return words, tokens


def _depths(file: str, heads: list[int], words: Sequence[Row]) -> list[int]:
  """Returns the depth of each word (1 for roots) after a check for cycles."""
  for word, head in enumerate(heads):
    if head > len(words):
      raise InputError(
        f"{file}:{words[word - 1][0]}: the head of word {word} is {head}, but"
        f" the sentence has {len(words)} words."
      )
  if 0 not in heads[1:]:
    raise InputError(
      f"{file}:{words[0][0]}: the sentence has no root; one word must have"
      " head 0."
    )
  depths = [0] + [-1] * len(words)
  for word in range(1, len(heads)):
    path: list[int] = []
    ancestor = word
    while depths[ancestor] < 0:
      if len(path) == len(words):  # longer than any path without a cycle
        raise InputError(
          f"{file}:{words[ancestor - 1][0]}: the heads form a cycle through word"
          f" {ancestor}; each word must lead to a root."
        )
      path.append(ancestor)
      ancestor = heads[ancestor]
    for depth, visited in enumerate(reversed(path), depths[ancestor] + 1):
      depths[visited] = depth
  return depths
