"""Checks of dataset options for consistency, in addition to type checks."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping, Sequence

from jaxsyn.data import schema
from jaxsyn.data.options import Data, DataConfig, Trees
from jaxsyn.errors import InputError, did_you_mean
from jaxsyn.preprocess.readers import READERS, reader_of

# Names of folders of a prepared folder.
RESERVED_NAMES = ("conllu", "raw", "text", "work")


@dataclasses.dataclass(frozen=True)
class SplitEntry:
  """A parsed entry of config.prepare.splits: the raw text of one split.

  Attributes:
    source: files of the source, or a file or TFDS dataset with both sides.
    target: files of the target; equals `source` if that has both sides.
    lines: range of lines to read, "" for all.
    tfds_split: split of the TFDS dataset, "" for the split of the same name.
  """

  source: str
  target: str
  lines: str = ""
  tfds_split: str = ""


def split_entry(entry: Sequence[str]) -> SplitEntry:
  """Parses an entry of config.prepare.splits that `check` has accepted."""
  source, *rest = entry
  reader = reader_of(source)
  if reader == "tfds":
    tfds_split, lines = (*rest, "", "")[:2]
    return SplitEntry(source, source, lines, tfds_split)
  if READERS[reader].has_both_sides:
    return SplitEntry(source, source, "".join(rest))
  target, lines = (*rest, "")[:2]
  return SplitEntry(source, target, lines)


def check(config: DataConfig) -> None:
  """Raises InputError for dataset options that are wrong or contradictory."""
  data, prepare = config.data, config.prepare
  if data.name in RESERVED_NAMES:
    raise InputError(
      f"config.data.name must not be {data.name!r}: a prepared folder has"
      " another folder of that name. Choose another."
    )
  if not prepare.splits:
    raise InputError(
      "config.prepare.splits is empty: say the two raw files of each split, as"
      ' in config.prepare.splits.train = ("train.en.gz", "train.de.gz").'
    )
  for name, entry in prepare.splits.items():
    _check_entry(name, entry)
  if len(prepare.fields) not in (0, 2):
    raise InputError(
      "config.prepare.fields must be two names, that of the source text and that"
      f" of the target text, got {prepare.fields!r}."
    )
  _check_names(data, prepare.splits)
  needed = {data.train, data.validation}
  for name in prepare.optional:
    if name not in prepare.splits or name in needed:
      tests = ", ".join(sorted(set(prepare.splits) - needed)) or "none"
      raise InputError(
        f"config.prepare.optional: {name} is not a test split of"
        f" config.prepare.splits. Test splits: {tests}."
      )
  for side in schema.SIDES:
    _check_trees(side, data, prepare.parse, prepare.splits)
  for option, what, given in (
    ("alignments", "the files of", prepare.alignments),
    ("parse.source_brackets", "a file for", prepare.parse.source_brackets),
  ):
    _check_given(option, what, given, data, prepare.splits)
  for name, entry in prepare.alignments.items():
    if len(entry) not in (1, 3):
      raise InputError(
        f"config.prepare.alignments.{name} must be (file,), or (file, source,"
        f" target) with the files of the words that it links, got {entry!r}."
      )


def _check_entry(name: str, entry: Sequence[str]) -> None:
  reader = reader_of("".join(entry[:1]))
  allowed = {1, 2} if READERS[reader].has_both_sides else {2, 3}
  if reader == "tfds":
    allowed = {1, 2, 3}
  if len(entry) not in allowed:
    raise InputError(
      f"config.prepare.splits.{name} must be two files (source, target) or one"
      " of two columns (.tsv) or two fields (.jsonl), then perhaps the lines"
      ' (1-800); or ("tfds:NAME", TFDS split), then perhaps the lines; got'
      f" {entry!r}."
    )


def _check_trees(
  side: str, data: Data, parse: Trees, splits: Collection[str]
) -> None:
  """Raises InputError if CoNLL-U options of a side do not match the splits."""
  given = getattr(parse, f"{side}_conllu")
  if given and set(given) != set(splits):
    raise InputError(
      f"config.prepare.parse.{side}_conllu must name a file for each split"
      f" ({', '.join(sorted(splits))}), has {sorted(given)}."
    )
  more = getattr(parse, f"{side}_alternatives")
  if more and side not in parse.sides:
    raise InputError(
      f"config.prepare.parse.{side}_alternatives are parses of a side that"
      f" config.prepare.parse.sides={parse.sides} has no trees of."
    )
  option = f"parse.{side}_alternatives"
  _check_given(option, "the files of", more, data, splits)


def _check_given(
  option: str,
  what: str,
  given: Mapping[str, object],
  data: Data,
  splits: Collection[str],
) -> None:
  """Raises InputError if an option has an unknown split or no training split.

  Args:
    option: name of the option in config.prepare.
    what: noun for the files, for the message.
    given: split -> files, the value of the option.
    data: data options, which name the training split.
    splits: names of all splits.
  """
  if given and not {data.train} <= set(given) <= set(splits):
    raise InputError(
      f"config.prepare.{option} must name {what} the split {data.train} and may"
      f" name those of others of {', '.join(sorted(splits))}, has"
      f" {sorted(given)}."
    )


def _check_names(data: Data, splits: Collection[str]) -> None:
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
  if rest := sorted(set(splits) - {name for _, name in wanted}):
    print(
      f"note: {', '.join(rest)}: prepared too, though no field of config.data"
      " names it"
    )
