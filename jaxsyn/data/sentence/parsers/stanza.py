"""Dependency parsing with Stanza, neural pipelines for about 70 languages.

`stanza.download` downloads the models. Stanza runs on the CPU with one thread in each
process; to parse on a GPU, do so beforehand and give the CoNLL-U.

Source: Qi et al. 2020, "Stanza: A Python Natural Language Processing Toolkit for
Many Human Languages".
"""

from __future__ import annotations

import dataclasses
import os
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from jaxsyn.data.sentence.parsers.parser import (
  Identity,
  Parser,
  ParserSpec,
  not_installed,
  on_one_line,
  sentences,
  sha256_texts,
)
from jaxsyn.data.store.fetch import Download
from jaxsyn.errors import InputError
from jaxsyn.options import ConfigPath, option
from jaxsyn.storage import checksums

# Stanza adds `mwt` for languages with multi-word tokens; the parser reads tags and
# lemmas.
_PROCESSORS = "tokenize,pos,lemma,depparse"


class StanzaParser(Parser):
  """Parser that runs a Stanza pipeline.

  Attributes:
    nlp: Loaded pipeline.
  """

  def __init__(self, spec: StanzaSpec):
    """Loads the Stanza pipeline that a config section selects.

    Raises:
      InputError: Stanza is not installed, or the models are missing.
    """
    try:
      import stanza
      import torch
    except ImportError:
      raise not_installed("Stanza", "pip install -e '.[stanza]'") from None
    # Threads do not survive a fork.
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
    except Exception as error:  # many types, some defined by Stanza
      raise InputError(
        f"Stanza's models of {spec.model!r}, {spec.package!r}, cannot be loaded"
        f" ({' '.join(str(error).split())[:300]}). Download them: python -c"
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
    # Stanza splits at empty lines; there are none in one line.
    documents = [self._document([], text=on_one_line(line)) for line in lines]
    return [
      "".join(sentences(f"{document:C}\n\n"))
      for document in self.nlp(documents) or []
    ]


@dataclasses.dataclass(frozen=True)
class StanzaSpec(ParserSpec):
  """Stanza parser: a neural pipeline that runs on the CPU."""

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
