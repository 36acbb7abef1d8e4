"""Sentences to be translated, made into what a run's model reads.

As `preprocess` made those that it was trained on: the same NFC, subwords, trees
and tags. Many at a time are read by processes beside this one, which load no
JAX. Before this file: `jaxsyn.data.sentence`, `jaxsyn.workers`. After
it: `jaxsyn.session`.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any

import numpy as np

from jaxsyn.data.sentence import text
from jaxsyn.data.sentence.conllu import Parse
from jaxsyn.data.sentence.controls import TREES
from jaxsyn.data.sentence.example import encode_all, tagged
from jaxsyn.data.sentence.parsers import Parser, recorded
from jaxsyn.data.sentence.stream import Source
from jaxsyn.data.sentence.vocabulary import Pieces
from jaxsyn.data.store import manifests
from jaxsyn.errors import InputError
from jaxsyn.workers import Workers, cores

if TYPE_CHECKING:  # they load JAX, or come after
  from jaxsyn.plan import Plan
  from jaxsyn.trained.ensemble_sources import EnsembleReader
  from jaxsyn.trained.workdir import Run

# Lines that are parsed here: to start the processes takes as long.
FEW = 200
_BLOCK = 16  # lines that a process is given at a time
_DIED = (
  "a parser process died, perhaps for want of memory: end other programs, or "
  "parse beforehand and translate CoNLL-U (--conllu)."
)


Example = dict[str, np.ndarray]


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
    longest: subwords that are read of a source, EOS included.
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
      parser: where the parser is, if not in the folder: see `recorded.spec`.

    Raises:
      InputError: a vocabulary is not the run's, or the data lacks a feature.
    """
    self.longest = longest
    features = manifests.features_for(run.manifest, plan.translation_features)
    self.features = tuple(f for f in features if f.startswith("source"))
    self.vocabularies = run.vocabulary("source"), run.vocabulary("target")
    self._folder, self._manifest = run.workdir, run.manifest
    self._encoding = {
      **manifests.encoding(run.manifest),
      "vocabularies": self.vocabularies,
      "tree": run.config.data.tree,
      "seed": run.config.seed,
    }
    self._tag = plan.tag
    self._nfc = run.manifest["options"]["clean"]["nfc"]
    self._spec = recorded.spec(
      run.workdir, run.manifest, "source", os.fspath(parser)
    )
    self._parser: Parser | None = None

  def __getstate__(self) -> dict[str, Any]:
    return {**self.__dict__, "_parser": None}  # which another process opens

  @property
  def tree(self) -> str:
    """Name of the tree that the model reads; "none" where it reads none.

    "parsed" where config.data.tree does not replace the parser's tree.
    """
    tree = self._encoding["tree"]
    if len(self.features) == 1:
      return "none"
    return TREES.name_of(tree) if tree.replaces else "parsed"

  def fit(self, source: Source) -> Fitted:
    """What is read of a source.

    Args:
      source: a raw line, or its parse.
    """
    if isinstance(source, str) and self._nfc:
      source = text.normal(source)
    full_text = source if isinstance(source, str) else source.text
    pieces = self.vocabularies[0].encode(full_text)
    is_cut = len(pieces.id) >= self.longest
    if is_cut:  # also a parse: half a sentence has a tree of its own
      source = full_text[: pieces.end[self.longest - 2]]
    return Fitted(full_text, pieces, source, is_cut)

  @property
  def has_parser(self) -> bool:
    """Whether the run has a parser, which may not open."""
    return self._spec is not None

  def parse(self, line: str) -> Parse:
    """The tree of a raw line, by the run's own parser.

    Raises:
      InputError: there is none, or another than the run's.
    """
    return self.parser(line)

  @property
  def parser(self) -> Parser:
    """The run's own parser, opened when it is first needed; see `parse`."""
    if self._parser is None:
      if not self._spec:
        raise InputError(
          f"{self._folder} has no parser: its trees came as CoNLL-U, or it "
          "has none. Give CoNLL-U (--conllu), or name a UDPipe model "
          "(--parser)."
        )
      self._parser = recorded.open_recorded(
        self._spec, self._manifest, "source"
      )
    return self._parser

  def example(self, source: Source) -> Example:
    """The arrays that the model reads of a source.

    Args:
      source: of `Fitted.read`.
    """
    return self._examples([source])[0]

  def _examples(self, sources: Sequence[Source]) -> list[Example]:
    source_list: list[Source] = [*sources]
    raw = {
      i: line for i, line in enumerate(source_list) if isinstance(line, str)
    }
    if self.tree == "none":
      source_list = [
        one if isinstance(one, str) else one.text for one in source_list
      ]
    elif raw:
      for i, parse in zip(raw, self.parser.parses([*raw.values()])):
        source_list[i] = parse
    if not source_list:
      return []
    numbers = [0] * len(source_list)
    examples = encode_all(
      source_list, None, lines=numbers, **self._encoding
    ).examples()
    if self._tag is None:
      return examples
    return [tagged(example, self._tag) for example in examples]

  def read(self, source: Source) -> tuple[Example, bool]:
    """The arrays of a source, and whether it was too long: `fit`, `example`."""
    fitted = self.fit(source)
    return self.example(fitted.read), fitted.is_cut

  def read_all(self, sources: Iterable[Source]) -> list[tuple[Example, bool]]:
    """`read` of each, together: a quarter of the time but for the parser's."""
    fitted = [self.fit(source) for source in sources]
    examples = self._examples([one.read for one in fitted])
    return [*zip(examples, (one.is_cut for one in fitted))]

  def opened(self) -> SourceReader:
    """The same reader; its parser is open already."""
    self._parser = self.parser
    return self

  def tree_of(self, line: str) -> Parse:
    """`parse` of a line as training text was written: what is read of it."""
    return self.parse(self.fit(line).text)

  def open_parser(self) -> None:
    """Opens it, if only to see that it can be; raises as `parse`."""
    self.opened()


class ParallelReader:
  """Reads blocks of sources, long ones while other work is done.

  Attributes:
    reader: as given.
  """

  def __init__(self, reader: SourceReader | EnsembleReader):
    self.reader = reader
    self._workers: Workers[Any] | None = None

  def begin(
    self, sources: Sequence[Source]
  ) -> Callable[[], list[tuple[Any, bool]]]:
    """Starts to read a block.

    Of more than FEW lines the parsing is done by processes, one a core, that
    stay until `close`; all else is done here, before this returns.

    Returns:
      a function that waits for what `SourceReader.read` gives of each, in order.

    Raises:
      InputError: there is no parser, or another than the run's; or, by the
        function, a process was killed.
    """
    lines = sum(isinstance(source, str) for source in sources)
    if self.reader.tree == "none" or lines <= FEW:
      read = self.reader.read_all(sources)
      return lambda: read
    if self._workers is None:
      make = self.reader.opened
      self._workers = Workers(make, cores(), died=_DIED)
    blocks: list[Future[Any]] = [
      self._workers.submit(type(self.reader).read_all, sources[i : i + _BLOCK])
      for i in range(0, len(sources), _BLOCK)
    ]
    return lambda: [one for block in blocks for one in block.result()]

  def close(self) -> None:
    """Ends the processes."""
    if self._workers is not None:
      self._workers.close()
      self._workers = None
