"""Dependency parsing with spaCy pipelines, from a package or a folder.

Each line is parsed as one sentence. Whitespace tokens of spaCy are removed. The
label ROOT becomes UD's "root"; all other labels are the pipeline's, which for English
and German are not those of UD.

Source: Honnibal et al. 2020, "spaCy: Industrial-strength Natural Language
Processing in Python".
"""

from __future__ import annotations

import dataclasses
import importlib.metadata
import itertools
import os
import pathlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar, Self

from jaxsyn.data.sentence.align import visible
from jaxsyn.data.sentence.parsers.parser import (
  Identity,
  Parser,
  ParserSpec,
  not_installed,
  on_one_line,
)
from jaxsyn.data.store.fetch import Download
from jaxsyn.errors import InputError
from jaxsyn.options import ConfigPath, option
from jaxsyn.storage import checksums

_BATCH = 64  # lines per call of the pipeline
# Components that parsing does not need, and those that would split lines.
_EXCLUDED = """
ner entity_linker entity_ruler textcat textcat_multilabel senter sentencizer spancat
"""


class SpacyParser(Parser):
  """Parser that runs a spaCy pipeline.

  Attributes:
    nlp: Loaded pipeline.
  """

  def __init__(self, model: str):
    """Loads a spaCy pipeline.

    Args:
      model: Name of an installed pipeline, or its folder.

    Raises:
      InputError: The pipeline is missing or has no parser.
    """
    try:
      import spacy
    except ImportError:
      raise not_installed("spaCy", "pip install spacy") from None
    try:
      self.nlp: Any = spacy.load(model, exclude=_EXCLUDED.split())
    except (OSError, ValueError, ImportError) as error:
      reason = " ".join(str(error).split())
      raise InputError(
        f"{model!r} is not a spaCy pipeline that can be loaded ({reason[:300]})."
        f" Install it (python -m spacy download {model or 'NAME'}), or name the"
        " folder of a pipeline."
      ) from None
    if "parser" not in self.nlp.pipe_names:
      raise InputError(
        f"the spaCy pipeline {model!r} has no parser, but"
        f" {', '.join(self.nlp.pipe_names) or 'nothing'}; name one with a parser."
      )
    meta, folder = self.nlp.meta, pathlib.Path(self.nlp.path)
    name = f"{meta.get('lang', '')}_{meta.get('name', '')}".strip("_")
    version = importlib.metadata.version("spacy")
    self.identity = Identity(
      SpacySpec.kind,
      name or folder.name,
      _sha256_of_folder(folder),
      f"{meta.get('version', '')}, spaCy {version}",
    )

  def _texts(self, lines: Sequence[str]) -> list[str]:
    documents = self._documents(lines)
    return [_text(doc) for doc in self.nlp.pipe(documents, batch_size=_BATCH)]

  def _documents(self, lines: Sequence[str]) -> Iterator[Any]:
    """Yields each line as a tokenized spaCy document of one sentence."""
    for line in lines:
      doc = self.nlp.make_doc(on_one_line(line))
      for word in doc:
        word.is_sent_start = word.i == 0
      yield doc


def _text(doc: Any) -> str:
  """Returns the CoNLL-U text of a document, without whitespace tokens."""
  words = [word for word in doc if visible(word.text)]
  ids = {word.i: id_ for id_, word in enumerate(words, 1)}
  rows = []
  for word in words:
    head = word.head
    while head.i not in ids and head.head.i != head.i:
      head = head.head  # a whitespace token's dependents move to its head
    is_root = head.i == word.i or head.i not in ids
    parent = 0 if is_root else ids[head.i]
    relation = "root" if is_root else word.dep_
    columns = [ids[word.i], word.text, word.lemma_, word.pos_, word.tag_]
    columns += [word.morph, parent, relation, "", ""]
    rows.append("\t".join(str(column) or "_" for column in columns))
  return "\n".join([f"# text = {doc.text}", *rows]) + "\n\n" if rows else ""


@dataclasses.dataclass(frozen=True)
class SpacySpec(ParserSpec):
  """spaCy parser: any spaCy pipeline that includes a dependency parser."""

  kind: ClassVar[str] = "spacy"

  model: str = option(
    "",
    "spaCy pipeline: the name of an installed pipeline, such as "
    '"en_core_web_sm", or the directory of a pipeline.',
  )

  def resolve(
    self,
    at: ConfigPath,
    language: str,
    directory: str | pathlib.Path,
    downloads: Mapping[str, Download],
  ) -> Self:
    if not self.model:
      raise (at / "model").error(
        ' is empty: name a spaCy pipeline with a parser, such as "en_core_web_sm".'
      )
    # Worker processes may have another current directory.
    is_folder = os.path.isdir(self.model)
    return self.at(os.path.abspath(self.model)) if is_folder else self

  def open(self, sha256: str = "") -> SpacyParser:
    return SpacyParser(self.model)


def _sha256_of_folder(folder: pathlib.Path) -> str:
  """Returns one hash of the names and contents of all files in a folder."""
  texts: dict[str, str] = {}
  for path in folder.rglob("*"):
    if path.is_file() and "__pycache__" not in path.parts:
      name = path.relative_to(folder).as_posix()
      texts[name] = checksums.sha256_of(path)
  return checksums.sha256_texts(
    itertools.chain.from_iterable(sorted(texts.items()))
  )
