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
from typing import Any, ClassVar, Self

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
    paths: list[str] = []
    for name, value in self.nlp.config.items():
      if name.endswith("_path"):
        paths += value if isinstance(value, (list, tuple)) else [value]
    model_files = sorted(filter(os.path.isfile, filter(None, paths)))
    self.identity = Identity(
      spec.kind,
      f"{spec.model} {spec.package}",
      checksums.sha256_texts(map(checksums.sha256_of, model_files)),
      f"Stanza {stanza.__version__}",
    )

  def _texts(self, lines: Sequence[str]) -> list[str]:
    # Stanza splits at empty lines, so each text is put on one line.
    documents = [self._document([], text=on_one_line(line)) for line in lines]
    return [_text(f"{document:C}") for document in self.nlp(documents) or []]


def _text(output: str) -> str:
  """Removes sentences without words and extra blank lines from CoNLL-U text."""
  blocks = [block.strip("\r\n") for block in output.split("\n\n")]
  return "".join(
    f"{block}\n\n"
    for block in blocks
    if block and not block.rpartition("\n")[2].startswith("#")
  )


@dataclasses.dataclass(frozen=True)
class StanzaSpec(ParserSpec):
  """Stanza parser: a neural pipeline that runs on the CPU."""

  kind: ClassVar[str] = "stanza"
  location: ClassVar[str] = "folder"

  model: str = option(
    "", "Stanza's language code. Empty: the language of the side."
  )
  package: str = option(
    "default", 'Stanza package of the language: a treebank, such as "ewt".'
  )
  folder: str = option(
    "",
    "Directory of Stanza's models; empty: Stanza's default directory "
    "($STANZA_RESOURCES_DIR).",
  )

  def resolve(
    self,
    at: ConfigPath,
    language: str,
    directory: str | pathlib.Path,
    downloads: Mapping[str, Download],
  ) -> Self:
    folder = os.path.abspath(self.folder) if self.folder else ""
    return dataclasses.replace(
      self, model=self.model or language, folder=folder
    )

  def with_identity(self, identity: Identity) -> Self:
    return dataclasses.replace(self, model=identity.name.split()[0])

  def open(self, sha256: str = "") -> StanzaParser:
    return StanzaParser(self)
