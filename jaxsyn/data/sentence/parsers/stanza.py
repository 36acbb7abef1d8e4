"""Stanza: Stanford's neural pipelines, one for each of some 70 languages.

`stanza.download` downloads its models. Here Stanza runs on the CPU, with one
thread in each process; text that was parsed on a GPU is read as CoNLL-U.

Source: Qi et al. 2020, "Stanza: A Python Natural Language Processing Toolkit for
Many Human Languages".
"""

from __future__ import annotations

import dataclasses
import os
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from jaxsyn.data.sentence.parser_identity import Identity, sha256_texts
from jaxsyn.data.sentence.parsers.parser import (
  Parser,
  ParserSpec,
  not_installed,
  on_one_line,
  sentences,
)
from jaxsyn.data.store.fetch import Download
from jaxsyn.errors import InputError
from jaxsyn.options import ConfigPath, option
from jaxsyn.storage import checksums

# `mwt` comes where a language has such words; the parser wants tags and lemmas.
_PROCESSORS = "tokenize,pos,lemma,depparse"


class StanzaParser(Parser):
  """A pipeline of Stanza.

  Attributes:
    nlp: the pipeline.
  """

  def __init__(self, spec: StanzaSpec):
    """Loads a pipeline.

    Raises:
      InputError: Stanza is not installed, or has no such models.
    """
    try:
      import stanza
      import torch
    except ImportError:
      raise not_installed("Stanza", "pip install -e '.[stanza]'") from None
    # Threads would not come along where a process is forked.
    torch.set_num_threads(1)
    folder = {"dir": spec.folder} if spec.folder else {}
    try:
      self.nlp: Any = stanza.Pipeline(
        spec.model,
        package=spec.package,
        processors=_PROCESSORS,
        tokenize_no_ssplit=True,
        download_method=None,
        use_gpu=False,
        logging_level="ERROR",
        **folder,
      )
    except Exception as error:  # of many kinds, some of them Stanza's own
      raise InputError(
        f"Stanza has no models of {spec.model!r}, {spec.package!r}, here"
        f" ({' '.join(str(error).split())[:300]}). Fetch them: python -c"
        f" \"import stanza; stanza.download('{spec.model}')\""
      ) from None
    self._document = stanza.Document
    files = sorted(
      path
      for name, value in self.nlp.config.items()
      if name.endswith("_path")
      for path in (value if isinstance(value, (list, tuple)) else [value])
      if path and os.path.isfile(path)
    )
    self._identity = Identity(
      spec.kind,
      f"{spec.model} {spec.package}",
      sha256_texts(map(checksums.sha256_of, files)),
      f"Stanza {stanza.__version__}",
    )

  @property
  def identity(self) -> Identity:
    return self._identity

  def _texts(self, lines: Sequence[str]) -> list[str]:
    # Lines among blanks have an empty one nowhere, where Stanza would cut.
    documents = [self._document([], text=on_one_line(line)) for line in lines]
    return [
      "".join(sentences(f"{document:C}\n\n"))
      for document in self.nlp(documents) or []
    ]


@dataclasses.dataclass(frozen=True)
class StanzaSpec(ParserSpec):
  """Stanza: a neural pipeline, on the processor."""

  kind: ClassVar[str] = "stanza"

  model: str = option(
    "", "Stanza's language code. Empty: the language of the side."
  )
  package: str = option(
    "default", 'Stanza package of the language: a treebank, such as "ewt".'
  )
  folder: str = option(
    "",
    "Directory of Stanza's models; empty: Stanza's own "
    "($STANZA_RESOURCES_DIR).",
  )

  def resolve(
    self,
    at: ConfigPath,
    language: str,
    directory: str | pathlib.Path,
    downloads: Mapping[str, Download],
  ) -> StanzaSpec:
    folder = os.path.abspath(self.folder) if self.folder else ""
    return dataclasses.replace(
      self, model=self.model or language, folder=folder
    )

  def with_identity(self, identity: Identity) -> StanzaSpec:
    return dataclasses.replace(self, model=identity.model.split()[0])

  def at(self, place: str) -> StanzaSpec:
    return dataclasses.replace(self, folder=place)

  def open(self, sha256: str = "") -> StanzaParser:
    return StanzaParser(self)
