"""What goes into a data set: options, raw files, parsers, and their hash.

`preprocess.build` asks here first, so that what is wrong with a config or a
file is said before anything is made of it.
"""

from __future__ import annotations

import dataclasses
import json
import os
import pathlib
import re
from collections.abc import Mapping

from jaxsyn import config as configs
from jaxsyn.data import manifest as manifests
from jaxsyn.data import schema
from jaxsyn.data.parser import UDPipe, find
from jaxsyn.errors import InputError, did_you_mean
from preprocess import raw

RECIPE = 1  # raise it when the same input must be prepared anew
_NAME = re.compile(r"[a-z][a-z0-9_]*")


@dataclasses.dataclass
class Split:
  """A split on its way.

  Attributes:
    pairs: the raw lines.
    kept: numbers of the pairs that become records, from 0.
    dropped: reason -> number of pairs.
    conllu: side -> file of the trees of the kept lines.
    brackets: file of constituency trees of all lines of the source; None: none.
  """

  pairs: raw.Pairs
  kept: list[int]
  dropped: dict[str, int]
  conllu: dict[str, pathlib.Path] = dataclasses.field(default_factory=dict)
  brackets: pathlib.Path | None = None

  def lines(self, side: str) -> list[str]:
    """The kept lines of a side."""
    texts = getattr(self.pairs, side)
    return [texts[i] for i in self.kept]

  @property
  def numbers(self) -> list[int]:
    """Line numbers in the raw file, from 1."""
    return [i + 1 for i in self.kept]


def check(config: configs.Config) -> None:
  """Raises InputError for what the types of the sections do not say."""
  data, prepare = config.data, config.prepare
  if not _NAME.fullmatch(data.name):
    raise InputError(
      f"config.data.name must be lower case letters, digits and underscores,"
      f" got {data.name!r}."
    )
  if not prepare.splits:
    raise InputError(
      "config.prepare.splits is empty: say the two raw files of each split, as"
      ' in config.prepare.splits.train = ("train.en.gz", "train.de.gz").'
    )
  for name, files in prepare.splits.items():
    if not _NAME.fullmatch(name) or len(files) != 2:
      raise InputError(
        f"config.prepare.splits.{name} must be a lower case name and two files"
        f" (source, target), got {files!r}."
      )
  if data.train not in prepare.splits:
    raise InputError(
      f"config.data.train: no split {data.train!r} in config.prepare.splits."
      f" {did_you_mean(data.train, prepare.splits)}"
    )
  for field, least in (("shards", 1), ("workers", 0), ("max_subwords", 2)):
    if getattr(prepare, field) < least:
      raise InputError(
        f"config.prepare.{field} must be at least {least}, got"
        f" {getattr(prepare, field)}."
      )
  for side in schema.SIDES:
    given = getattr(prepare.parse, f"{side}_conllu")
    lacking = sorted(set(prepare.splits) - set(given)) if given else []
    if lacking or not set(given) <= set(prepare.splits):
      raise InputError(
        f"config.prepare.parse.{side}_conllu must name a file for each split"
        f" ({', '.join(sorted(prepare.splits))}), has {sorted(given)}."
      )
  given = prepare.parse.source_brackets
  if given and not {data.train} <= set(given) <= set(prepare.splits):
    raise InputError(
      "config.prepare.parse.source_brackets must name a file for the split"
      f" {data.train} and may for others of {', '.join(sorted(prepare.splits))},"
      f" has {sorted(given)}."
    )


def read(
  config: configs.Config, raw_dir: str, own: pathlib.Path
) -> dict[str, Split]:
  """All splits, the training split first.

  Args:
    config: of the data set.
    raw_dir: folder of the raw files; "" for config.prepare.raw_dir.
    own: folder for fetched files.

  Raises:
    InputError: a file is missing or faulty (`preprocess.raw`).
  """
  prepare = config.prepare
  for entry in prepare.downloads:
    if len(entry) != 3:
      raise InputError(
        "config.prepare.downloads must hold (file name, URL, SHA-256), got"
        f" {entry!r}."
      )
  downloads = {name: (url, sha) for name, url, sha in prepare.downloads}
  splits = {}
  # The training split first, then as the config has them.
  for name in dict.fromkeys([config.data.train, *prepare.splits]):
    source, target = (
      raw.find(file, raw_dir or prepare.raw_dir, own, downloads)
      for file in prepare.splits[name]
    )
    pairs = raw.read_pairs(source, target)
    splits[name] = Split(pairs, list(range(len(pairs))), {})
    if given := prepare.parse.source_brackets.get(name):
      splits[name].brackets = pathlib.Path(given)
  return splits


def parsers(
  config: configs.Config, own: pathlib.Path
) -> dict[str, UDPipe | None]:
  """The parser of each side with trees.

  Where trees come as CoNLL-U it is the one that `jaxsyn.translate` shall use,
  and None if the config names none.

  Raises:
    InputError: there is no such model (`jaxsyn.data.parser.find`).
  """
  options, found = config.prepare.parse, {}
  for side in schema.SIDES:
    if side not in options.sides:
      continue
    model = getattr(options, f"{side}_model")
    if getattr(options, f"{side}_conllu") and not model:
      found[side] = None
    else:
      path = find(model, getattr(config.data, f"{side}_language"), own)
      found[side] = UDPipe(path, options.beam)
  return found


def key(
  config: configs.Config,
  splits: Mapping[str, Split],
  parsers: Mapping[str, UDPipe | None],
) -> str:
  """Hash of all that decides what comes out."""
  options = dataclasses.asdict(config.prepare)
  for name in ("raw_dir", "downloads", "workers"):
    del options[name]
  for side in schema.SIDES:
    del options["parse"][f"{side}_model"]  # its content counts, below
  for name in ("source_conllu", "target_conllu", "source_brackets"):
    given = options["parse"][name]
    for split, file in given.items():
      if not os.path.isfile(file):
        raise InputError(
          f"config.prepare.parse.{name}.{split}: there is no file {file}."
        )
      given[split] = manifests.sha256_file(file)
  if not options["parse"]["source_brackets"]:  # as before there were any
    del options["parse"]["source_brackets"]
  facts = {
    "recipe": RECIPE,
    "options": options,
    "name": config.data.name,
    "languages": (config.data.source_language, config.data.target_language),
    "train": config.data.train,
    "raw": {name: split.pairs.sha256 for name, split in splits.items()},
    "parsers": {side: p and p.sha256 for side, p in parsers.items()},
  }
  return manifests.sha256_texts([json.dumps(facts, sort_keys=True)])
