"""Checks that dataset options are consistent, in addition to type checks."""

from __future__ import annotations

import dataclasses
import itertools
import operator
from collections.abc import Mapping, Sequence

from jaxsyn.data import schema
from jaxsyn.data.options import Data, DataConfig
from jaxsyn.errors import InputError, did_you_mean
from jaxsyn.preprocess.features import OPTIONAL
from jaxsyn.preprocess.readers import READERS, reader_of

# Names of folders in a dataset directory.
RESERVED_NAMES = ("conllu", "raw", "text", "work")


@dataclasses.dataclass(frozen=True)
class SplitEntry:
  """A parsed entry of config.prepare.splits: the raw text of one split.

  Attributes:
    source: Files of the source, or a file or TFDS dataset with both sides.
    target: Files of the target; equals `source` if that has both sides.
    lines: Range of lines to read, "" for all.
    tfds_split: Split of the TFDS dataset, "" for the split of the same name.
  """

  source: str
  target: str
  lines: str = ""
  tfds_split: str = ""


def split_entry(name: str, entry: Sequence[str]) -> SplitEntry:
  """Parses the entry of a split in config.prepare.splits.

  Raises:
    InputError: The entry has too few or too many parts.
  """
  source, *rest = entry or [""]
  reader = reader_of(source)
  if reader == "tfds" and len(rest) <= 2:
    tfds_split, lines = (*rest, "", "")[:2]
    return SplitEntry(source, source, lines, tfds_split)
  if READERS[reader].has_both_sides and len(rest) <= 1:
    return SplitEntry(source, source, "".join(rest))
  if not READERS[reader].has_both_sides and len(rest) in (1, 2):
    return SplitEntry(source, *rest)
  raise InputError(
    f"config.prepare.splits.{name} must be two files (source, target) or one"
    " of two columns (.tsv) or two fields (.jsonl), then perhaps the lines"
    ' (1-800); or ("tfds:NAME", TFDS split), then perhaps the lines; got'
    f" {entry!r}."
  )


def check(config: DataConfig) -> None:
  """Raises InputError for dataset options that are wrong or contradictory."""
  data, prepare, parse = config.data, config.prepare, config.prepare.parse
  splits = prepare.splits
  if data.name in RESERVED_NAMES:
    raise InputError(
      f"config.data.name must not be {data.name!r}: a dataset directory has"
      " another folder of that name. Choose another."
    )
  if not splits:
    raise InputError(
      "config.prepare.splits is empty: name the two raw files of each split, as"
      ' in config.prepare.splits.train = ("train.en.gz", "train.de.gz").'
    )
  for name, entry in splits.items():
    split_entry(name, entry)
  if len(prepare.fields) not in (0, 2):
    raise InputError(
      "config.prepare.fields must be two names, that of the source text and that"
      f" of the target text, got {prepare.fields!r}."
    )
  _check_names(data, splits)
  needed = {data.train, data.validation}
  for name in prepare.optional:
    if name not in splits or name in needed:
      tests = ", ".join(sorted(set(splits) - needed)) or "none"
      raise InputError(
        f"config.prepare.optional: {name} is not a test split of"
        f" config.prepare.splits. Test splits: {tests}."
      )
  for side in schema.SIDES:
    given = getattr(parse, f"{side}_conllu")
    if given and set(given) != set(splits):
      raise InputError(
        f"config.prepare.parse.{side}_conllu must name a file for each split"
        f" ({', '.join(sorted(splits))}), has {sorted(given)}."
      )
    if getattr(parse, f"{side}_alternatives") and side not in parse.sides:
      raise InputError(
        f"config.prepare.parse.{side}_alternatives are parses of a side that"
        f" config.prepare.parse.sides={parse.sides} has no trees of."
      )
  _check_optional(config)


def _check_optional(config: DataConfig) -> None:
  """Checks the options that name the input files of optional features."""
  prepare, train = config.prepare, config.data.train
  splits = set(prepare.splits)
  for option in itertools.chain.from_iterable(f.options for f in OPTIONAL):
    named = operator.attrgetter(option)(prepare)
    if named and not {train} <= set(named) <= splits:
      raise InputError(
        f"config.prepare.{option} must name the files of the split {train}"
        f" and may name those of others of {', '.join(sorted(splits))}, has"
        f" {sorted(named)}."
      )
  for name, links in prepare.alignments.items():
    if len(links) not in (1, 3):
      raise InputError(
        f"config.prepare.alignments.{name} must be (file,), or (file, source,"
        f" target) with the files of the words that it links, got {links!r}."
      )


def _check_names(data: Data, splits: Mapping[str, object]) -> None:
  """Raises InputError if config.data names a split that is not prepared."""
  wanted = [("train", data.train), ("validation", data.validation)]
  wanted += [("test", name) for name in data.test]
  for field, name in wanted:
    if name not in splits:
      none = " or set it to (), for none" if field == "test" else ""
      raise InputError(
        f"config.data.{field}: no split {name!r} in config.prepare.splits."
        f" {did_you_mean(name, splits)} Name its files there{none}."
      )
