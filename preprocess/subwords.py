"""The vocabulary of a data set, and what it makes of the training pairs.

`preprocess.clean` comes before, the parser after: what is dropped here need not
be parsed.
"""

from __future__ import annotations

import dataclasses
import json
import pathlib
from collections.abc import Iterator, Mapping, Sequence

from jaxsyn.data import schema
from jaxsyn.data.options import DataConfig
from jaxsyn.data.sentence.vocabulary import Vocabulary, train
from jaxsyn.data.store import manifests
from jaxsyn.errors import InputError
from jaxsyn.preprocess import clean
from jaxsyn.preprocess.clean import Pair
from jaxsyn.preprocess.corpus import Tools
from jaxsyn.preprocess.work import Facts, Output
from jaxsyn.storage import checksums, files

_HASHES = 1 << 64


def given_vocabularies(config: DataConfig) -> dict[str, Vocabulary]:
  """Side -> vocabulary of config.prepare.vocabulary.like; empty: none is named.

  Raises:
    InputError: it is no prepared folder, or not of the sides' vocabularies.
  """
  options = config.prepare.vocabulary
  if not options.like:
    return {}
  manifest = manifests.read(options.like)
  vocabularies = {
    side: manifests.vocabulary(options.like, manifest, side)
    for side in schema.SIDES
  }
  joint = len({vocabulary.sha256 for vocabulary in vocabularies.values()}) == 1
  if joint != options.joint:
    raise InputError(
      f"config.prepare.vocabulary.joint is {options.joint}, but"
      f" {options.like}, whose vocabulary is to be taken, has"
      f" {'one for both sides' if joint else 'one for each side'}."
    )
  return vocabularies


def samples(tools: Tools) -> int:
  """Of how many chunks there is a sample: none where no vocabulary is made."""
  if tools.config.prepare.vocabulary.like:
    return 0
  return len(tools.chunks(tools.config.data.train))


def sample(tools: Tools, index: int, out: Output) -> Facts:
  """Those kept training pairs of a chunk that the vocabulary is made from.

  All of them where they are few enough; else those with the lowest hashes, so
  that it depends on nothing but the pairs.
  """
  index += tools.chunks(tools.config.data.train).start
  pairs = tools.chunk(index).pairs()
  sampled = [pairs[row] for row in clean.kept_rows(tools, index)]
  candidates = _candidate_count(tools)
  wanted = tools.config.prepare.vocabulary.sample
  if candidates > wanted:
    hash_limit = _HASHES * wanted // candidates
    sampled = [
      pair
      for pair in sampled
      if int.from_bytes(clean.key(pair)[:8], "little") < hash_limit
    ]
  out.write_json("pairs", sampled)
  return {"pairs": len(sampled)}


def _candidate_count(tools: Tools) -> int:
  """How many training pairs are clean."""
  train = tools.job.splits[0].name
  cut, dropped = tools.cuts[0], tools.work.read_json("dropped.page")[train]
  return cut.last - cut.first - sum(dropped.values())


def groups(tools: Tools) -> list[tuple[str, ...]]:
  """The sides of each vocabulary that is to be made: none where it is given."""
  if tools.config.prepare.vocabulary.like:
    return []
  if tools.config.prepare.vocabulary.joint:
    return [schema.SIDES]
  return [(side,) for side in schema.SIDES]


def vocabulary(tools: Tools, index: int, out: Output) -> Facts:
  """One vocabulary: of an earlier call, or of the sample."""
  options, sides = tools.config.prepare.vocabulary, groups(tools)[index]
  lines = list(_lines(tools, sides))
  # What was used to train it is in its name.
  recorded = dataclasses.asdict(options)
  del recorded["sample"], recorded["like"]  # the lines tell
  key = manifests.sha256_texts([json.dumps(recorded, sort_keys=True), *lines])[
    :32
  ]
  path = tools.job.retained / f"vocabulary-{key}.model"
  if _as_made(path, out):
    made = Vocabulary(path)
  else:
    out.said.append(f"training a vocabulary on {len(lines):,} lines")
    made = train(lines, path, options)
    files.write_json(
      _sums(path), checksums.file_checksums(path.parent, [path.name])
    )
  if made.size != options.size:
    out.said.append(
      f"the text is enough for a vocabulary of {made.size} pieces, not"
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
  for side, vocabulary_ in given_vocabularies(tools.config).items():
    path = tools.job.retained / f"vocabulary-{vocabulary_.sha256[:32]}.model"
    files.copy(vocabulary_.path, path)
    paths[side] = str(path)
  tools.work.write_json("vocabularies.page", paths)


def _lines(tools: Tools, sides: Sequence[str]) -> Iterator[str]:
  """The sample, side after side."""
  chunks = len(tools.chunks(tools.config.data.train))
  for side in sides:
    column = schema.SIDES.index(side)
    for chunk in range(chunks):
      for pair in tools.work.read_json(f"sample/{chunk}.pairs"):
        yield pair[column]


def _sums(path: pathlib.Path) -> pathlib.Path:
  return path.with_suffix(".json")


def _as_made(path: pathlib.Path, out: Output) -> bool:
  """Whether a vocabulary of an earlier call is there, as it was made."""
  try:
    expected = files.read_json(_sums(path))[path.name]
    wrong = checksums.corrupt_files(path.parent, {path.name: expected})
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
  limit, empty = tools.config.prepare.max_subwords, 0
  rows_kept, long = [], 0
  vocabularies = [tools.vocabularies[side] for side in schema.SIDES]
  for row in rows:
    lengths = [
      len(vocabulary.ids(text))
      for vocabulary, text in zip(vocabularies, pairs[row])
    ]
    if tools.config.prepare.clean.empty and not all(lengths):
      empty += 1
    elif max(lengths) + 1 > limit:  # EOS is one more
      long += 1
    else:
      rows_kept.append(row)
  return rows_kept, {"empty": empty, "max_subwords": long}


def check_left(limit: int, dropped: Mapping[str, int], count: int) -> None:
  """Raises InputError where `fitting` has left nothing.

  Args:
    limit: config.prepare.max_subwords.
    dropped: reason -> how many, of all chunks.
    count: how many pairs.
  """
  if not count:
    none = dropped["empty"]
    raise InputError(
      f"config.prepare.max_subwords={limit} drops all training pairs"
      + (f", but {none} that have no subwords." if none else ".")
    )
