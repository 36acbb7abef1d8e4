"""Checks of the options of a dataset beyond their types."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping, Sequence

from jaxsyn.data import schema
from jaxsyn.data.options import Data
from jaxsyn.errors import InputError, did_you_mean
from jaxsyn.preprocess.corpus import DataConfig
from jaxsyn.preprocess.readers import has_both_sides
from jaxsyn.preprocess.tfds_input import PREFIX

RESERVED_NAMES = (
  "conllu",
  "raw",
  "text",
  "work",
)  # folders of a prepared folder


def check(config: DataConfig) -> None:
  """Raises InputError for options that are wrong or contradict each other."""
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
  for name, entries_given in prepare.splits.items():
    first = "".join(entries_given[:1])
    allowed = {1, 2} if has_both_sides(first) else {2, 3}
    if first.startswith(PREFIX):
      allowed = {1, 2, 3}
    if len(entries_given) not in allowed:
      raise InputError(
        f"config.prepare.splits.{name} must be two files (source, target) or one"
        " of both sides (.tsv, .jsonl), then perhaps the lines (1-800); or"
        ' ("tfds:NAME", TFDS split), then perhaps the lines;'
        f" got {entries_given!r}."
      )
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
    files_given = getattr(prepare.parse, f"{side}_conllu")
    lacking = (
      sorted(set(prepare.splits) - set(files_given)) if files_given else []
    )
    if lacking or not set(files_given) <= set(prepare.splits):
      raise InputError(
        f"config.prepare.parse.{side}_conllu must name a file for each split"
        f" ({', '.join(sorted(prepare.splits))}), has {sorted(files_given)}."
      )
    more = getattr(prepare.parse, f"{side}_alternatives")
    if more and side not in prepare.parse.sides:
      raise InputError(
        f"config.prepare.parse.{side}_alternatives are parses of a side that"
        f" config.prepare.parse.sides={prepare.parse.sides} has no trees of."
      )
    if more and not {data.train} <= set(more) <= set(prepare.splits):
      raise InputError(
        f"config.prepare.parse.{side}_alternatives must name the files of the"
        f" split {data.train} and may those of others of"
        f" {', '.join(sorted(prepare.splits))}, has {sorted(more)}."
      )
  _check_alignments(data, prepare.alignments, prepare.splits)
  files_given = prepare.parse.source_brackets
  if files_given and not {data.train} <= set(files_given) <= set(
    prepare.splits
  ):
    raise InputError(
      "config.prepare.parse.source_brackets must name a file for the split"
      f" {data.train} and may for others of {', '.join(sorted(prepare.splits))},"
      f" has {sorted(files_given)}."
    )


def _check_alignments(
  data: Data, files_given: Mapping[str, Sequence[str]], splits: Collection[str]
) -> None:
  """Raises InputError unless alignments belong to splits, one to training."""
  if files_given and not {data.train} <= set(files_given) <= set(splits):
    raise InputError(
      "config.prepare.alignments must name the files of the split"
      f" {data.train} and may those of others of {', '.join(sorted(splits))},"
      f" has {sorted(files_given)}."
    )
  for name, entries_given in files_given.items():
    if len(entries_given) not in (1, 3):
      raise InputError(
        f"config.prepare.alignments.{name} must be (file,), or (file, source,"
        f" target) with the files of the words that it links, got {entries_given!r}."
      )


@dataclasses.dataclass(frozen=True)
class SplitEntry:
  """An entry of config.prepare.splits.

  Attributes:
    source: files of the source, or what has both sides.
    target: files of the target; the same as `source` if that has both sides.
    lines: lines that are taken, "" for all.
    tfds_split: split of the TFDS dataset, "" for that of the same name.
  """

  source: str
  target: str
  lines: str = ""
  tfds_split: str = ""

  @property
  def is_tfds(self) -> bool:
    return self.source.startswith(PREFIX)


def split_entry(entry: Sequence[str]) -> SplitEntry:
  """Returns an entry of config.prepare.splits, whose length is checked."""
  source, *rest = entry
  if source.startswith(PREFIX):
    tfds_split, lines = (*rest, "", "")[:2]
    return SplitEntry(source, source, lines, tfds_split)
  if has_both_sides(source):
    return SplitEntry(source, source, "".join(rest))
  target, lines = (*rest, "")[:2]
  return SplitEntry(source, target, lines)


def _check_names(data: Data, splits: Collection[str]) -> None:
  """Raises InputError where config.data names a split that is not prepared."""
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
