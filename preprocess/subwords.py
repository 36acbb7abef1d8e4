"""The vocabulary of a data set, and what it makes of the training pairs.

`preprocess.clean` comes before, the parser after: what is dropped here need not
be parsed.
"""

from __future__ import annotations

import dataclasses
import json
import pathlib
from collections.abc import Mapping

from tqdm import tqdm

from jaxsyn import files
from jaxsyn.config import Config
from jaxsyn.data import schema
from jaxsyn.data.sentence.vocabulary import Vocabulary, train
from jaxsyn.data.store import manifests
from jaxsyn.errors import InputError
from preprocess.split import RawSplit


def vocabularies(
  config: Config, splits: Mapping[str, RawSplit], work: pathlib.Path
) -> dict[str, Vocabulary]:
  """Side -> vocabulary; twice the same object if it is joint."""
  options, split = config.prepare.vocabulary, splits[config.data.train]
  groups = [schema.SIDES] if options.joint else [(s,) for s in schema.SIDES]
  found: dict[str, Vocabulary] = {}
  for sides in groups:
    lines = [line for side in sides for line in split.lines(side)]
    # What was used to train it is in its name.
    said = json.dumps(dataclasses.asdict(options), sort_keys=True)
    key = manifests.sha256_texts([said, *lines])[:32]
    path = work / f"vocabulary-{key}.model"
    if _as_made(path):
      vocabulary = Vocabulary(path)
    else:
      print(f"training a vocabulary on {len(lines):,} lines", flush=True)
      vocabulary = train(lines, path, options)
      files.write_json(_sums(path), files.sums(work, [path.name]))
    if vocabulary.size != options.size:
      print(
        f"the text is enough for a vocabulary of {vocabulary.size} pieces, not"
        f" {options.size}"
      )
    found |= dict.fromkeys(sides, vocabulary)
  return found


def _sums(path: pathlib.Path) -> pathlib.Path:
  return path.with_suffix(".json")


def _as_made(path: pathlib.Path) -> bool:
  """Whether a vocabulary of an earlier call is there, as it was made."""
  try:
    expected = files.read_json(_sums(path))[path.name]
    wrong = files.damaged(path.parent, {path.name: expected})
  except (OSError, ValueError, LookupError, TypeError):  # not made, or damaged
    return False
  if wrong:
    print(f"damaged: {wrong}", flush=True)
  return not wrong


def drop(
  config: Config,
  splits: Mapping[str, RawSplit],
  vocabularies: Mapping[str, Vocabulary],
) -> None:
  """Drops training pairs of more subwords than wanted, EOS included.

  And those that have none on a side, where empty ones are to go: "▁" alone is
  text, and yet a blank to the vocabulary.
  """
  split, most = splits[config.data.train], config.prepare.max_subwords
  kept, none, long = [], 0, 0
  for i in tqdm(split.kept, "counting subwords", unit="pair", disable=None):
    lengths = [
      len(vocabularies[side].encode(split.all_lines(side)[i]).id)
      for side in schema.SIDES
    ]
    if config.prepare.clean.empty and not all(lengths):
      none += 1
    elif max(lengths) + 1 > most:  # EOS is one more
      long += 1
    else:
      kept.append(i)
  if none:
    split.dropped["empty"] += none
  split.dropped["max_subwords"] = long
  if not kept:
    raise InputError(
      f"config.prepare.max_subwords={most} drops all training pairs"
      + (f", but {none} that have no subwords." if none else ".")
    )
  split.kept = kept
