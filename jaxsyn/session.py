"""A trained run made ready to translate: for commands, notebooks and programs.

  session = Session("runs/pascal", beam=5)
  ((best, *rest),) = session(["Two young men are playing football."])

Before this file: `sources` (what is read of a sentence), `parameters`, and
`jaxsyn.decode`. After it: the commands, and `jaxsyn.inspection`.
"""

from __future__ import annotations

import dataclasses
import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import jax
import numpy as np

from jaxsyn import parameters, workdir
from jaxsyn.config import Decode
from jaxsyn.data.loader.split import Change
from jaxsyn.data.sentence.stream import Source
from jaxsyn.decode.translator import Translation, Translator
from jaxsyn.errors import InputError
from jaxsyn.options import At, from_config
from jaxsyn.plan import Plan, resolve
from jaxsyn.sources import Example, ParallelReader, SourceReader
from jaxsyn.training.memory import enough_memory
from jaxsyn.training.reader import Parameters


class Session:
  """A run that translates.

  Attributes:
    run: config and manifest.
    plan: the resolved config.
    sources: makes examples of lines and parses.
    params: parameters of the chosen checkpoint.
    chosen: which that is, and by what, in words.
    devices: that search, all that this process has.
    notes: why it is not the one that was asked for, in sentences, which were
      printed on standard error; empty where it is.
    change: function on every host batch, as given.
    cut: lines so far that were too long and lost their end.
  """

  def __init__(
    self,
    folder: str | os.PathLike[str],
    *,
    checkpoint: str = "",
    parser: str | os.PathLike[str] = "",
    longest: int = 512,
    change: Change | None = None,
    **decode: Any,
  ):
    """Opens a run.

    Args:
      folder: of the run, or of an exported model; hub:OWNER/NAME.
      checkpoint: "best", "last" or a step; "": as config.decode.checkpoint
        says, or the mean that config.train.average asks for.
      parser: file of the parser, if it is not in the folder.
      longest: source subwords; of longer lines only the beginning is read.
      change: function on every host batch, as in `jaxsyn.train.run`.
      **decode: fields of config.decode to change, e.g. beam=1.

    Raises:
      InputError: no run, no checkpoint, another parser than the run's.
    """
    self.run = workdir.open_run(folder)
    self.plan = _plan(self.run, decode)
    self.sources = SourceReader(
      self.run, self.plan, longest=longest, parser=parser
    )
    self._reader = ParallelReader(self.sources)
    self.change, self.cut = change, 0
    read = self._read(checkpoint)
    asked = checkpoint or self.plan.config.decode.checkpoint
    self.params, self.notes = read.params, read.notes
    self.chosen = parameters.title(read, asked)
    if (
      asked == "best"
      and len(read.steps) == 1
      and not (read.score or self.notes or read.title)
    ):
      self.notes = (
        f"no checkpoint was chosen by a validation yet: it is {self.chosen}",
      )
    for note in self.notes:  # not by a log, which commands keep quiet
      print(f"{self.run.workdir}: {note}", file=sys.stderr)
    self.devices = jax.local_devices()
    self._translate = Translator(
      self.plan.recipe.model,
      self.sources.vocabularies[1],
      self.plan.config.decode,
      features=self.sources.features,
      change=change,
      devices=self.devices,
    )

  def _read(self, checkpoint: str) -> Parameters:
    return parameters.read(
      self.run, self.plan, self.sources.features, checkpoint=checkpoint
    )

  def example(self, source: Source) -> Example:
    """The arrays of one source sentence, a raw line or its parse."""
    (example,) = self.begin_examples([source])()
    return example

  def __call__(self, sources: Iterable[Source]) -> list[list[Translation]]:
    """The n best translations of each sentence, best first, in order."""
    return self.begin(list(sources))()

  def begin(
    self, sources: Sequence[Source]
  ) -> Callable[[], list[list[Translation]]]:
    """Starts to parse sentences; the function that is returned translates them.

    So the next block is parsed, by processes beside this one, while one is
    searched: see `jaxsyn.sources.ParallelReader`.
    """
    examples = self.begin_examples(sources)
    return lambda: self.search(examples())

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

  def close(self) -> None:
    """Ends the processes that parse, if there are any; more may come."""
    self._reader.close()

  def search(
    self, examples: Sequence[Mapping[str, np.ndarray]]
  ) -> list[list[Translation]]:
    """The n best translations of examples that are made already."""
    decode = self.plan.config.decode
    longest = max((len(e["source_id"]) for e in examples), default=0)
    with enough_memory(
      f"translating {decode.sentences} sentences at a time with "
      f"{decode.beam} hypotheses each, the longest of {longest} subwords",
      "config.decode.sentences or config.decode.beam (--beam)",
    ):
      return self._translate(self.params, examples)

  @property
  def compilations(self) -> int:
    """Programs made so far, one a shape."""
    return self._translate.compilations


def _plan(run: workdir.Run, changes: Mapping[str, Any]) -> Plan:
  """The plan of a run, with other fields of config.decode."""
  fields = {**dataclasses.asdict(run.config.decode), **changes}
  decode = from_config(Decode, fields, At("decode"))
  try:
    return resolve(dataclasses.replace(run.config, decode=decode), run.manifest)
  except InputError as error:
    if changes:  # which may be the fault
      raise
    raise InputError(f"{run.workdir / workdir.CONFIG}: {error}") from None
