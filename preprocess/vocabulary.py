"""Trains a dataset's subword vocabulary on a sample of its clean pairs."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from jaxsyn.data import schema
from jaxsyn.data.options import DataConfig
from jaxsyn.data.sentence.vocabulary import Subwords, Vocabulary, train
from jaxsyn.data.store import manifests
from jaxsyn.errors import InputError
from jaxsyn.preprocess import clean, selection
from jaxsyn.preprocess.job import PrepareJob
from jaxsyn.preprocess.optional import Pair
from jaxsyn.preprocess.outputs import Result, TaskOutput
from jaxsyn.storage import checksums, files

_HASHES = 1 << 64
_SAMPLE = 1_000_000  # training pairs that a vocabulary is trained on, about


def given_vocabularies(config: DataConfig) -> dict[str, Vocabulary]:
  """Loads the vocabularies of the dataset in config.prepare.vocabulary.like.

  Raises:
    InputError: The path has no dataset, or only one of its vocabulary and the
      configured vocabulary is joint.
  """
  options = config.prepare.vocabulary
  if not options.like:
    return {}
  manifest = manifests.read(options.like)
  vocabularies = {
    side: manifests.vocabulary(options.like, manifest, side)
    for side in schema.SIDES
  }
  is_joint = (
    len({vocabulary.sha256 for vocabulary in vocabularies.values()}) == 1
  )
  if is_joint != options.joint:
    raise InputError(
      f"config.prepare.vocabulary.joint is {options.joint}, but"
      f" {options.like}, whose vocabulary is to be used, has"
      f" {'one for both sides' if is_joint else 'one for each side'}."
    )
  return vocabularies


def count(job: PrepareJob) -> int:
  """Returns the number of vocabularies to train: 0, 1 or 2."""
  options = job.config.prepare.vocabulary
  if options.like:
    return 0
  return 1 if options.joint else len(schema.SIDES)


def make_vocabulary(job: PrepareJob, number: int, out: TaskOutput) -> Result:
  """Trains a vocabulary on the sampled pairs.

  Returns:
    Side -> path of its vocabulary.
  """
  options = job.config.prepare.vocabulary
  sides = schema.SIDES if options.joint else schema.SIDES[number : number + 1]
  pairs = sampled_pairs(job)
  lines: list[str] = []
  for side in sides:
    lines += [pair[schema.SIDES.index(side)] for pair in pairs]
  path = job.outputs.folder / model_file(options, sides[0])
  out.add_message(f"trained a vocabulary on {len(lines):,} lines")
  made = train(lines, path, options)
  if made.size != options.size:
    out.add_message(
      f"the text is enough for a vocabulary of {made.size} pieces, not"
      f" {options.size}"
    )
  out.add_file(path, checksums.crc_of(path))
  return dict.fromkeys(sides, str(path))


def model_file(options: Subwords, side: str) -> str:
  """Returns the name of a side's vocabulary in the dataset directory."""
  return "vocabulary.model" if options.joint else f"{side}.model"


def sampled_pairs(job: PrepareJob) -> list[Pair]:
  """Returns a sample of the clean training pairs.

  If there are too many pairs, those with the lowest hashes are sampled, so that
  the sample depends only on the pairs.
  """
  candidates = job.summary("duplicates")["kept"]
  limit = _HASHES * _SAMPLE // candidates
  sampled = []
  for number in job.train_chunks:
    pairs = job.chunk(number).pairs()
    for row in selection.kept_rows(job, number):
      if candidates <= _SAMPLE or _hash(pairs[row]) < limit:
        sampled.append(pairs[row])
  return sampled


def _hash(pair: Pair) -> int:
  return int.from_bytes(selection.pair_key(pair)[:8], "little")


def combine(
  job: PrepareJob, results: Sequence[Result], out: TaskOutput
) -> Result:
  """Returns a dict from each side to the path of its vocabulary.

  Copies a vocabulary of another dataset, whose folder workers may not see.
  """
  paths: Result = {}
  for result in results:
    paths |= result
  for side, given in given_vocabularies(job.config).items():
    options = job.config.prepare.vocabulary
    path = job.outputs.folder / model_file(options, side)
    files.copy(given.path, path)
    paths[side] = str(path)
  return paths


def drop_long(
  job: PrepareJob, pairs: Sequence[Pair], code_P: np.ndarray
) -> np.ndarray:
  """Drops pairs with a side that is too long or has no subwords.

  A side is too long if it has more than max_subwords subwords, including EOS. A
  side with text may have no subwords: the vocabulary reads a lone "▁" as a space.

  Args:
    job: Preparation job.
    pairs: Training pairs.
    code_P: Value of `clean.CODES` of each pair.

  Returns:
    Codes with those of the dropped pairs.
  """
  limit, code_P = job.config.prepare.max_subwords, code_P.copy()
  source, target = (job.vocabularies[side] for side in schema.SIDES)
  for row in np.flatnonzero(code_P == 0).tolist():
    lengths = len(source.ids(pairs[row][0])), len(target.ids(pairs[row][1]))
    if not all(lengths):
      code_P[row] = clean.CODES["empty"]
    elif max(lengths) + 1 > limit:  # EOS is one more
      code_P[row] = clean.CODES["max_subwords"]
  return code_P
