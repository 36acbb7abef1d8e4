"""UDPipe 1: raw lines to dependency trees.

`preprocess` stores `UDPipe.conllu` of every line; `jaxsyn.translate` calls the
same object on the user's text, so that both see the same words. A line that
the parser cannot handle is no error: it stays, cut at its blanks and flagged.
UDPipe is imported where it is used: who trains needs none.
"""

from __future__ import annotations

import functools
import os
from pathlib import Path
from typing import Any

from jaxsyn import checksums
from jaxsyn.data.sentence import conllu, conllu_text
from jaxsyn.data.sentence.align import visible
from jaxsyn.data.sentence.conllu_text import Parse
from jaxsyn.errors import InputError

# UDPipe's time grows faster than a line, and tree distances as its square: a
# line of more characters is no sentence, and is kept as one unparsed word.
LONGEST_LINE = 5000


def load_udpipe() -> Any:
  """UDPipe's module; raises InputError where it is not installed."""
  try:
    from ufal import udpipe
  except ImportError:
    raise InputError(
      "parsing needs UDPipe, which is not installed (pip install ufal.udpipe). "
      "Without it, give CoNLL-U, or use a system that translates without trees."
    ) from None
  return udpipe


class UDPipe:
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
    self.path, self.beam = Path(path), beam
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

  def __call__(self, line: str) -> Parse:
    """The parse of a line; `parsed` is False where there is none."""
    return self._parse(line, "")[0]

  def conllu(self, line: str, sentence_id: str) -> str:
    """The parse of a line as CoNLL-U, to be tied to it by `conllu_text.match`.

    One block, or several if UDPipe sees several sentences. A line that cannot
    be parsed gives a block marked `# parsed = no`, an empty one nothing.

    Args:
      line: raw text without its line end.
      sentence_id: goes into `# sent_id`.
    """
    return self._parse(line, sentence_id)[1]

  def _parse(self, line: str, sentence_id: str) -> tuple[Parse, str]:
    parse = None
    try:
      if len(line) <= LONGEST_LINE:
        text = self._text(line, sentence_id)
        parse = conllu_text.attach(
          conllu.blocks_of_text(text, str(self.path)), line
        )
    except InputError:  # characters lost or changed, or no tree at all
      pass
    if parse is None or not parse.parsed:
      parse = conllu_text.unparsed(line)
      if len(line) > LONGEST_LINE and parse.head_W:
        ends = parse.start_W[:1], parse.end_W[-1:]
        parse = conllu_text.Parse(line, *ends, (0,), ("root",), parsed=False)
      text = conllu_text.to_text(parse, sentence_id)
    return parse, text

  def _text(self, line: str, sentence_id: str) -> str:
    """What UDPipe says, as CoNLL-U."""
    if not visible(line):
      return ""
    blocks = []
    error = self._udpipe.ProcessingError()
    sentence = self._udpipe.Sentence()
    self._tokenizer.setText(line)
    while self._tokenizer.nextSentence(sentence, error):
      self._model.tag(sentence, self._model.DEFAULT)
      self._model.parse(sentence, self._options)
      # UDPipe opens a document at the first line that it sees: files would
      # then depend on which process parsed which lines.
      sentence.setNewDoc(False)
      sentence.setNewPar(False)
      sentence.setSentId(sentence_id)
      blocks.append(self._format.writeSentence(sentence))
    return "".join(blocks)
