"""What goes into a data set: options, raw files, parsers, and their hash.

`preprocess.build` asks here first, so that what is wrong with a config or a
file is said before anything is made of it.
"""

from __future__ import annotations

import dataclasses
import json
import pathlib
import re
from collections.abc import Callable, Collection, Mapping

from jaxsyn.config import Config
from jaxsyn.data import schema
from jaxsyn.data.sentence.align import visible
from jaxsyn.data.sentence.parser import UDPipe
from jaxsyn.data.sentence.stream import is_conllu
from jaxsyn.data.store import fetch, manifests, parser_models
from jaxsyn.errors import InputError
from jaxsyn.files import sha256_of
from preprocess import options, raw
from preprocess.split import RawSplit

RECIPE = 2  # raise it when the same input must be prepared anew
_LINES = re.compile(r"([0-9]{1,15})-([0-9]{0,15})")


@dataclasses.dataclass(frozen=True)
class Inputs:
  """What a data set is made from.

  Attributes:
    config: of the data set.
    splits: by name, the training split first.
    parsers: of each side with trees. Where those come as CoNLL-U it is the one
      that `jaxsyn.translate` shall use, and None if the config names none.
    fetched: folder for fetched files.
    key: hash of all that decides what comes out.
  """

  config: Config
  splits: dict[str, RawSplit]
  parsers: dict[str, UDPipe | None]
  fetched: pathlib.Path
  key: str

  @property
  def train(self) -> RawSplit:
    return self.splits[self.config.data.train]

  @property
  def files(self) -> list[pathlib.Path]:
    """The files that splits are made from: texts and trees."""
    return [file for split in self.splits.values() for file in split.files]

  @property
  def downloads(self) -> dict[str, str]:
    """File name -> SHA-256 and origin of what was fetched, of all of them."""
    paths = {parser.path for parser in self.parsers.values() if parser}
    return {
      path.name: origin
      for path in sorted(paths.union(self.files))
      if path.parent == self.fetched and (origin := fetch.record(path))
    }


def read_inputs(config: Config, raw_dir: str, fetched: pathlib.Path) -> Inputs:
  """Reads the raw files and finds the parsers.

  Args:
    config: of the data set.
    raw_dir: folder of the raw files; "" for config.prepare.raw_dir.
    fetched: folder for fetched files.

  Raises:
    InputError: an option is wrong, a file is missing or faulty (`preprocess.raw`), a
      split has no text, or there is no such parser.
  """
  options.check(config)
  downloads = raw.addresses(config.prepare.downloads)
  raw_dir = raw_dir or config.prepare.raw_dir

  def find(name: str) -> pathlib.Path:
    return raw.find(name, raw_dir, own=fetched, downloads=downloads)

  # The training split first, then as the config has them.
  names = dict.fromkeys([config.data.train, *config.prepare.splits])
  splits = {name: _read_split(config, name, find) for name in names}
  _find_trees(config, splits, raw_dir, find=find, downloads=downloads)
  parsers: dict[str, UDPipe | None] = {}
  for side in schema.SIDES:
    if side in config.prepare.parse.sides:
      model = getattr(config.prepare.parse, f"{side}_model")
      given = side in splits[config.data.train].given
      language = getattr(config.data, f"{side}_language")
      parsers[side] = None
      if model or not given:
        path = parser_models.find(model, language, fetched, downloads=downloads)
        parsers[side] = UDPipe(path, config.prepare.parse.beam)
  key = _key(config, splits, parsers)
  return Inputs(config, splits, parsers=parsers, fetched=fetched, key=key)


def _read_split(
  config: Config, name: str, find: Callable[[str], pathlib.Path]
) -> RawSplit:
  """The raw lines of a split, and which of them it takes."""
  *files, lines = (*config.prepare.splits[name], "")[:3]
  source, target = map(find, files)
  print(f"reading {name}: {source}, {target}", flush=True)
  pairs = raw.read_pairs(source, target)
  split = RawSplit(name, pairs, list(_numbers(lines, len(pairs), name)))
  if not any(
    visible(pairs.source[i]) and visible(pairs.target[i]) for i in split.kept
  ):
    what = f"no line taken of {source} has text, and text in {target} too"
    if not pairs.source:
      what = f"{source} and {target} are empty"
    raise InputError(
      f"config.prepare.splits.{name}: {what}. Give other files or lines."
    )
  return split


def _numbers(lines: str, count: int, name: str) -> range:
  """Numbers of the pairs of a split, from 0.

  Args:
    lines: "FIRST-LAST", from 1 and both included; "FIRST-" to the last line;
      "" for all.
    count: pairs that the files have.
    name: of the split.
  """
  if not lines:
    return range(count)
  found = _LINES.fullmatch(lines)
  first, last = (int(n or count) for n in found.groups()) if found else (0, 0)
  if not 1 <= first <= last <= count:
    raise InputError(
      f"config.prepare.splits.{name}: the lines must be FIRST-LAST, or FIRST- to"
      f" the last, of 1 to {count} as the files have, got {lines!r}. Where the "
      "other splits take too many lines, give them fewer: with configs/own.py, "
      "held_out=50."
    )
  return range(first - 1, last)


def _find_trees(
  config: Config,
  splits: Mapping[str, RawSplit],
  raw_dir: str,
  *,
  find: Callable[[str], pathlib.Path],
  downloads: Collection[str],
) -> None:
  """Finds the files of trees that are given, and tells the splits."""
  wanted = config.prepare.parse

  def file_of(option: str, name: str) -> pathlib.Path:
    file = getattr(wanted, option)[name]
    if file in downloads:
      return find(file)
    for place in (pathlib.Path(raw_dir, file), pathlib.Path(file)):
      if place.is_file():
        return place
    raise InputError(
      f"config.prepare.parse.{option}.{name}: there is no file {file}, nor is"
      f" it in the folder of the raw files ({raw_dir or 'not set'})."
    )

  for side in wanted.sides:
    given = getattr(wanted, f"{side}_conllu")
    if not given and not getattr(wanted, f"{side}_model"):
      for name in _treebanks(splits, side):
        splits[name].given[side] = splits[name].file(side)
    for name in given:
      splits[name].given[side] = file_of(f"{side}_conllu", name)
  for name in wanted.source_brackets:
    splits[name].brackets = file_of("source_brackets", name)


def _treebanks(splits: Mapping[str, RawSplit], side: str) -> list[str]:
  """The splits whose raw text has trees of its own: all or none."""
  found = [n for n, split in splits.items() if is_conllu(split.file(side))]
  lacking = [name for name in splits if name not in found]
  if found and lacking:
    raise InputError(
      f"the {side} files of {', '.join(found)} are treebanks, those of"
      f" {', '.join(lacking)} are not: say where trees come from, in"
      f" config.prepare.parse.{side}_model (a parser for all) or"
      f" config.prepare.parse.{side}_conllu (CoNLL-U for all)."
    )
  return found


def _key(
  config: Config,
  splits: Mapping[str, RawSplit],
  parsers: Mapping[str, UDPipe | None],
) -> str:
  """Hash of all that decides what comes out."""
  said = dataclasses.asdict(config.prepare)
  for name in ("raw_dir", "downloads", "workers"):
    del said[name]
  for side in schema.SIDES:
    del said["parse"][f"{side}_model"]  # its content counts, below
    said["parse"][f"{side}_conllu"] = {
      name: sha256_of(split.given[side])
      for name, split in splits.items()
      if side in split.given
    }
  del said["parse"]["source_brackets"]
  if not said["parse"]["annotations"]:  # data sets that are older are equal
    del said["parse"]["annotations"]
  brackets = {
    name: sha256_of(split.brackets)
    for name, split in splits.items()
    if split.brackets
  }
  facts = {
    "recipe": RECIPE,
    "options": said,
    "name": config.data.name,
    "languages": (config.data.source_language, config.data.target_language),
    "train": config.data.train,
    "raw": {name: split.pairs.sha256 for name, split in splits.items()},
    "parsers": {side: p and p.sha256 for side, p in parsers.items()},
    **({"brackets": brackets} if brackets else {}),
  }
  return manifests.sha256_texts([json.dumps(facts, sort_keys=True)])
