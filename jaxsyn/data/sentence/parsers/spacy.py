"""spaCy: any pipeline that has a parser, a package or a folder.

A line is one sentence to it: words may start none but the first. Blanks that
spaCy counts as words are none here. Its label ROOT is UD's root; all others are
the pipeline's own, which of English or German are not UD's.

Source: Honnibal et al. 2020, "spaCy: Industrial-strength Natural Language
Processing in Python".
"""

from __future__ import annotations

import dataclasses
import functools
import importlib.metadata
import os
import pathlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar

from jaxsyn.data.sentence.align import visible
from jaxsyn.data.sentence.parser_identity import Identity, sha256_texts
from jaxsyn.data.sentence.parsers.parser import (
  Parser,
  ParserSpec,
  not_installed,
  on_one_line,
)
from jaxsyn.data.store.fetch import Download
from jaxsyn.errors import InputError
from jaxsyn.options import ConfigPath, option
from jaxsyn.storage import checksums, files

_BATCH = 64  # lines that a pipeline takes together
# What a pipeline may do beside parsing, and what would cut lines.
_LEFT_OUT = (
  *("ner", "entity_linker", "entity_ruler", "textcat", "textcat_multilabel"),
  *("senter", "sentencizer", "spancat"),
)


class SpacyParser(Parser):
  """A pipeline of spaCy.

  Attributes:
    nlp: the pipeline.
  """

  def __init__(self, model: str):
    """Loads a pipeline.

    Args:
      model: name of an installed package, or a folder.

    Raises:
      InputError: there is none, or it has no parser.
    """
    try:
      import spacy
    except ImportError:
      raise not_installed("spaCy", "pip install spacy") from None
    try:
      self.nlp: Any = spacy.load(model, exclude=_LEFT_OUT)
    except (OSError, ValueError, ImportError) as error:
      reason = " ".join(str(error).split())
      raise InputError(
        f"{model!r} is no pipeline of spaCy that can be loaded ({reason[:300]})."
        f" Install it (python -m spacy download {model or 'NAME'}), or name the"
        " folder of one."
      ) from None
    self._name = model
    if "parser" not in self.nlp.pipe_names:
      raise InputError(
        f"the pipeline {model} of spaCy has no parser, but"
        f" {', '.join(self.nlp.pipe_names) or 'nothing'}; name one with a parser."
      )

  @functools.cached_property
  def _identity(self) -> Identity:
    meta = self.nlp.meta
    name = f"{meta.get('lang', '')}_{meta.get('name', '')}".strip("_")
    return Identity(
      SpacySpec.kind,
      name or pathlib.Path(self._name).name,
      sha256_of_folder(pathlib.Path(self.nlp.path)),
      f"{meta.get('version', '')}, spaCy {importlib.metadata.version('spacy')}",
    )

  @property
  def identity(self) -> Identity:
    return self._identity

  def _texts(self, lines: Sequence[str]) -> list[str]:
    return [
      self._text(doc)
      for doc in self.nlp.pipe(self._uncut_texts(lines), batch_size=_BATCH)
    ]

  def _uncut_texts(self, lines: Sequence[str]) -> Iterator[Any]:
    """Lines cut into words, each told to be one sentence."""
    for line in lines:
      doc = self.nlp.make_doc(on_one_line(line))
      for word in doc:
        word.is_sent_start = word.i == 0
      yield doc

  def _text(self, doc: Any) -> str:
    word_number: dict[int, int] = {}  # of the words that can be seen, from 1
    for word in doc:
      if visible(word.text):
        word_number[word.i] = len(word_number) + 1
    rows = []
    for word in doc:
      if word.i not in word_number:
        continue
      head = word.head
      while head.i not in word_number and head.head.i != head.i:
        head = head.head  # what depends on a blank goes where that does
      root = head.i == word.i or head.i not in word_number
      columns = (
        *(word_number[word.i], word.text, word.lemma_, word.pos_, word.tag_),
        *(word.morph, 0 if root else word_number[head.i]),
        *("root" if root else word.dep_, "", ""),
      )
      rows.append("\t".join(str(one) or "_" for one in columns))
    return "\n".join([f"# text = {doc.text}", *rows]) + "\n\n" if rows else ""


@dataclasses.dataclass(frozen=True)
class SpacySpec(ParserSpec):
  """spaCy: a pipeline that has a parser."""

  kind: ClassVar[str] = "spacy"

  model: str = option(
    "",
    "spaCy pipeline: the name of an installed one, such as "
    '"en_core_web_sm", or its directory.',
  )

  def resolve(
    self,
    at: ConfigPath,
    language: str,
    directory: str | pathlib.Path,
    downloads: Mapping[str, Download],
  ) -> SpacySpec:
    if not self.model:
      raise (at / "model").error(
        ' is empty: name a pipeline of spaCy with a parser, as "en_core_web_sm".'
      )
    if os.path.isdir(self.model):
      return self.at(os.path.abspath(self.model))  # workers may be elsewhere
    return self

  def at(self, place: str) -> SpacySpec:
    return dataclasses.replace(self, model=place)

  def open(self, sha256: str = "") -> SpacyParser:
    return SpacyParser(self.model)


def sha256_of_folder(folder: pathlib.Path) -> str:
  """One hash of all files in a folder and of their names."""
  names = sorted(
    path.relative_to(folder).as_posix()
    for path in folder.rglob("*")
    if path.is_file() and "__pycache__" not in path.parts
  )
  return sha256_texts(
    text
    for name in names
    for text in (name, checksums.sha256_of(files.path_of(folder / name)))
  )
