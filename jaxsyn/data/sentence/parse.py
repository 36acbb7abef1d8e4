"""The parse of a sentence, tied to the characters of its line."""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass(frozen=True)
class Parse:
  """The words, heads and relations of a raw line.

  Attributes:
    text: The unchanged line.
    start_W: Offset in `text` of each word's first character.
    end_W: Offset after each word's last character.
    head_W: Parent of each word, from 0; a root is its own parent.
    relation_W: Dependency relation of each word.
    parsed: False if there is no tree: the words are then the tokens between
      blanks, each its own root.
    line_W: Row of each word in CoNLL-U; empty without a tree.
  """

  text: str
  start_W: tuple[int, ...]
  end_W: tuple[int, ...]
  head_W: tuple[int, ...]
  relation_W: tuple[str, ...]
  parsed: bool = True
  # Not split into columns: Python's garbage collector took longer to traverse
  # these lists than reading them takes.
  line_W: tuple[str, ...] = dataclasses.field(default=(), compare=False)

  @property
  def row_W(self) -> tuple[list[str], ...]:
    """The ten CoNLL-U columns of each word; empty without a tree."""
    return tuple(line.split("\t") for line in self.line_W)
