"""Translates raw text, or CoNLL-U, with a trained run.

  echo "Two young men are playing football." |
    python -m jaxsyn.translate --workdir runs/pascal

Lines are parsed with the run's own parser where the system reads trees, and
answered in order as plain text: those of a file in batches of similar length,
those of a program or a terminal as they come. Line N answers line N.
"""

from __future__ import annotations

import dataclasses
import pathlib
import sys
from collections.abc import Iterable, Iterator, Sequence

import jax
import jax.numpy as jnp
from absl import flags, logging

from jaxsyn import cli, exits, workdir
from jaxsyn.config import Config, Decode
from jaxsyn.data.loader.columns import pad
from jaxsyn.data.loader.split import Change
from jaxsyn.data.sentence import conllu as trees
from jaxsyn.data.sentence import stream, text
from jaxsyn.data.sentence.example import encode
from jaxsyn.data.sentence.parser import UDPipe
from jaxsyn.data.sentence.stream import Source
from jaxsyn.data.sentence.text import Faulty
from jaxsyn.data.store import manifest as manifests
from jaxsyn.decode.translator import NOTHING, Translation, Translator
from jaxsyn.errors import InputError
from jaxsyn.models.contract import forward
from jaxsyn.options import At, Range, from_config
from jaxsyn.plan import Plan, resolve
from jaxsyn.scoring import selection
from jaxsyn.training.memory import enough_memory
from jaxsyn.training.mesh import set_up_jax
from jaxsyn.training.reader import Reader, Taken


class Session:
  """A run made ready to translate: for notebooks and programs.

  Attributes:
    run: config and manifest.
    plan: the resolved config.
    params: parameters of the chosen checkpoint.
    chosen: which that is, and by what, in words.
    notes: why it is not the one that was asked for, in sentences, which were
      printed on standard error; empty where it is.
    longest: source subwords that are read of a line.
    cut: lines so far that were longer than `longest` and lost their end.
    change: function on every host batch, as given.
  """

  def __init__(
    self,
    folder: str | pathlib.Path,
    *,
    checkpoint: str = "",
    parser: str = "",
    longest: int = 512,
    change: Change | None = None,
    **decode,
  ):
    """Opens a run.

    Args:
      folder: of the run.
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
    fields = dataclasses.asdict(self.run.config.decode) | decode
    config = dataclasses.replace(
      self.run.config,
      decode=from_config(Decode, fields, At("decode")),
    )
    self.plan: Plan = self._resolved(config, bool(decode))
    reads = self.plan.translation_needs
    self._names = [
      name
      for name in manifests.features_for(self.run.manifest, reads)
      if name.startswith("source")
    ]
    self._vocabularies = (
      self.run.vocabulary("source"),
      self.run.vocabulary("target"),
    )
    self.longest, self.cut, self.change = longest, 0, change
    self._parser_file = parser or self.run.parser_file()
    self._parser: UDPipe | None = None
    taken = self._load(checkpoint)
    self.params, self.notes = taken.params, taken.notes
    self.chosen = self._told(checkpoint, taken)
    for note in self.notes:  # not by a log, which commands keep quiet
      _say(f"{self.run.workdir}: {note}")
    self._translate = Translator(
      self.plan.recipe.model,
      self._vocabularies[1],
      config.decode,
      self._names,
      change,
    )

  @property
  def needs_trees(self) -> bool:
    """Whether the system reads source trees at all."""
    return len(self._names) > 1

  def _resolved(self, config: Config, asked: bool) -> Plan:
    try:
      return resolve(config, self.run.manifest)
    except InputError as error:
      if asked:  # for something that may be the fault
        raise
      raise InputError(
        f"{self.run.workdir / workdir.CONFIG}: {error}"
      ) from None

  def _load(self, checkpoint: str) -> Taken:
    config = self.plan.config
    batch = pad([], self._names, subwords=4, words=4, rows=1)
    batch["target_id_BT"] = jnp.zeros((1, 4), jnp.int32)
    model, key = self.plan.recipe.model, jax.random.key(0)
    abstract = jax.eval_shape(
      lambda: model.init({"params": key}, batch, train=False, method=forward)
    )["params"]
    checkpoints, ema = Reader(self.run.workdir), config.train.ema > 0
    with enough_memory(
      f"reading the parameters of {self.run.workdir}",
      "the number of other programs that run here",
    ):
      if not checkpoint and config.train.average > 1:
        return checkpoints.average_params(config.train.average, abstract, ema)
      which = checkpoint or config.decode.checkpoint
      return checkpoints.restore_params(which, abstract, ema)

  def _told(self, asked: str, taken: Taken) -> str:
    """What was taken, in words."""
    *others, step = taken.steps
    if others:
      return (
        "the mean of the checkpoints of steps "
        f"{', '.join(map(str, others))} and {step}"
      )
    if taken.score is not None:
      return (
        f"the best checkpoint by validation {selection.title(taken.score)}: "
        f"{taken.score['score']:.2f} at step {step}"
      )
    # Where the best was asked for: before the first validation there is none.
    asked = asked or self.plan.config.decode.checkpoint
    if asked in ("best", "last") and not taken.notes:
      return f"the last checkpoint, of step {step}"
    return f"the checkpoint of step {step}"

  def parse(self, line: str) -> trees.Parse:
    """The tree of a raw line, by the run's own parser."""
    if self._parser is None:
      if not self._parser_file:
        raise InputError(
          f"{self.run.workdir} has no parser: its trees came as CoNLL-U, or it "
          "has none. Give CoNLL-U (--conllu), or name a UDPipe model "
          "(--parser)."
        )
      beam = self.run.config.prepare.parse.beam
      self._parser = UDPipe(self._parser_file, beam)
      manifests.check_parser(self.run.manifest, self._parser)
    return self._parser(line)

  def example(self, source: Source) -> dict:
    """The arrays of one source sentence.

    Args:
      source: a raw line, or its parse.
    """
    clean = self.run.manifest["options"]["clean"]
    if isinstance(source, str) and clean["nfc"]:  # as the training text was
      source = text.normal(source)
    raw = source if isinstance(source, str) else source.text
    pieces = self._vocabularies[0].encode(raw)
    if len(pieces.id) >= self.longest:
      self.cut += 1
      source = raw[: pieces.end[self.longest - 2]]
    if self.needs_trees and isinstance(source, str):
      source = self.parse(source)
    elif not self.needs_trees and not isinstance(source, str):
      source = source.text
    return encode(
      source,
      None,
      vocabularies=self._vocabularies,
      **manifests.encoding(self.run.manifest),
      tree=self.run.config.data.tree,
      seed=self.run.config.seed,
      tag=self.plan.tag,
    )

  def __call__(self, sources: Iterable[Source]) -> list[list[Translation]]:
    """The n best translations of each sentence, best first, in order."""
    return self.search([self.example(s) for s in sources])

  def search(self, examples: Sequence[dict]) -> list[list[Translation]]:
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


def run(
  session: Session,
  sources: Iterable[Source | Faulty | None],
  buffer: int = 1000,
) -> Iterator[list[Translation]]:
  """Translates a stream in order; the n best of each sentence.

  Args:
    session: an opened run.
    sources: raw lines or parses, read as they are needed; of
      `jaxsyn.data.sentence.stream.sentences`, answered as they come.
    buffer: at most so many sentences are sorted by length and translated
      together.
  """
  for chunk in stream.chunks(sources, buffer):
    given = [s.text if isinstance(s, Faulty) else s for s in chunk]
    found = iter(session([s for s in given if s is not None]))
    yield from ([NOTHING] if s is None else next(found) for s in given)


def _main(values: flags.FlagValues) -> None:
  if not values.workdir:
    raise InputError("--workdir is missing: name the folder of a trained run.")
  exits.check_target(values.output, "--output")
  logging.set_verbosity(logging.ERROR)
  set_up_jax()
  decode = {
    name: value
    for name, value in (
      ("beam", values.beam),
      ("alpha", values.alpha),
      ("nbest", values.nbest),
    )
    if value is not None
  }
  if values.nbest and values.beam is None:
    beam = workdir.open_run(values.workdir).config.decode.beam
    decode["beam"] = max(beam, values.nbest)
  session = Session(
    values.workdir,
    checkpoint=values.checkpoint,
    parser=values.parser,
    **decode,
  )
  trees = values.conllu or stream.is_conllu(values.input)
  faults: list[str] = []
  sources = _noted(stream.sentences(values.input, trees, values.errors), faults)
  with text.writer(values.output) as write:
    for number, found in enumerate(run(session, sources, values.buffer)):
      for line in _lines(number, found, values):
        write(line)
  if session.cut:
    _say(
      f"{session.cut} lines were longer than {session.longest} subwords; only "
      "their beginning was translated."
    )
  if faults:
    _say(
      f"{len(faults)} of the lines could not be read (--errors "
      f"{values.errors}); the first: {faults[0]}"
    )


def _noted(
  items: Iterable[Source | Faulty | None], faults: list[str]
) -> Iterator[Source | Faulty | None]:
  """The items; what cannot be read of them is told in the list."""
  for item in items:
    if isinstance(item, Faulty):
      faults.append(item.message)
    yield item


def _say(message: str) -> None:
  print(message, file=sys.stderr)


def _lines(
  number: int, found: list[Translation], values: flags.FlagValues
) -> Iterator[str]:
  if values.nbest:  # Moses' n-best format
    for best in found:
      yield f"{number} ||| {best.text} ||| {best.score:.4f}"
    return
  best = found[0] if found else NOTHING
  yield f"{best.text}\t{best.score:.4f}" if values.scores else best.text


if __name__ == "__main__":
  flags.DEFINE_string("workdir", None, "Folder of a trained run.")
  flags.DEFINE_string("input", "-", "Text or CoNLL-U, plain or .gz; -: stdin.")
  flags.DEFINE_string("output", "-", "File of the translations; -: stdout.")
  flags.DEFINE_bool("conllu", False, "The input is CoNLL-U (see also .conllu).")
  cli.field_flag(
    Decode,
    "nbest",
    "Print N hypotheses a line: LINE ||| text ||| score, LINE from 0.",
  )
  flags.DEFINE_bool(
    "scores",
    False,
    "Append a tab and the score: log probability over the length penalty.",
  )
  cli.field_flag(Decode, "beam", "Beam size, instead of the config's.")
  cli.field_flag(
    Decode, "alpha", "Length penalty, instead of the config's.", float
  )
  flags.DEFINE_string("checkpoint", "", '"best", "last" or a step.')
  flags.DEFINE_string("parser", "", "UDPipe model, if it is not in the folder.")
  cli.number_flag(
    "buffer",
    1000,
    Range(1, 1_000_000),
    "Lines translated together, at most: what is there is answered.",
  )
  flags.DEFINE_enum(
    "errors",
    "strict",
    text.ERRORS,
    "What a line becomes that cannot be read (no UTF-8, NUL, no tree): strict: "
    "the end, once the lines before it are answered; replace: what can be read "
    "of it; skip: an empty line.",
  )
  cli.main(_main)
