"""Which lines of which files are a split."""

from __future__ import annotations

import os
import pathlib
from collections.abc import Mapping, Sequence

from jaxsyn.errors import InputError
from jaxsyn.storage import remote
from jaxsyn.survey import choices
from jaxsyn.survey.pairs import CorpusStats, Files


def check(splits: Sequence[Files]) -> None:
  """Raises InputError for names that a config cannot say."""
  for name in (name for split in splits for name in split.names):
    if remote.is_remote(name):
      raise InputError(
        f"{name}: here files on this machine are looked at. Copy it, or write "
        "the config by hand: a raw_dir on an object store will do."
      )
    if not os.path.isfile(name):
      raise InputError(f"{name} is missing or no file.")
    plain = name.encode(errors="replace").decode()
    if (
      not plain.isprintable()
      or plain != name
      or set(",*?[") & {*os.path.basename(name)}
    ):
      raise InputError(
        f"{plain}: in a config a comma parts files, and *, ? and [ make a "
        "pattern. Give the file a name without them."
      )


def held_out(train: CorpusStats, splits: int) -> choices.ChosenValue:
  """How many pairs each of so many splits has, cut off the training files.

  Raises:
    InputError: there are too few.
  """
  if splits and min(train.count, train.different) < choices.FEWEST:
    remark = f", {train.different} different ones" * (
      train.different < train.count
    )
    raise InputError(
      f"{train.files}: {train.count} pairs{remark}; to hold some out for "
      f"validation and testing {choices.FEWEST} are needed. Give more, or files "
      "for both: --dev_source, --dev_target, --test_source, --test_target."
    )
  return choices.held_out(train.count)


def entries(
  splits: Mapping[str, Files | None],
  folder: pathlib.Path,
  train: CorpusStats,
  held_out_count: int,
) -> tuple[str, dict[str, tuple[str, ...]]]:
  """The folder of the raw files, and what each split takes of them."""
  paths = {
    name: os.path.abspath(name)
    for files in splits.values()
    if files
    for name in files.names
  }
  raw_dir = os.path.commonpath([os.path.dirname(p) for p in paths.values()])
  splits_found: dict[str, tuple[str, ...]] = {}

  def entry(files: Files) -> tuple[str, ...]:
    return tuple(os.path.relpath(paths[name], raw_dir) for name in files.names)

  first = 1
  for split, split_files in splits.items():
    if split_files:
      splits_found[split] = entry(split_files)
    else:
      lines = f"{first}-{first + held_out_count - 1}"
      splits_found[split] = (*entry(train.files), lines)
      first += held_out_count
  if first > 1:
    splits_found["train"] = (*entry(train.files), f"{first}-")
  is_same = raw_dir == os.path.abspath(folder)
  return "" if is_same else raw_dir, splits_found
