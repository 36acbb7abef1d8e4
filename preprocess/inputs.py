"""What goes into a data set: options, raw files, parsers, and their hash.

`preprocess.build` asks here first, so that what is wrong with a config or a
file is said before anything is made of it.
"""

from __future__ import annotations

import dataclasses
import json
import pathlib
import re
from collections.abc import Collection, Mapping

from jaxsyn.config import Config, Data
from jaxsyn.data import schema
from jaxsyn.data.annotations import ANNOTATIONS
from jaxsyn.data.sentence.align import visible
from jaxsyn.data.sentence.parser import UDPipe
from jaxsyn.data.sentence.stream import is_conllu
from jaxsyn.data.store import fetch
from jaxsyn.data.store import manifest as manifests
from jaxsyn.data.store.manifest_format import NAME
from jaxsyn.data.store.parser_models import find
from jaxsyn.errors import InputError, did_you_mean
from jaxsyn.options import At
from preprocess import clean, raw

RECIPE = 2  # raise it when the same input must be prepared anew
_LINES = re.compile(r"([0-9]{1,15})-([0-9]{1,15})")
_TAKEN = ("conllu", "raw", "text", "work")  # folders of a prepared folder


@dataclasses.dataclass
class Split:
  """A split on its way.

  Attributes:
    pairs: the raw lines, all that the two files have.
    kept: numbers of the pairs that become records, from 0.
    dropped: reason -> number of pairs.
    given: side -> CoNLL-U of all lines, where trees are not to be parsed.
    conllu: side -> file of the trees of the kept lines.
    brackets: file of constituency trees of all lines of the source; None: none.
  """

  pairs: raw.Pairs
  kept: list[int]
  dropped: dict[str, int] = dataclasses.field(default_factory=dict)
  given: dict[str, pathlib.Path] = dataclasses.field(default_factory=dict)
  conllu: dict[str, pathlib.Path] = dataclasses.field(default_factory=dict)
  brackets: pathlib.Path | None = None

  def lines(self, side: str) -> list[str]:
    """The kept lines of a side."""
    texts = getattr(self.pairs, side)
    return [texts[i] for i in self.kept]

  def file(self, side: str) -> pathlib.Path:
    """The raw file of a side."""
    return self.pairs.files[schema.SIDES.index(side)]

  def place(self, side: str, number: int) -> str:
    """Where a line is, for messages; `number` is that of the line, from 1."""
    file = self.file(side)
    treebank = is_conllu(file)
    return f"{file}, sentence {number}" if treebank else f"{file}:{number}"

  @property
  def numbers(self) -> list[int]:
    """Line numbers in the raw file, from 1."""
    return [i + 1 for i in self.kept]


def check(config: Config) -> None:
  """Raises InputError for what the types of the sections do not say."""
  data, prepare = config.data, config.prepare
  if not NAME.fullmatch(data.name):
    raise InputError(
      "config.data.name must be lower case letters, digits and underscores,"
      f" a letter first, at most 100, got {data.name!r}."
    )
  if data.name in _TAKEN:
    raise InputError(
      f"config.data.name must not be {data.name!r}: a prepared folder has"
      " another folder of that name. Choose another."
    )
  if not prepare.splits:
    raise InputError(
      "config.prepare.splits is empty: say the two raw files of each split, as"
      ' in config.prepare.splits.train = ("train.en.gz", "train.de.gz").'
    )
  for name, files in prepare.splits.items():
    if not NAME.fullmatch(name) or len(files) not in (2, 3):
      raise InputError(
        f"config.prepare.splits.{name} must be a lower case name of at most"
        " 100 letters, digits and underscores, and two files (source, target),"
        f" then perhaps the lines (1-800), got {files!r}."
      )
  _check_names(data, prepare.splits)
  for side in schema.SIDES:
    given = getattr(prepare.parse, f"{side}_conllu")
    lacking = sorted(set(prepare.splits) - set(given)) if given else []
    if lacking or not set(given) <= set(prepare.splits):
      raise InputError(
        f"config.prepare.parse.{side}_conllu must name a file for each split"
        f" ({', '.join(sorted(prepare.splits))}), has {sorted(given)}."
      )
  for name in prepare.parse.annotations:
    ANNOTATIONS.known(name, At("config.prepare.parse.annotations"))
  given = prepare.parse.source_brackets
  if given and not {data.train} <= set(given) <= set(prepare.splits):
    raise InputError(
      "config.prepare.parse.source_brackets must name a file for the split"
      f" {data.train} and may for others of {', '.join(sorted(prepare.splits))},"
      f" has {sorted(given)}."
    )


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


def read(config: Config, raw_dir: str, own: pathlib.Path) -> dict[str, Split]:
  """All splits, the training split first.

  Args:
    config: of the data set.
    raw_dir: folder of the raw files; "" for config.prepare.raw_dir.
    own: folder for fetched files.

  Raises:
    InputError: a file is missing or faulty (`preprocess.raw`), or a split has
      no text.
  """
  prepare = config.prepare
  downloads = raw.addresses(prepare.downloads)
  raw_dir = raw_dir or prepare.raw_dir

  def find_trees(option: str, name: str) -> pathlib.Path:
    """The file that an option of config.prepare.parse has for a split."""
    file = getattr(prepare.parse, option)[name]
    if file in downloads:
      return raw.find(file, raw_dir, own, downloads)
    for place in (pathlib.Path(raw_dir, file), pathlib.Path(file)):
      if place.is_file():
        return place
    raise InputError(
      f"config.prepare.parse.{option}.{name}: there is no file {file}, nor is"
      f" it in the folder of the raw files ({raw_dir or 'not set'})."
    )

  splits = {}
  # The training split first, then as the config has them.
  for name in dict.fromkeys([config.data.train, *prepare.splits]):
    *files, lines = (*prepare.splits[name], "")[:3]
    source, target = (raw.find(file, raw_dir, own, downloads) for file in files)
    print(f"reading {name}: {source}, {target}", flush=True)
    pairs = raw.read_pairs(source, target)
    split = Split(pairs, list(_numbers(lines, len(pairs), name)))
    if not any(
      visible(pairs.source[i]) and visible(pairs.target[i]) for i in split.kept
    ):
      what = f"no line taken of {source} has text, and text in {target} too"
      if not pairs.source:
        what = f"{source} and {target} are empty"
      raise InputError(
        f"config.prepare.splits.{name}: {what}. Give other files or lines."
      )
    splits[name] = split
  for side in prepare.parse.sides:
    given = getattr(prepare.parse, f"{side}_conllu")
    if not given and not getattr(prepare.parse, f"{side}_model"):
      for name in _treebanks(splits, side):
        splits[name].given[side] = splits[name].file(side)
    for name in given:
      splits[name].given[side] = find_trees(f"{side}_conllu", name)
  for name in prepare.parse.source_brackets:
    splits[name].brackets = find_trees("source_brackets", name)
  return splits


def _numbers(lines: str, count: int, name: str) -> range:
  """Numbers of the pairs of a split, from 0.

  Args:
    lines: "FIRST-LAST", from 1 and both included; "" for all.
    count: pairs that the files have.
    name: of the split.
  """
  if not lines:
    return range(count)
  found = _LINES.fullmatch(lines)
  first, last = map(int, found.groups()) if found else (0, 0)
  if not 1 <= first <= last <= count:
    raise InputError(
      f"config.prepare.splits.{name}: the lines must be FIRST-LAST, of 1 to"
      f" {count} as the files have, got {lines!r}."
    )
  return range(first - 1, last)


def check_text(splits: Mapping[str, Split]) -> None:
  """Looks for control characters in the kept lines; says where they are.

  UDPipe and much else ends a text at NUL; other control characters do no harm,
  and texts to score must stay as they were published.

  Raises:
    InputError: there is a NUL; names FILE:LINE.
  """
  for name, split in splits.items():
    for side in schema.SIDES:
      found = [
        (number, hit[0])
        for number, line in zip(split.numbers, split.lines(side))
        for hit in clean.CONTROL.finditer(line)
      ]
      for number, character in found:
        if character == "\0":
          raise InputError(
            f"{split.place(side, number)}: there is a NUL character in the"
            f" line. Take it out of the file (tr -d '\\000'), or, to have such"
            " lines of the training split dropped, set"
            " config.prepare.clean.control to True."
          )
      if found:
        number, character = found[0]
        print(
          f"{name}: {len(found):,} control characters stay in the {side}, the"
          f" first (U+{ord(character):04X}) in {split.place(side, number)}"
        )


def _treebanks(splits: Mapping[str, Split], side: str) -> list[str]:
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


def parsers(
  config: Config, splits: Mapping[str, Split], own: pathlib.Path
) -> dict[str, UDPipe | None]:
  """The parser of each side with trees.

  Where trees come as CoNLL-U it is the one that `jaxsyn.translate` shall use,
  and None if the config names none.

  Raises:
    InputError: there is no such model (`jaxsyn.data.store.parser_models.find`).
  """
  options, found = config.prepare.parse, {}
  downloads = raw.addresses(config.prepare.downloads)
  for side in schema.SIDES:
    if side not in options.sides:
      continue
    model = getattr(options, f"{side}_model")
    if side in splits[config.data.train].given and not model:
      found[side] = None
    else:
      language = getattr(config.data, f"{side}_language")
      path = find(model, language, own, downloads=downloads)
      found[side] = UDPipe(path, options.beam)
  return found


def used(splits: Mapping[str, Split]) -> list[pathlib.Path]:
  """The files that splits are made from: texts and trees."""
  found = []
  for split in splits.values():
    found += [*split.pairs.files, *split.given.values()]
    found += [split.brackets] if split.brackets else []
  return found


def downloads(
  own: pathlib.Path,
  splits: Mapping[str, Split],
  parsers: Mapping[str, UDPipe | None],
) -> dict[str, str]:
  """File name -> SHA-256 and origin of what was fetched, of all that is used.

  Args:
    own: folder for fetched files.
    splits: of `read`.
    parsers: of `parsers`.
  """
  paths = [parser.path for parser in parsers.values() if parser]
  return {
    path.name: found
    for path in sorted({*paths, *used(splits)})
    if path.parent == own and (found := fetch.record(path))
  }


def key(
  config: Config,
  splits: Mapping[str, Split],
  parsers: Mapping[str, UDPipe | None],
) -> str:
  """Hash of all that decides what comes out."""
  options = dataclasses.asdict(config.prepare)
  for name in ("raw_dir", "downloads", "workers"):
    del options[name]
  for side in schema.SIDES:
    del options["parse"][f"{side}_model"]  # its content counts, below
    options["parse"][f"{side}_conllu"] = {
      name: manifests.sha256_file(split.given[side])
      for name, split in splits.items()
      if side in split.given
    }
  del options["parse"]["source_brackets"]
  if not options["parse"]["annotations"]:  # data sets that are older are equal
    del options["parse"]["annotations"]
  brackets = {
    name: manifests.sha256_file(split.brackets)
    for name, split in splits.items()
    if split.brackets
  }
  facts = {
    "recipe": RECIPE,
    "options": options,
    "name": config.data.name,
    "languages": (config.data.source_language, config.data.target_language),
    "train": config.data.train,
    "raw": {name: split.pairs.sha256 for name, split in splits.items()},
    "parsers": {side: p and p.sha256 for side, p in parsers.items()},
    **({"brackets": brackets} if brackets else {}),
  }
  return manifests.sha256_texts([json.dumps(facts, sort_keys=True)])
