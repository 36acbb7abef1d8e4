"""What a trained run looks at: trees, weightings, attention, and a probe.

  python -m jaxsyn.inspect --workdir runs/pascal --input sentences.txt

Each sentence is parsed and translated by the run, then read once more together
with its translation. Written to the output folder, N the line of the input:

  sentence_N.json                      all numbers, words, tree, translation
  sentence_N.tree.png                  the tree over the words
  sentence_N.tree_found.png            the parents that a supervised head finds
  sentence_N.PART.encoder_0.png        what a part does there, in subwords
  sentence_N.attention.encoder_0.png   all heads of a layer, between words
  sentence_N.attention.WINDOW.cross_0.png   a context of a recurrent decoder
  probe.json                           how often the strongest other word of a
                                       word is its parent, child or neighbour

Attention is word-pooled: a row is a querying word, the mean of its subwords;
a column a word that is looked at, the sum of its subwords; rows sum to 1. In
decoder and cross-attention a row is the word being predicted, and the words of
a translation are what stands between its blanks (where it has none: its
subwords). Input is raw text, or CoNLL-U.

Letters: L layer.
"""

from __future__ import annotations

import dataclasses
import itertools
import os
import pathlib
import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
from absl import flags, logging
from tqdm import tqdm

from jaxsyn import cli, exits, files
from jaxsyn.data.schema import EOS, NO_WORD
from jaxsyn.data.sentence import stream, text
from jaxsyn.data.sentence.align import words_of_pieces
from jaxsyn.data.sentence.conllu import Parse
from jaxsyn.data.sentence.controls import TREES
from jaxsyn.data.sentence.linearise import TRANSLATE, symbols
from jaxsyn.data.sentence.stream import Source as Given
from jaxsyn.data.store import manifest as manifests
from jaxsyn.errors import InputError
from jaxsyn.inspection.files import write
from jaxsyn.inspection.maps import MapReader, SentenceMap
from jaxsyn.inspection.pooling import END, pool, source_units, target_units
from jaxsyn.inspection.probe import Probe, as_text
from jaxsyn.inspection.sentence import Sentence, Source, sentence
from jaxsyn.options import Range
from jaxsyn.training.mesh import set_up_jax
from jaxsyn.translate import Session

CHUNK = 128  # sentences in memory at a time
TAG = symbols([])[TRANSLATE]  # pooled with the end sign, where there are tags


@dataclasses.dataclass
class Report:
  """What `run` did.

  Attributes:
    output: folder of the files.
    probe: of `Probe.result`.
    drawn: sentences with pictures and JSON.
    empty, too_long, no_tree: lines that were passed over: without a word; too
      long; and (drawn, but not in the probe) those the parser could not read.
  """

  output: pathlib.Path
  probe: dict[str, Any]
  drawn: int = 0
  empty: int = 0
  too_long: int = 0
  no_tree: int = 0


def _tree_read(session: Session) -> str:
  """What config.data.tree says, of a system that reads trees."""
  tree = session.run.config.data.tree
  return TREES.name_of(tree) if session.needs_trees else "none"


class Inspector:
  """A session, and the model that tells what it looks at."""

  def __init__(self, session: Session):
    self.session = session
    plan = session.plan
    names = manifests.features_for(session.run.manifest, plan.translation_needs)
    self._maps = MapReader(
      plan.recipe.model,
      plan.spec,
      [name for name in names if name.startswith("source")],
      session.change,
    )
    self._source = session.run.vocabulary("source")
    self._target = session.run.vocabulary("target")

  def read(self, given: Given) -> Source | None:
    """Parses a line and makes its arrays; None for a line without words.

    Args:
      given: a raw line, or its parse.

    Raises:
      InputError: the run has no parser and the line no parse; or it has more
        subwords than the session reads.
    """
    session = self.session
    if isinstance(given, str):
      if session.run.manifest["options"]["clean"]["nfc"]:
        given = text.normal(given)
      if not given.strip():
        return None
    raw = given if isinstance(given, str) else given.text
    pieces = self._source.encode(raw)
    if len(pieces.id) >= session.longest:
      raise TooLong(
        f"{len(pieces.id)} subwords are too many: {raw[:40]!r}…; at most "
        f"{session.longest - 1} can be inspected."
      )
    parse: Parse = session.parse(given) if isinstance(given, str) else given
    word = words_of_pieces(
      raw, pieces.begin, pieces.end, parse.start_W, parse.end_W
    )
    if not any(w >= 0 for w in word):
      return None
    words = tuple(raw[a:b] for a, b in zip(parse.start_W, parse.end_W))
    # What stands around the subwords: the end sign, and the task's tags.
    tags = [] if session.plan.tag is None else [TAG]
    no_word = [NO_WORD] * len(tags)
    example = session.example(parse)
    given_head_W = example.get("source_head")
    return Source(
      text=raw,
      words=words,
      head_W=parse.head_W,
      relation_W=parse.relation_W,
      parsed=parse.parsed,
      tree=_tree_read(session),
      given_head_W=None if given_head_W is None else (*given_head_W.tolist(),),
      subwords=(*tags, *_subwords(raw, pieces), *tags, END),
      units=source_units(words, [*no_word, *word, *no_word, NO_WORD]),
      example=example,
    )

  def see(self, sources: Sequence[Source]) -> Iterator[tuple[int, Sentence]]:
    """Translates and looks; yields numbers and sentences, as they come."""
    examples = [source.example for source in sources]
    best = [found[0] for found in self.session.search(examples)]
    targets = [(*translation.ids, EOS) for translation in best]
    for i, published in self._maps(self.session.params, examples, targets):
      units = target_units(best[i].ids, self._target.decode)
      yield i, sentence(sources[i], best[i].text, units, published)

  def encoder(self, sources: Sequence[Source]) -> Iterator[tuple[int, dict]]:
    """Pooled encoder attention alone, layer -> (H, W, W), as it comes."""
    examples = [source.example for source in sources]
    for i, published in self._maps(self.session.params, examples):
      yield i, _encoder(published, sources[i])


class TooLong(InputError):
  """A line has more subwords than can be inspected."""


def look(session: Session, sources: Iterable[Given]) -> list[Sentence]:
  """Everything about some sentences, for notebooks and programs.

  Args:
    session: an opened run.
    sources: raw lines or parses.

  Raises:
    InputError: a line is empty or too long, or there is no parser.
  """
  inspector = Inspector(session)
  read = [inspector.read(source) for source in sources]
  if None in read:
    raise InputError(f"sentence {read.index(None) + 1} has no words.")
  return [seen for _, seen in sorted(inspector.see(read), key=lambda x: x[0])]


def run(
  session: Session,
  sources: Iterable[Given],
  output: str | os.PathLike | None = None,
  limit: int = 20,
  layers: Sequence[int] | None = None,
) -> Report:
  """Writes pictures and JSON of the first sentences, and probes all of them.

  Args:
    session: an opened run.
    sources: raw lines or parses, read as they are needed.
    output: folder, made if needed; None: "inspect" in the run's folder.
    limit: so many sentences are drawn.
    layers: only these are drawn, of encoder and decoder, from 0; None: all.
      The probe is of all layers of the encoder.

  Raises:
    InputError: no parser, no such layer, or no sentence at all.
  """
  family = session.plan.spec.family
  depth = max(family.layers("encoder"), family.layers("decoder"))
  for layer in layers or ():
    if not 0 <= layer < depth:
      raise InputError(
        f"there is no layer {layer}; they count from 0 to {depth - 1}."
      )
  inspector = Inspector(session)
  folder = pathlib.Path(output or session.run.workdir / "inspect")
  try:
    folder.mkdir(parents=True, exist_ok=True)
  except (FileExistsError, NotADirectoryError):
    raise InputError(f"{folder} is a file; name a folder (--output).") from None
  probe, report = Probe(_parts(session)), Report(folder, {})
  numbered = enumerate(sources, start=1)
  with tqdm(desc="inspecting", unit=" sentences", disable=None) as bar:
    while chunk := list(itertools.islice(numbered, CHUNK)):
      ready = []
      for number, given in chunk:
        try:
          source = inspector.read(given)
        except TooLong:
          report.too_long += 1
          continue
        if source is None:
          report.empty += 1
          continue
        report.no_tree += not source.parsed
        ready.append((number, source))
      count = max(0, min(len(ready), limit - report.drawn))
      drawn, rest = ready[:count], ready[count:]
      for i, seen in inspector.see([source for _, source in drawn]):
        number, source = drawn[i]
        write(seen, folder, number, layers)
        _add(probe, source, {m.layer: m.weight_HQM for m in seen.attention
                             if m.place == "encoder"})  # fmt: skip
        bar.update()
      report.drawn += count
      for i, weight_LHWW in inspector.encoder([source for _, source in rest]):
        _add(probe, rest[i][1], weight_LHWW)
        bar.update()
      bar.update(len(chunk) - len(ready))
  if not report.drawn and not probe.sentences:
    raise InputError(
      f"the input holds no sentence to inspect ({report.empty} empty lines, "
      f"{report.too_long} too long)."
    )
  report.probe = {
    **probe.result(),
    "system": session.run.config.system,
    "checkpoint": session.chosen,
    "tree_read_by_the_system": _tree_read(session),
    "skipped": {
      "empty": report.empty,
      "too_long": report.too_long,
      "no_tree": report.no_tree,
    },
  }
  files.write_json(folder / "probe.json", report.probe)
  return report


def _add(probe: Probe, source: Source, weight_LHWW: dict) -> None:
  if source.parsed:
    size_W = np.bincount(source.units.unit_S)[:-1]  # without the end sign
    probe.add(weight_LHWW, source.head_of_units(), size_W)


def _encoder(published: Sequence[SentenceMap], source: Source) -> dict:
  return {
    p.layer: pool(p.value_HQM, source.units, source.units)
    for p in published
    if p.place == "encoder" and not p.part
  }


def _subwords(raw: str, pieces) -> list[str]:
  """The text of each subword, "▁" where a blank or the beginning was."""
  found: list[str] = []
  for begin, end in zip(pieces.begin, pieces.end):
    opens = not found or raw[begin:end][:1].isspace()
    found.append(("▁" if opens else "") + raw[begin:end].strip())
  return found


def _parts(session: Session) -> dict[tuple[int, int], list[str]]:
  """Names of the encoder's parts by (layer, head)."""
  found: dict[tuple[int, int], list[str]] = {}
  site = session.plan.spec.site("encoder")
  for name, spec in session.plan.spec.parts.encoder:
    if not spec.embeds:
      for cell in spec.cells(site.layers, site.heads):
        found.setdefault(cell, []).append(name)
  return found


def _main(values: flags.FlagValues) -> None:
  for name, what in (
    ("workdir", "the folder of a trained run"),
    ("input", "a file of sentences, or - for standard input"),
  ):
    if not values[name].value:
      raise InputError(f"--{name} is missing: name {what}.")
  try:
    layers = [int(layer) for layer in values.layers] or None
  except ValueError:
    raise InputError(
      f"--layers={','.join(values.layers)}: numbers from 0, as in 0,2."
    ) from None
  if values.output:
    exits.check_target(values.output, "--output", folder=True)
  logging.set_verbosity(logging.ERROR)
  set_up_jax()
  session = Session(
    values.workdir, checkpoint=values.checkpoint, parser=values.parser
  )
  trees = values.conllu or stream.is_conllu(values.input)
  sources = text.whole(stream.sentences(values.input, trees))
  report = run(session, sources, values.output, values.limit, layers)
  print(f"parameters: {session.chosen}")
  if report.probe["heads"]:
    print(as_text(report.probe))
  elif report.probe["sentences"]:
    print("no probe: a recurrent encoder has no heads that look at words")
  print(
    f"{report.drawn} sentences drawn, {report.probe['sentences']} in the "
    f"probe: {report.output}"
  )
  for count, why in (
    (report.empty, "empty lines were skipped"),
    (report.too_long, f"lines of {session.longest} subwords or more were skipped"),
    (report.no_tree, "lines could not be parsed; they are not in the probe"),
  ):  # fmt: skip
    if count:
      print(f"{count} {why}.", file=sys.stderr)


if __name__ == "__main__":
  flags.DEFINE_string("workdir", None, "Folder of a trained run.")
  flags.DEFINE_string("input", None, "Text or CoNLL-U, plain or .gz; -: stdin.")
  flags.DEFINE_string("output", None, "Folder of the files; WORKDIR/inspect.")
  flags.DEFINE_bool("conllu", False, "The input is CoNLL-U (see also .conllu).")
  cli.number_flag(
    "limit", 20, Range(0, 1_000_000), "Sentences drawn; the probe is of all."
  )
  flags.DEFINE_list("layers", [], "Layers drawn, from 0, as in 0,2; all.")
  flags.DEFINE_string("checkpoint", "", '"best", "last" or a step.')
  flags.DEFINE_string("parser", "", "UDPipe model, if it is not in the folder.")
  cli.main(_main)
