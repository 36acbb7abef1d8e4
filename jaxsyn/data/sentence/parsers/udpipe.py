"""Dependency parsing with UDPipe 1, the default parser, on the CPU.

UDPipe is imported only where it is used, since training does not need it.

Source: Straka and Straková 2017, "Tokenizing, POS Tagging, Lemmatizing and
Parsing UD 2.0 with UDPipe".
"""

from __future__ import annotations

import dataclasses
import os
import pathlib
import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Self

from jaxsyn.data.sentence.parsers.parser import (
  LONGEST_LINE,
  Identity,
  Parser,
  ParserSpec,
  not_installed,
)
from jaxsyn.data.store import fetch
from jaxsyn.errors import InputError, did_you_mean
from jaxsyn.options import ConfigPath, option
from jaxsyn.storage import checksums, files

MAX_BYTES = 1 << 30  # of a model; the largest have 0.1 GB


def load_udpipe() -> Any:
  """Imports UDPipe and returns its module.

  Raises:
    InputError: UDPipe is not installed.
  """
  try:
    from ufal import udpipe
  except ImportError:
    raise not_installed("UDPipe", "pip install ufal.udpipe") from None
  return udpipe


def _can_load(path: pathlib.Path) -> bool:
  """Tests in another process whether UDPipe can load a model file.

  Some corrupt files make UDPipe throw a C++ exception, which would end this process.
  """
  program = (
    "import sys; from ufal.udpipe import Model;"
    " sys.exit(Model.load(sys.argv[1]) is None)"
  )
  done = subprocess.run(
    [sys.executable, "-c", program, str(path)], stderr=subprocess.DEVNULL
  )
  return done.returncode == 0


class UDPipe(Parser):
  """Parser that runs a UDPipe 1 model, which also splits lines into words.

  Attributes:
    path: Model file.
  """

  def __init__(self, path: str | os.PathLike[str], sha256: str = ""):
    """Loads a UDPipe model from a file.

    Args:
      path: Model file, local or remote.
      sha256: SHA-256 of the model, if it is known to be intact.

    Raises:
      InputError: The file is missing, or is not a UDPipe model with a tokenizer and
        a parser.
    """
    udpipe = load_udpipe()
    self.path = files.path_of(path)
    if not files.is_file(self.path):
      raise InputError(
        f"{path}: no such parser model; give a .udpipe file or a language code."
      )
    model = None
    with files.local_file(self.path) as local:
      actual = checksums.sha256_of(local)
      if sha256 == actual or _can_load(local):
        model = udpipe.Model.load(str(local))
    self.identity = Identity(UDPipeSpec.kind, self.path.name, actual)
    self._key = f"{actual}:{LONGEST_LINE}"
    if model is None:
      raise InputError(
        f"{path}: not a (complete) UDPipe 1 model; download or copy it again."
      )
    self._udpipe = udpipe
    self._model = model
    # A presegmented line is one sentence, if the model supports it.
    self._tokenizer = model.newTokenizer(model.TOKENIZER_PRESEGMENTED)
    self._format = udpipe.OutputFormat.newConlluOutputFormat()
    probe = udpipe.Sentence()
    probe.addWord("a")
    if self._tokenizer is None or not model.parse(probe, model.DEFAULT):
      raise InputError(
        f"{path}: the UDPipe model lacks a tokenizer or a parser; use one that"
        " has both."
      )

  @property
  def key(self) -> str:
    return self._key

  def _texts(self, lines: Sequence[str]) -> list[str]:
    return [self._text(line) for line in lines]

  def _text(self, line: str) -> str:
    blocks = []
    error = self._udpipe.ProcessingError()
    sentence = self._udpipe.Sentence()
    self._tokenizer.setText(line)
    while self._tokenizer.nextSentence(sentence, error):
      self._model.tag(sentence, self._model.DEFAULT)
      self._model.parse(sentence, self._model.DEFAULT)
      blocks.append(self._format.writeSentence(sentence))
    return "".join(blocks)


@dataclasses.dataclass(frozen=True)
class UDPipeSpec(ParserSpec):
  """UDPipe 1 parser: a model in one file, which runs on the CPU."""

  kind: ClassVar[str] = "udpipe"

  model: str = option(
    "",
    "UDPipe model: a file, or a model name or language code known to "
    "spacy-udpipe, which is then downloaded. Empty: the language of the side.",
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
  ) -> Self:
    """Returns the spec with a model file, which is downloaded if it is missing.

    Downloads may have another address or the SHA-256 of a spacy-udpipe model.
    Without a SHA-256, that of the first download is recorded
    (`jaxsyn.data.store.fetch`) and required from then on.
    """
    if self.model and files.is_file(self.model):
      return self.at(os.fspath(files.absolute(self.model)))
    name = file = self.model or language
    if name not in downloads:
      file, download = _find(name, bool(self.model), at, downloads)
      downloads = {file: download, **downloads}
    path = files.path_of(directory) / file
    try:
      fetch.get(path, downloads[file], UDPipe)
    except InputError as error:
      raise InputError(
        f"parser model {name!r}: download of {file} from {downloads[file].url}"
        f" failed ({error}). Put the file into {path.parent} by hand, or name"
        f" another .udpipe file in {at}.model. Systems without trees, as"
        " transformer, need none:"
        ' --config.prepare.parse.sides="()" prepares for them alone.'
      ) from None
    return self.at(os.fspath(files.absolute(path)))

  def open(self, sha256: str = "") -> UDPipe:
    return UDPipe(self.model, sha256)


def _find(
  name: str,
  is_model: bool,
  at: ConfigPath,
  downloads: Mapping[str, fetch.Download],
) -> tuple[str, fetch.Download]:
  """Returns the file name and `Download` of a spacy-udpipe model like "en"."""
  from spacy_udpipe import utils as spacy_udpipe

  if name in spacy_udpipe.LANGUAGES:
    file = str(spacy_udpipe.LANGUAGES[name])
    url = f"{spacy_udpipe.BASE_URL}/{file}"
    return file, fetch.Download(url, max_bytes=MAX_BYTES)
  message = (
    f"the language {name!r} (config.data.*_language) has no parser model"
  )
  if is_model:
    message = f"parser model {name!r} is neither a file nor a name"
  known = [*spacy_udpipe.LANGUAGES, *downloads]
  guess = "" if "." in name else f" {did_you_mean(name, known)}"
  raise InputError(
    f"{message} of spacy-udpipe. Name a UDPipe file or one of its models with "
    f"{at}.model, or another parser with {at.above}.parser, or prepare "
    f'without trees: --config.prepare.parse.sides="()".{guess}'
  )
