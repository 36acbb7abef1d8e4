"""Sessions: opened runs that translate, for commands and notebooks.

session = Session("runs/pascal", beam=5)
((best, *rest),) = session(["Two young men are playing football."])
ensemble = Session(["runs/pascal", "runs/deps_san"], weights=[0.6, 0.4])
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

import jax
import numpy as np

from jaxsyn.data.loader.collate import BatchTransform
from jaxsyn.data.schema import EOS, SPECIAL
from jaxsyn.data.sentence.stream import Source
from jaxsyn.decode.ensemble import Ensemble
from jaxsyn.decode.examples import Batcher, Example
from jaxsyn.decode.forced import ForcedPass, Scored, log_probability
from jaxsyn.decode.prefix import Automaton, OutputRequest
from jaxsyn.decode.rank import score_on_host
from jaxsyn.decode.requests import Request, as_request
from jaxsyn.decode.sources import Pending, SessionReader
from jaxsyn.decode.translator import (
  ProgressCallback,
  Translation,
  Translator,
  ignore_progress,
  max_output_length,
)
from jaxsyn.errors import InputError
from jaxsyn.session.member import check_targets, normalized_weights, open_member
from jaxsyn.session.workdir import PathLike
from jaxsyn.training.runtime import enough_memory
from jaxsyn.utils import progress


class Session:
  """Trained run, or ensemble of runs, opened for translation.

  Attributes:
    members: Runs.
    weights: Weight of each run; the sum is 1.
    run, plan, sources: Attributes of the first run; see
      `jaxsyn.session.member.Member`.
    chosen: Description of the chosen checkpoints.
    params: Parameters of each run.
    reader: Reader of source sentences, for all runs.
    batcher: Function that makes batches of examples for the models.
    translator: Search for translations.
    devices: Devices that search: all local devices.
    batch_transform: Function of the user applied to every host batch.
    cut: Number of lines so far that were truncated.
  """

  def __init__(
    self,
    folder: PathLike | Sequence[PathLike],
    *,
    checkpoint: str = "",
    parser: PathLike = "",
    longest: int = 512,
    batch_transform: BatchTransform | None = None,
    weights: Sequence[float] = (),
    **decode: Any,
  ):
    """Opens a run, or several runs as an ensemble.

    Args:
      folder: Run directory, or several, or an exported model (hub:OWNER/NAME).
        FOLDER@CHECKPOINT selects a checkpoint, so that several checkpoints of
        a run can form an ensemble.
      checkpoint: "best", "last" or a step; "": config.decode.checkpoint, or
        the mean of config.train.average checkpoints.
      parser: Path of the parser, if it is not in the run directory: a UDPipe
        file, or a folder of spaCy or Stanza.
      longest: Maximum number of source subwords; longer lines are truncated.
      batch_transform: Function applied to every host batch, as in
        `jaxsyn.train.run`.
      weights: Weights of the runs of an ensemble; empty: equal weights.
      **decode: Options of config.decode to change, such as beam=1; those of an
        ensemble are taken from the first run.

    Raises:
      InputError: There is no run or no checkpoint, the parser is not the run's,
        or the runs have different target vocabularies.
    """
    folders = (
      [folder] if isinstance(folder, (str, os.PathLike)) else list(folder)
    )
    self.weights = normalized_weights(weights, len(folders))
    self.members = tuple(
      open_member(
        member_folder,
        checkpoint=checkpoint,
        parser=parser,
        longest=longest,
        decode={} if index else decode,
      )
      for index, member_folder in enumerate(folders)
    )
    check_targets(self.members)
    first = self.members[0]
    self.run, self.plan, self.sources = first.run, first.plan, first.sources
    self.chosen = "; ".join(member.chosen for member in self.members)
    self.batch_transform, self.cut = batch_transform, 0
    self.devices = jax.local_devices()
    self.reader = SessionReader([member.sources for member in self.members])
    self.params = [member.params for member in self.members]
    ensemble = Ensemble(
      tuple(member.plan.recipe.model for member in self.members),
      tuple(self.weights),
    )
    self.batcher = Batcher(
      [member.sources.features for member in self.members],
      batch_transform=batch_transform,
    )
    self.translator = Translator(
      ensemble,
      first.sources.vocabularies[1],
      first.plan.config.decode,
      self.batcher,
      devices=self.devices,
    )
    self._forced = ForcedPass(partial(log_probability, ensemble), self.batcher)

  def __call__(
    self, sources: Iterable[Source | Request]
  ) -> list[list[Translation]]:
    """Returns the n-best translations of each sentence, in order."""
    requests = [
      as_request(source, index) for index, source in enumerate(sources)
    ]
    output_requests = [self.output_request(one) for one in requests]
    examples = self.read([one.source for one in requests])
    return self.search(examples, output_requests)

  def output_request(self, request: Request) -> OutputRequest:
    """Compiles the target prefix of a request to an automaton.

    Raises:
      InputError: The prefix cannot be written, or is too long.
    """
    automaton: Automaton = ()
    if request.prefix:
      automaton = self.translator.compile_prefix(request.prefix)
    output_request = OutputRequest(request.index or 0, automaton)
    # A longer search would need more memory than any sentence does.
    decode, longest = self.plan.config.decode, self.sources.longest
    max_length = max(max_output_length(decode, longest), longest)
    if automaton and output_request.positions > max_length:
      raise InputError(
        f"the prefix needs up to {output_request.positions:,} output "
        f"positions; at most {max_length:,}. Shorten it."
      )
    return output_request

  def read(self, sources: Sequence[Source]) -> list[Example]:
    """Converts source sentences (raw lines or parses) to inputs of each run."""
    return self.examples(self.reader.read_async(sources))

  def examples(self, read: Pending) -> list[Example]:
    """Returns model inputs from `reader.read_async`; counts truncated lines."""
    results = [one for part in read for one in part.result()]
    self.cut += sum(is_cut for _, is_cut in results)
    return [example for example, _ in results]

  def search(
    self,
    examples: Sequence[Example],
    requests: Sequence[OutputRequest] | None = None,
    on_progress: ProgressCallback = ignore_progress,
    is_wanted: Callable[[int], bool] | None = None,
  ) -> list[list[Translation]]:
    """Returns the n-best translations of sentences given as model inputs.

    Args:
      examples: Examples of `read`.
      requests, on_progress, is_wanted: See
        `jaxsyn.decode.translator.Translator`.
    """
    decode = self.plan.config.decode
    longest = max(map(self.translator.subwords, examples), default=0)
    with enough_memory(
      f"translating {decode.sentences} sentences at a time with "
      f"{self.translator.hypotheses} hypotheses each, the longest of "
      f"{longest} subwords",
      "config.decode.sentences or config.decode.beam (--beam)",
    ):
      return self.translator(
        self.params, examples, requests, on_progress, is_wanted
      )

  def force(
    self,
    sources: Iterable[Source],
    targets: Iterable[str | Sequence[int]],
    on_progress: ProgressCallback = ignore_progress,
  ) -> list[Scored]:
    """Returns the log probability of each subword in given translations.

    Args:
      sources: Raw lines or parses; an empty one is a sentence too.
      targets: Translation of each, as text, or as subwords without EOS
        (`Translation.ids`): a search can split words differently from the
        vocabulary.
      on_progress: Called with the number of further targets that are scored.
    """
    vocabulary = self.sources.vocabularies[1]
    ids = [
      self.subwords(target) if isinstance(target, str) else list(target)
      for target in targets
    ]
    # Each source of an n-best list is parsed once.
    source_list = list(sources)
    distinct = {_key(source): source for source in source_list}
    read = dict(zip(distinct, self.read(list(distinct.values())), strict=True))
    examples = [read[_key(source)] for source in source_list]
    log_p = self.force_examples(examples, ids, on_progress)
    scored = []
    for target_ids, log_p_T in zip(ids, log_p, strict=True):
      total = float(log_p_T.sum(dtype="float64"))
      score = score_on_host(total, len(log_p_T), self.plan.config.decode)
      pieces = (*vocabulary.pieces(target_ids), SPECIAL[EOS])
      scored.append(Scored(pieces, tuple(log_p_T.tolist()), total, score))
    return scored

  def force_examples(
    self,
    examples: Sequence[Example],
    targets: Sequence[Sequence[int]],
    on_progress: ProgressCallback = ignore_progress,
  ) -> list[np.ndarray]:
    """Returns the log probability of each target subword, EOS last.

    Args:
      examples: Examples of `read`.
      targets: Subwords of each target, without EOS.
      on_progress: Called with the number of further targets that are scored.
    """
    with enough_memory("scoring", "the number of other programs that run here"):
      return self._forced(self.params, examples, targets, on_progress)

  def subwords(self, translation: str) -> list[int]:
    """Returns the subwords of a translation, without EOS."""
    return self.sources.vocabularies[1].ids(translation)

  def note(self, *more_programs: tuple[int, int]) -> str:
    """Returns a note on compilation progress; "" once it is complete.

    Args:
      *more_programs: Counts of other programs; see
        `jaxsyn.utils.progress.compiling`.
    """
    return progress.compiling(
      self.translator.programs, self._forced.programs, *more_programs
    )

  def close(self) -> None:
    """Ends the parser processes; later calls start new ones."""
    self.reader.close()


def _key(source: Source) -> str | int:
  """Returns a dictionary key for a source; equal raw lines have equal keys."""
  return source if isinstance(source, str) else id(source)
