"""UDPipe 1: a file, and nothing but the processor.

The default; `udpipe_models` knows models by language. UDPipe is imported where
it is used: who trains needs none.

Source: Straka and Straková 2017, "Tokenizing, POS Tagging, Lemmatizing and
Parsing UD 2.0 with UDPipe".
"""

from __future__ import annotations

import dataclasses
import functools
import os
import pathlib
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar

from jaxsyn.data.sentence.parser_identity import Identity
from jaxsyn.data.sentence.parsers import udpipe_models
from jaxsyn.data.sentence.parsers.parser import (
  LONGEST_LINE,
  Parser,
  ParserSpec,
  not_installed,
)
from jaxsyn.data.store import fetch
from jaxsyn.errors import InputError
from jaxsyn.options import ConfigPath, option
from jaxsyn.options.bounds import Range
from jaxsyn.storage import checksums, files


def load_udpipe() -> Any:
  """UDPipe's module; raises InputError where it is not installed."""
  try:
    from ufal import udpipe
  except ImportError:
    raise not_installed("UDPipe", "pip install ufal.udpipe") from None
  return udpipe


class UDPipe(Parser):
  """A UDPipe 1 model that cuts lines into words and parses them.

  Attributes:
    path: the model's file.
    beam: width of the parser's beam search; 0: the model's own. 1 is fastest.
  """

  def __init__(self, path: str | os.PathLike[str], beam: int = 0):
    """Loads a model.

    Args:
      path, beam: see above.

    Raises:
      InputError: no file, or no UDPipe model with a tokeniser and a parser.
    """
    udpipe = load_udpipe()
    self.path, self.beam = pathlib.Path(path), beam
    if not self.path.is_file():
      raise InputError(
        f"{path}: no such parser model; give a .udpipe file or a language code."
      )
    model = udpipe.Model.load(str(path))
    if model is None:
      raise InputError(
        f"{path}: not a (whole) UDPipe 1 model; download or copy it again."
      )
    self._udpipe = udpipe
    self._model = model
    self._options = f"beam_search={beam}" if beam else model.DEFAULT
    # A presegmented line is one sentence, if the model lets it be.
    self._tokenizer = model.newTokenizer(model.TOKENIZER_PRESEGMENTED)
    self._format = udpipe.OutputFormat.newConlluOutputFormat()
    probe = udpipe.Sentence()
    probe.addWord("a")
    if self._tokenizer is None or not model.parse(probe, self._options):
      raise InputError(
        f"{path}: the UDPipe model lacks a tokeniser or a parser; take one that"
        " has both."
      )

  @functools.cached_property
  def sha256(self) -> str:
    """Hash of the model's file, as manifests and checkpoints name it."""
    return checksums.sha256_of(self.path)

  @property
  def identity(self) -> Identity:
    beam = {"beam": str(self.beam)} if self.beam else {}
    return Identity("udpipe", self.path.name, self.sha256, options=beam)

  @property
  def key(self) -> str:
    return f"{self.sha256}:{self.beam}:{LONGEST_LINE}"

  def _texts(self, lines: Sequence[str]) -> list[str]:
    return [self._text(line) for line in lines]

  def _text(self, line: str) -> str:
    """What UDPipe says, as CoNLL-U."""
    blocks = []
    error = self._udpipe.ProcessingError()
    sentence = self._udpipe.Sentence()
    self._tokenizer.setText(line)
    while self._tokenizer.nextSentence(sentence, error):
      self._model.tag(sentence, self._model.DEFAULT)
      self._model.parse(sentence, self._options)
      blocks.append(self._format.writeSentence(sentence))
    return "".join(blocks)


@dataclasses.dataclass(frozen=True)
class UDPipeSpec(ParserSpec):
  """UDPipe 1: a model in a file, on the processor alone."""

  kind: ClassVar[str] = "udpipe"

  model: str = option(
    "",
    "UDPipe model: a file, or a name or language code known to "
    "spacy-udpipe, which is downloaded. Empty: the language of the side.",
  )
  beam: Annotated[int, Range(0, 100)] = option(
    0, "Beam size of UDPipe's parser; 0: the model's own. 1 is faster."
  )

  @property
  def named(self) -> bool:
    return bool(self.model)

  @property
  def file(self) -> pathlib.Path | None:
    return files.path_of(self.model)

  def resolve(
    self,
    at: ConfigPath,
    language: str,
    directory: str | pathlib.Path,
    downloads: Mapping[str, fetch.Download],
  ) -> UDPipeSpec:
    path = udpipe_models.find(
      self.model,
      language,
      directory,
      at=at,
      check=lambda path: UDPipe(fetch.local(path)),
      downloads=downloads,
    )
    return self.at(os.fspath(files.absolute(path)))

  def at(self, place: str) -> UDPipeSpec:
    return dataclasses.replace(self, model=place)

  def open(self, sha256: str = "") -> UDPipe:
    return UDPipe(fetch.local(self.model, sha256), self.beam)
