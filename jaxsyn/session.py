"""A trained run made ready to translate: for commands, notebooks and programs.

  session = Session("runs/pascal", beam=5)
  ((best, *rest),) = session(["Two young men are playing football."])
  several = Session(["runs/pascal", "runs/deps_san"], weights=[0.6, 0.4])

Before this file: `jaxsyn.trained.member` (a run) and `jaxsyn.decode` (`requests`:
what is asked of a sentence). After it: the commands, and `jaxsyn.inspection`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import jax
import numpy as np

from jaxsyn import progress
from jaxsyn.data.loader.collate import BatchTransform
from jaxsyn.data.schema import EOS, SPECIAL
from jaxsyn.data.sentence import text
from jaxsyn.data.sentence.stream import Source
from jaxsyn.decode.ensemble import Ensemble, ensemble, params_of
from jaxsyn.decode.examples import Example
from jaxsyn.decode.forced import Forced, Scored
from jaxsyn.decode.rank import penalised
from jaxsyn.decode.requests import Request, request
from jaxsyn.decode.strategies import STRATEGIES
from jaxsyn.decode.terms import Terms
from jaxsyn.decode.translator import (
  ProgressCallback,
  Translation,
  Translator,
  ignore_progress,
  longest_output,
)
from jaxsyn.errors import InputError
from jaxsyn.models.contract import EncoderDecoder
from jaxsyn.trained import parameters
from jaxsyn.trained.member import (
  Folder,
  check_targets,
  check_weights,
  open_member,
)
from jaxsyn.trained.sources import EnsembleReader, ParallelReader, SourceReader
from jaxsyn.training.memory import enough_memory

Finish = Callable[
  [Sequence[Request], Sequence[Example], list[list[Translation]]],
  list[list[Translation]],
]


class Session:
  """A run that translates, or an ensemble of several.

  Attributes:
    members: the runs.
    weights: of each; they add up to 1.
    run, plan, sources, chosen: of the first; see `jaxsyn.trained.member`.
    params: of the run; of an ensemble, as `jaxsyn.decode.ensemble` has them.
    notes: why parameters are not those that were asked for, in sentences, which
      were printed on standard error; empty where they are.
    reader: makes examples of sentences, of an ensemble for all its runs.
    devices: that search, all that this process has.
    change: function on every host batch, as given.
    cut: lines so far that were too long and lost their end.
  """

  _read = staticmethod(parameters.read)

  def __init__(
    self,
    folder: Folder | Sequence[Folder],
    *,
    checkpoint: str = "",
    parser: Folder = "",
    longest: int = 512,
    batch_transform: BatchTransform | None = None,
    weights: Sequence[float] = (),
    **decode: Any,
  ):
    """Opens a run, or several as an ensemble.

    Args:
      folder: of the run, or of each, or of an exported model (hub:OWNER/NAME);
        FOLDER@CHECKPOINT is one of its checkpoints, so that several of a run
        may be there.
      checkpoint: "best", "last" or a step; "": as config.decode.checkpoint
        says, or the mean that config.train.average asks for.
      parser: where the parser is, if not in the folder: a UDPipe file, a folder
        of spaCy or Stanza, the address of a service, a command line.
      longest: source subwords; of longer lines only the beginning is read.
      batch_transform: function on every host batch, as in `jaxsyn.train.run`.
      weights: of the runs of an ensemble; none: all are equal.
      **decode: fields of config.decode to change, e.g. beam=1; of an ensemble
        that of the first run counts.

    Raises:
      InputError: no run, no checkpoint, another parser than the run's, runs
        that write other subwords.
    """
    folders = (
      [folder] if isinstance(folder, (str, os.PathLike)) else list(folder)
    )
    weights = [float(weight) for weight in weights]
    check_weights(folders, weights)
    total = sum(weights) or len(folders)
    self.weights = [w / total for w in weights or [1.0] * len(folders)]
    self.members = tuple(
      open_member(
        one,
        checkpoint=checkpoint,
        parser=parser,
        longest=longest,
        decode=decode if index == 0 else {},
        read=self._read,
      )
      for index, one in enumerate(folders)
    )
    check_targets(self.members)
    first = self.members[0]
    self.run, self.plan, self.sources = first.run, first.plan, first.sources
    self.chosen = "; ".join(one.chosen for one in self.members)
    self.notes = tuple(
      message for one in self.members for message in one.messages
    )
    self.change, self.cut = batch_transform, 0
    self.devices = jax.local_devices()
    reader: SourceReader | EnsembleReader = first.sources
    features: dict[str, Any] = {"features": first.sources.features}
    model: EncoderDecoder | Ensemble = first.plan.recipe.model
    self.params = first.params
    if len(self.members) > 1:
      reader = EnsembleReader([one.sources for one in self.members])
      models = [one.plan.recipe.model for one in self.members]
      model = ensemble(models, self.weights)
      self.params = params_of([one.params for one in self.members])
      features = {"members": [one.sources.features for one in self.members]}
    self.reader = reader
    self._reader = ParallelReader(reader)
    self._translate = Translator(
      *(model, first.sources.vocabularies[1], first.plan.config.decode),
      batch_transform=batch_transform,
      devices=self.devices,
      **features,
    )
    self._forced = Forced(model, batch_transform=batch_transform, **features)

  def example(self, source: Source) -> Any:
    """The arrays of one source sentence, a raw line or its parse.

    Returns: of a run a dict, of an ensemble a tuple with one of each.
    """
    (example,) = self.begin_examples([source])()
    return example

  def __call__(
    self, sources: Iterable[Source | Request]
  ) -> list[list[Translation]]:
    """The n best translations of each sentence, best first, in order."""
    return self.begin(list(sources))()

  def begin(
    self,
    sources: Sequence[Source | Request],
    finish: Finish | None = None,
    on_progress: ProgressCallback = ignore_progress,
  ) -> Callable[[], list[list[Translation]]]:
    """Starts to parse sentences; the function that is returned translates them.

    So the next block is parsed, by processes beside this one, while one is
    searched: see `jaxsyn.trained.sources.ParallelReader`.

    Args:
      sources: raw lines, parses or requests.
      finish: what is done with what was found: a function of the requests, their
        examples and their translations; see `jaxsyn.translating.finishing`.
      on_progress: of `search`.
    """
    requests = [request(source) for source in sources]
    terms = [self._terms(*pair) for pair in enumerate(requests)]
    reading = self.begin_examples([one.source for one in requests])

    def translate() -> list[list[Translation]]:
      examples = reading()
      nbests = self.search(examples, terms, on_progress)
      return finish(requests, examples, nbests) if finish else nbests

    return translate

  def _terms(self, index: int, request: Request) -> Terms:
    """What is asked of a translation, in subwords.

    Args:
      index: its place, where the request says none.
      request: what is.

    Raises:
      InputError: it cannot be met; the message names the line.
    """
    place = index if request.place is None else request.place
    try:
      return self.terms(request, place)
    except InputError as error:
      raise InputError(f"line {place + 1} of the input: {error}") from None

  def terms(self, request: Request, place: int = 0) -> Terms:
    """The same of a request that stands alone.

    Args:
      request: what is asked of its translation.
      place: on which samples depend.

    Raises:
      InputError: it cannot be met; says why, not where.
    """
    search = self.plan.config.decode.search
    if request.constraints and not search.constrains:
      raise InputError(
        f"constraints are for the search 'beam', not for "
        f"{STRATEGIES.name_of(search)!r}."
      )
    terms = self._translate.wording(
      place,
      self._normal(request.prefix),
      [self._normal(one) for one in request.constraints],
      [self._normal(one) for one in request.avoid],
    )
    # A longer search would need more memory than any sentence does.
    longest = self.sources.longest
    max_length = max(longest_output(self.plan.config.decode, longest), longest)
    if any(terms.kind) and terms.least > max_length:
      raise InputError(
        f"the prefix and the constraints need up to {terms.least:,} output "
        f"positions; at most {max_length:,}. Shorten them."
      )
    return terms

  def _normal(self, line: str) -> str:
    """Text of the target side as that of training was written."""
    nfc = self.run.manifest["options"]["clean"]["nfc"]
    return text.normal(line) if nfc else line

  def begin_examples(
    self, sources: Sequence[Source]
  ) -> Callable[[], list[Example]]:
    """Starts to parse sentences; the function waits for their arrays."""
    reading = self._reader.begin(sources)

    def examples() -> list[Example]:
      read = reading()
      self.cut += sum(is_cut for _, is_cut in read)
      return [example for example, _ in read]

    return examples

  def compile(self, examples: Sequence[Example]) -> None:
    """Makes the programs that translate these, before they are needed."""
    self._translate.compile(self.params, examples)

  def sizes(self, examples: Sequence[Example]) -> set[Any]:
    """The sizes that `compile` makes programs of."""
    return self._translate.sizes(examples)

  def close(self) -> None:
    """Ends the processes that parse, if there are any; more may come."""
    self._reader.close()

  def search(
    self,
    examples: Sequence[Example],
    terms: Sequence[Terms] | None = None,
    on_progress: ProgressCallback = ignore_progress,
    is_wanted: Callable[[int], bool] | None = None,
  ) -> list[list[Translation]]:
    """The n best translations of examples that are made already.

    Args:
      examples: of `begin_examples`.
      terms: what is asked of each; None: nothing more.
      on_progress: called with how many more are found, in any thread.
      is_wanted: see `jaxsyn.decode.translator.Translator`.
    """
    decode = self.plan.config.decode
    longest = max(map(self._translate.subwords, examples), default=0)
    with enough_memory(
      f"translating {decode.sentences} sentences at a time with "
      f"{decode.search.hypotheses(decode)} hypotheses each, the longest of "
      f"{longest} subwords",
      "config.decode.sentences or config.decode.beam (--beam)",
    ):
      return self._translate(
        self.params, examples, terms, on_progress, is_wanted
      )

  def force(
    self,
    sources: Iterable[Source],
    targets: Iterable[str | Sequence[int]],
    on_progress: ProgressCallback = ignore_progress,
  ) -> list[Scored]:
    """How probable given translations are: log p, subword by subword.

    Args:
      sources: raw lines or parses; an empty one is a sentence too.
      targets: a translation of each, as text, or as subwords without EOS
        (`Translation.ids`): what a search found may be cut into others
        than the vocabulary would.
      on_progress: called with how many more are scored.
    """
    vocabulary = self.sources.vocabularies[1]
    ids = [
      self.subwords(one) if isinstance(one, str) else list(one)
      for one in targets
    ]
    # Of an n-best list each source is read once.
    source_list = list(sources)
    keys = {_key(source): source for source in source_list}
    read = dict(zip(keys, self.begin_examples(list(keys.values()))()))
    examples = [read[_key(source)] for source in source_list]
    log_p = self.force_examples(examples, ids, on_progress)
    scored = []
    for target_ids, log_p_T in zip(ids, log_p, strict=True):
      total = float(log_p_T.sum(dtype="float64"))
      score = penalised(total, len(log_p_T), self.plan.config.decode)
      pieces = (*vocabulary.pieces(target_ids), SPECIAL[EOS])
      scored.append(Scored(pieces, tuple(log_p_T.tolist()), total, score))
    return scored

  def force_examples(
    self,
    examples: Sequence[Example],
    targets: Sequence[Sequence[int]],
    on_progress: ProgressCallback = ignore_progress,
  ) -> list[np.ndarray]:
    """Returns the log probability of each subword of targets, EOS last.

    Args:
      examples: Examples of `begin_examples`.
      targets: Subwords of each target, without EOS.
      on_progress: Called with the number of further targets that are scored.
    """
    with enough_memory("scoring", "the number of other programs that run here"):
      return self._forced(self.params, examples, targets, on_progress)

  def subwords(self, translation: str) -> list[int]:
    """A translation as the vocabulary cuts it, without EOS."""
    return self.sources.vocabularies[1].ids(self._normal(translation))

  @property
  def compilations(self) -> int:
    """Programs made so far, one a shape."""
    return self._translate.compilations

  def note(self, *more_programs: tuple[int, int]) -> str:
    """Returns how many programs are compiled; "" while none is.

    Args:
      *others: Programs that are counted too: see `jaxsyn.progress.compiling`.
    """
    own_programs = self._translate.programs, self._forced.programs
    return progress.compiling(*own_programs, *more_programs)


def _key(source: Source) -> str | int:
  """By which sources are the same."""
  return source if isinstance(source, str) else id(source)
