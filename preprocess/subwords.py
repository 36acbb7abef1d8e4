"""The vocabulary of a data set, and what it makes of the training pairs.

`preprocess.clean` comes before, the parser after: what is dropped here need not
be parsed.
"""

from __future__ import annotations

import dataclasses
import json
import pathlib
from collections.abc import Iterator, Mapping, Sequence

from jaxsyn.config import Config
from jaxsyn.data import schema
from jaxsyn.data.sentence.vocabulary import Vocabulary, train
from jaxsyn.data.store import manifests
from jaxsyn.errors import InputError
from jaxsyn.preprocess import clean
from jaxsyn.preprocess.clean import Pair
from jaxsyn.preprocess.corpus import Tools
from jaxsyn.preprocess.work import Facts, Output
from jaxsyn.storage import checksums, files

_HASHES = 1 << 64


def given(config: Config) -> dict[str, Vocabulary]:
  """Side -> vocabulary of config.prepare.vocabulary.like; empty: none is named.

  Raises:
    InputError: it is no prepared folder, or not of the sides' vocabularies.
  """
  options = config.prepare.vocabulary
  if not options.like:
    return {}
  manifest = manifests.read(options.like)
  found = {
    side: manifests.vocabulary(options.like, manifest, side)
    for side in schema.SIDES
  }
  joint = len({vocabulary.sha256 for vocabulary in found.values()}) == 1
  if joint != options.joint:
    raise InputError(
      f"config.prepare.vocabulary.joint is {options.joint}, but"
      f" {options.like}, whose vocabulary is to be taken, has"
      f" {'one for both sides' if joint else 'one for each side'}."
    )
  return found


def samples(tools: Tools) -> int:
  """Of how many chunks there is a sample: none where no vocabulary is made."""
  if tools.config.prepare.vocabulary.like:
    return 0
  return len(tools.chunks(tools.config.data.train))


def sample(tools: Tools, number: int, out: Output) -> Facts:
  """Those kept training pairs of a chunk that the vocabulary is made from.

  All of them where they are few enough; else those with the lowest hashes, so
  that it depends on nothing but the pairs.
  """
  number += tools.chunks(tools.config.data.train).start
  pairs = tools.chunk(number).pairs()
  kept = [pairs[row] for row in clean.kept_rows(tools, number)]
  there = _there(tools)
  wanted = tools.config.prepare.vocabulary.sample
  if there > wanted:
    most = _HASHES * wanted // there
    kept = [
      pair
      for pair in kept
      if int.from_bytes(clean.key(pair)[:8], "little") < most
    ]
  out.write_page("pairs", kept)
  return {"pairs": len(kept)}


def _there(tools: Tools) -> int:
  """How many training pairs are clean."""
  train = tools.job.splits[0].name
  cut, dropped = tools.cuts[0], tools.work.read_page("dropped.page")[train]
  return cut.last - cut.first - sum(dropped.values())


def groups(tools: Tools) -> list[tuple[str, ...]]:
  """The sides of each vocabulary that is to be made: none where it is given."""
  if tools.config.prepare.vocabulary.like:
    return []
  if tools.config.prepare.vocabulary.joint:
    return [schema.SIDES]
  return [(side,) for side in schema.SIDES]


def vocabulary(tools: Tools, number: int, out: Output) -> Facts:
  """One vocabulary: of an earlier call, or of the sample."""
  options, sides = tools.config.prepare.vocabulary, groups(tools)[number]
  lines = list(_lines(tools, sides))
  # What was used to train it is in its name.
  said = dataclasses.asdict(options)
  del said["sample"], said["like"]  # the lines tell
  key = manifests.sha256_texts([json.dumps(said, sort_keys=True), *lines])[:32]
  path = tools.job.kept / f"vocabulary-{key}.model"
  if _as_made(path, out):
    found = Vocabulary(path)
  else:
    out.said.append(f"training a vocabulary on {len(lines):,} lines")
    found = train(lines, path, options)
    files.write_json(_sums(path), checksums.sums(path.parent, [path.name]))
  if found.size != options.size:
    out.said.append(
      f"the text is enough for a vocabulary of {found.size} pieces, not"
      f" {options.size}"
    )
  out.add(path)
  return dict.fromkeys(sides, str(path))


def after(tools: Tools, facts: Sequence[Facts]) -> None:
  """Writes down where the vocabulary of each side is.

  One that is given is copied here, by the launcher: workers need not see the
  folder that it is from.
  """
  paths = {side: path for fact in facts for side, path in fact.items()}
  for side, found in given(tools.config).items():
    path = tools.job.kept / f"vocabulary-{found.sha256[:32]}.model"
    files.copy(found.path, path)
    paths[side] = str(path)
  tools.work.write_page("vocabularies.page", paths)


def _lines(tools: Tools, sides: Sequence[str]) -> Iterator[str]:
  """The sample, side after side."""
  chunks = len(tools.chunks(tools.config.data.train))
  for side in sides:
    column = schema.SIDES.index(side)
    for chunk in range(chunks):
      for pair in tools.work.read_page(f"sample/{chunk}.pairs"):
        yield pair[column]


def _sums(path: pathlib.Path) -> pathlib.Path:
  return path.with_suffix(".json")


def _as_made(path: pathlib.Path, out: Output) -> bool:
  """Whether a vocabulary of an earlier call is there, as it was made."""
  try:
    expected = files.read_json(_sums(path))[path.name]
    wrong = checksums.damaged(path.parent, {path.name: expected})
  except (OSError, ValueError, LookupError, TypeError):  # not made, or damaged
    return False
  if wrong:
    out.said.append(f"damaged: {wrong}")
  return not wrong


def fitting(
  tools: Tools, pairs: Sequence[Pair], rows: Sequence[int]
) -> tuple[list[int], dict[str, int]]:
  """The training pairs of no more subwords than wanted, EOS included.

  And those that have some on both sides, where empty ones are to go: "▁" alone is
  text, and yet a blank to the vocabulary.

  Args:
    tools: of the job.
    pairs: of a chunk.
    rows: which of them are looked at.

  Returns: the rows that stay; reason -> how many go.
  """
  most, empty = tools.config.prepare.max_subwords, 0
  kept, long = [], 0
  vocabularies = [tools.vocabularies[side] for side in schema.SIDES]
  for row in rows:
    lengths = [
      len(vocabulary.ids(text))
      for vocabulary, text in zip(vocabularies, pairs[row])
    ]
    if tools.config.prepare.clean.empty and not all(lengths):
      empty += 1
    elif max(lengths) + 1 > most:  # EOS is one more
      long += 1
    else:
      kept.append(row)
  return kept, {"empty": empty, "max_subwords": long}


def check_left(most: int, dropped: Mapping[str, int], kept: int) -> None:
  """Raises InputError where `fitting` has left nothing.

  Args:
    most: config.prepare.max_subwords.
    dropped: reason -> how many, of all chunks.
    kept: how many pairs.
  """
  if not kept:
    none = dropped["empty"]
    raise InputError(
      f"config.prepare.max_subwords={most} drops all training pairs"
      + (f", but {none} that have no subwords." if none else ".")
    )
