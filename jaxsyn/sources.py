"""Sentences to be translated, made into what a run's model reads.

As `preprocess` made those that it was trained on: the same NFC, subwords, trees
and tags. Before this file: `jaxsyn.data.sentence`. After it: `session`.
"""

from __future__ import annotations

import dataclasses
import os

import numpy as np

from jaxsyn.data.sentence import text
from jaxsyn.data.sentence.conllu import Parse
from jaxsyn.data.sentence.controls import TREES
from jaxsyn.data.sentence.example import encode
from jaxsyn.data.sentence.parser import UDPipe
from jaxsyn.data.sentence.stream import Source
from jaxsyn.data.sentence.vocabulary import Pieces
from jaxsyn.data.store import manifests
from jaxsyn.errors import InputError
from jaxsyn.plan import Plan
from jaxsyn.workdir import Run


@dataclasses.dataclass(frozen=True)
class Fitted:
  """A source, and as much of it as is read.

  Attributes:
    text: all of it, as the training text was written.
    pieces: subwords of all of it.
    read: the parse, or the raw line; where it is too long, its beginning.
    is_cut: whether it is too long.
  """

  text: str
  pieces: Pieces
  read: Source
  is_cut: bool


class SourceReader:
  """Makes examples of raw lines and parses.

  Attributes:
    longest: subwords that are read of a source, the end sign included.
    features: of the source side that the model reads.
    vocabularies: of source and target.
  """

  def __init__(
    self,
    run: Run,
    plan: Plan,
    *,
    longest: int,
    parser: str | os.PathLike[str] = "",
  ):
    """Opens the vocabularies; the parser when it is needed.

    Args:
      run: where they are.
      plan: of the run.
      longest: see the attribute.
      parser: file of the parser, if it is not in the folder.

    Raises:
      InputError: a vocabulary is not the run's, or the data lacks a feature.
    """
    self._run, self._plan, self.longest = run, plan, longest
    features = manifests.features_for(run.manifest, plan.translation_features)
    self.features = tuple(f for f in features if f.startswith("source"))
    self.vocabularies = run.vocabulary("source"), run.vocabulary("target")
    self._encoding = manifests.encoding(run.manifest)
    self._nfc = run.manifest["options"]["clean"]["nfc"]
    self._parser_file = parser or manifests.parser_file(
      run.workdir, run.manifest, "source"
    )
    self._parser: UDPipe | None = None

  @property
  def tree(self) -> str:
    """Which tree the model reads: as config.data.tree says, or "none"."""
    tree = self._run.config.data.tree
    return TREES.name_of(tree) if len(self.features) > 1 else "none"

  def fit(self, source: Source) -> Fitted:
    """What is read of a source.

    Args:
      source: a raw line, or its parse.
    """
    if isinstance(source, str) and self._nfc:
      source = text.normal(source)
    whole = source if isinstance(source, str) else source.text
    pieces = self.vocabularies[0].encode(whole)
    is_cut = len(pieces.id) >= self.longest
    if is_cut:  # also a parse: half a sentence has a tree of its own
      source = whole[: pieces.end[self.longest - 2]]
    return Fitted(whole, pieces, source, is_cut)

  def parse(self, line: str) -> Parse:
    """The tree of a raw line, by the run's own parser.

    Raises:
      InputError: there is none, or another than the run's.
    """
    if self._parser is None:
      if not self._parser_file:
        raise InputError(
          f"{self._run.workdir} has no parser: its trees came as CoNLL-U, or it "
          "has none. Give CoNLL-U (--conllu), or name a UDPipe model "
          "(--parser)."
        )
      beam = self._run.config.prepare.parse.beam
      self._parser = UDPipe(self._parser_file, beam)
      manifests.check_parser(self._run.manifest, self._parser)
    return self._parser(line)

  def example(self, source: Source) -> dict[str, np.ndarray]:
    """The arrays that the model reads of a source.

    Args:
      source: of `Fitted.read`.
    """
    if self.tree == "none":
      source = source if isinstance(source, str) else source.text
    elif isinstance(source, str):
      source = self.parse(source)
    return encode(
      source,
      None,
      vocabularies=self.vocabularies,
      **self._encoding,
      tree=self._run.config.data.tree,
      seed=self._run.config.seed,
      tag=self._plan.tag,
    )
