"""What goes into a data set: options, raw files, parsers, and their hash.

`preprocess.build` asks here first, so that what is wrong with a config or a
missing file is said before anything is made of it.
"""

from __future__ import annotations

import concurrent.futures
import dataclasses
import json
import pathlib
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from jaxsyn.data import schema
from jaxsyn.data.sentence.parsers import Parser, ParserSpec
from jaxsyn.data.sentence.vocabulary import Vocabulary
from jaxsyn.data.store import fetch, manifests
from jaxsyn.errors import InputError
from jaxsyn.options import ROOT, as_dict
from jaxsyn.preprocess import options, raw, tfds_input, vocabulary
from jaxsyn.preprocess.corpus import (
  DataConfig,
  PrepareJob,
  SplitInput,
  chunk_lines,
)
from jaxsyn.preprocess.outputs import Outputs
from jaxsyn.preprocess.readers import Source, reader_of
from jaxsyn.storage import files
from jaxsyn.storage.checksums import sha256_of

RECIPE = 3  # raise it when the same input must be prepared anew
_READERS = 4  # threads that read files for their hash

Paths = tuple[pathlib.Path, ...]
SideSources = dict[str, tuple[Source, ...]]


@dataclasses.dataclass
class RawSplit:
  """The files of a split.

  Attributes:
    name: of the split.
    texts: side -> sources; both sides may be read from the same files.
    lines: which it takes, as config.prepare.splits says.
    trees: side -> CoNLL-U of all lines, where trees are not to be parsed.
    alternatives: side -> CoNLL-U files, each a further parse of all lines.
    brackets: constituency trees of all lines of the source.
    alignments: links of all lines.
    aligned: side -> the words that these link, where they are not the text's.
  """

  name: str
  texts: dict[str, tuple[Source, ...]]
  lines: str = ""
  trees: dict[str, Paths] = dataclasses.field(default_factory=dict)
  alternatives: dict[str, Paths] = dataclasses.field(default_factory=dict)
  brackets: Paths = ()
  alignments: Paths = ()
  aligned: dict[str, Paths] = dataclasses.field(default_factory=dict)

  @property
  def text_paths(self) -> list[pathlib.Path]:
    """The files of the texts of both sides, each side in order."""
    return [source.path for side in schema.SIDES for source in self.texts[side]]

  @property
  def files(self) -> list[pathlib.Path]:
    """All that it is made from: texts, trees and links."""
    groups = [self.text_paths, *self.trees.values(), self.brackets]
    groups += [self.alignments, *self.aligned.values()]
    groups += self.alternatives.values()
    return list(dict.fromkeys(file for group in groups for file in group))


@dataclasses.dataclass(frozen=True)
class Inputs:
  """What a data set is made from.

  Attributes:
    config: of the data set.
    splits: by name, the training split first.
    parsers: of each side with trees. Where those come as CoNLL-U it is the one
      that `jaxsyn.translate` shall use, and None if the config names none.
    specs: of each parser, what opens it again.
    fetched: folder for fetched files.
    sums: SHA-256 of each file.
    key: hash of all that decides what comes out.
    left_out: optional test split -> why it is left out.
  """

  config: DataConfig
  splits: dict[str, RawSplit]
  parsers: dict[str, Parser | None]
  specs: dict[str, ParserSpec]
  fetched: pathlib.Path
  sums: dict[pathlib.Path, str]
  key: str
  left_out: dict[str, str] = dataclasses.field(default_factory=dict)

  @property
  def train(self) -> RawSplit:
    return self.splits[self.config.data.train]

  @property
  def files(self) -> list[pathlib.Path]:
    """The files that splits are made from: texts, trees and links."""
    return [file for split in self.splits.values() for file in split.files]

  def sha256(self, split: RawSplit) -> str:
    """Hash of the texts of a split."""
    return manifests.sha256_texts(self.sums[path] for path in split.text_paths)

  @property
  def downloads(self) -> dict[str, str]:
    """File name -> SHA-256 and origin of what was fetched, of all of them."""
    paths = {file for spec in self.specs.values() if (file := spec.file)}
    return {
      path.name: origin
      for path in sorted(paths.union(self.files))
      if path.parent == self.fetched and (origin := fetch.record(path))
    }

  def job(
    self, outputs: Outputs, new: pathlib.Path, retained: pathlib.Path
  ) -> PrepareJob:
    """Returns the job for workers, with absolute paths; see `PrepareJob`."""
    parsers = {
      side: (self.specs[side], parser.identity)
      for side, parser in self.parsers.items()
      if parser and side not in self.train.trees
    }
    return PrepareJob(
      self.config,
      outputs,
      new=new,
      retained=retained,
      splits=tuple(map(_split_input, self.splits.values())),
      parsers=parsers,
    )


def _split_input(split: RawSplit) -> SplitInput:
  streams = dict(split.texts)
  streams |= {f"trees.{s}": _plain(paths) for s, paths in split.trees.items()}
  for side, groups in split.alternatives.items():
    for number, path in enumerate(groups):
      streams[f"alternatives.{side}.{number}"] = _plain([path])
  if split.brackets:
    streams["brackets"] = _plain(split.brackets)
  if split.alignments:
    streams["alignments"] = _plain(split.alignments)
  streams |= {f"words.{s}": _plain(paths) for s, paths in split.aligned.items()}
  absolute = {
    name: tuple(
      dataclasses.replace(source, path=files.absolute(source.path))
      for source in sources
    )
    for name, sources in streams.items()
  }
  size = sum(files.size_of(source.path) for source in absolute["source"])
  lines = chunk_lines(size)
  return SplitInput(split.name, split.lines, lines, absolute)


def _plain(paths: Sequence[pathlib.Path]) -> tuple[Source, ...]:
  return tuple(Source(path) for path in paths)


def read_inputs(
  config: DataConfig,
  raw_dir: str,
  fetched: pathlib.Path,
  prepared: Collection[str] = (),
) -> Inputs:
  """Finds the raw files and the parsers.

  Args:
    config: of the data set.
    raw_dir: folder of the raw files; "" for config.prepare.raw_dir.
    fetched: folder for fetched files.
    prepared: splits that the directory has already. These are not left out
      where their files cannot be fetched today.

  Raises:
    InputError: an option is wrong, a file is missing (`preprocess.raw`), or
      there is no such parser.
  """
  options.check(config)
  downloads = raw.addresses(config.prepare.downloads)
  raw_dir = raw_dir or config.prepare.raw_dir

  def find(entry: str) -> Paths:
    return raw.expand(entry, raw_dir, own_folder=fetched, downloads=downloads)

  def find_texts(name: str, entry: options.SplitEntry) -> SideSources:
    if entry.is_tfds:
      return tfds_input.sources(
        entry.source,
        entry.tfds_split or name,
        raw_dir=raw_dir,
        fields=config.prepare.fields,
        languages={
          side: getattr(config.data, f"{side}_language")
          for side in schema.SIDES
        },
      )
    found = {}
    for side, named in zip(schema.SIDES, (entry.source, entry.target)):
      found[side] = tuple(
        Source(path, reader_of(path.name), _field(config, side, path.name))
        for path in find(named)
      )
    return found

  # The training split first, then as the config has them.
  names = dict.fromkeys([config.data.train, *config.prepare.splits])
  splits, left_out = {}, {}
  for name in names:
    entry = options.split_entry(config.prepare.splits[name])
    try:
      texts = find_texts(name, entry)
    except raw.MissingFileError as error:
      if name not in config.prepare.optional or name in prepared:
        raise
      left_out[name] = error.short
      continue
    splits[name] = RawSplit(name, texts, entry.lines)
    listed = dict.fromkeys(map(str, splits[name].text_paths))
    print(f"reading {name}: {', '.join(listed)}", flush=True)

  if left_out:
    why = "; ".join(f"{name} ({short})" for name, short in left_out.items())
    tests = len({*config.data.test, *left_out})
    print(
      f"warning: {len(left_out)} of {tests} test splits are left"
      f" out: {why}. They are optional (config.prepare.optional); with their"
      " files in --raw_dir, prepare again.",
      flush=True,
    )

  def beside(at: str, file: str) -> Paths:
    if file in downloads:
      return find(file)
    for place in (files.path_of(raw_dir) / file, files.path_of(file)):
      if files.is_file(place):
        return (place,)
    raise InputError(
      f"config.prepare.{at}: there is no file {file}, nor is it in the folder"
      f" of the raw files ({raw_dir or 'not set'})."
    )

  _find_trees(config, splits, beside)
  for name, named in config.prepare.alignments.items():
    if name in left_out:
      continue
    links, *words = (beside(f"alignments.{name}", file) for file in named)
    splits[name].alignments = links
    splits[name].aligned = dict(zip(schema.SIDES, words))
  parsers: dict[str, Parser | None] = {}
  specs: dict[str, ParserSpec] = {}
  for side in config.prepare.parse.sides:
    spec = getattr(config.prepare.parse, side).parser
    has_trees = side in splits[config.data.train].trees
    parsers[side] = None
    if spec.named or not has_trees:
      language = getattr(config.data, f"{side}_language")
      at = ROOT / "prepare" / "parse" / side / spec.kind
      specs[side] = spec.resolve(at, language, fetched, downloads)
      parsers[side] = specs[side].open()
  used = {file for split in splits.values() for file in split.files}
  with concurrent.futures.ThreadPoolExecutor(_READERS) as readers:
    sums = dict(zip(used, readers.map(sha256_of, used)))
  key = _key(
    config,
    splits,
    parsers,
    sums=sums,
    vocabularies=vocabulary.given_vocabularies(config),
  )
  return Inputs(
    config,
    splits,
    parsers=parsers,
    specs=specs,
    fetched=fetched,
    sums=sums,
    key=key,
    left_out=left_out,
  )


def _field(config: DataConfig, side: str, name: str) -> str:
  """The column or field of a side in a file that has both; else ""."""
  index = schema.SIDES.index(side)
  if reader_of(name) == "tsv":
    return str(index)
  if reader_of(name) != "jsonl":
    return ""
  fields = config.prepare.fields
  language: str = getattr(config.data, f"{side}_language")
  return fields[index] if fields else language


def _find_trees(
  config: DataConfig,
  splits: Mapping[str, RawSplit],
  paths_next_to: Callable[[str, str], Paths],
) -> None:
  """Finds the files of trees that are given, and tells the splits.

  Args:
    paths_next_to: finds a file that an option of config.prepare names.
  """
  wanted = config.prepare.parse

  def files_of(option: str, name: str) -> Paths:
    return paths_next_to(
      f"parse.{option}.{name}", getattr(wanted, option)[name]
    )

  for side in wanted.sides:
    files_given = getattr(wanted, f"{side}_conllu")
    if not files_given and not getattr(wanted, side).parser.named:
      for name in _treebanks(splits, side):
        splits[name].trees[side] = tuple(
          source.path for source in splits[name].texts[side]
        )
    for name in filter(splits.__contains__, files_given):
      splits[name].trees[side] = files_of(f"{side}_conllu", name)
    option = f"{side}_alternatives"
    for name, paths in getattr(wanted, option).items():
      if name not in splits:  # left out
        continue
      splits[name].alternatives[side] = tuple(
        path
        for file in paths
        for path in paths_next_to(f"parse.{option}.{name}", file)
      )
  for name in filter(splits.__contains__, wanted.source_brackets):
    splits[name].brackets = files_of("source_brackets", name)


def _next_to(
  split: RawSplit, of: Callable[[Paths], list[str]]
) -> dict[str, Any]:
  """What `_key` has of alignments and of more parses; nothing without any."""
  tree_paths: dict[str, Any] = {}
  if split.alignments:
    words = {side: of(paths) for side, paths in split.aligned.items()}
    tree_paths |= {"alignments": of(split.alignments), "aligned": words}
  if split.alternatives:
    parses = {side: of(paths) for side, paths in split.alternatives.items()}
    tree_paths["alternatives"] = parses
  return tree_paths


def _treebanks(splits: Mapping[str, RawSplit], side: str) -> list[str]:
  """The splits whose raw text has trees of its own: all or none."""
  treebank_splits = [
    name
    for name, split in splits.items()
    if all(source.reader == "conllu" for source in split.texts[side])
  ]
  lacking = [name for name in splits if name not in treebank_splits]
  if treebank_splits and lacking:
    raise InputError(
      f"the {side} files of {', '.join(treebank_splits)} are treebanks, those of"
      f" {', '.join(lacking)} are not: say where trees come from, in"
      f" config.prepare.parse.{side}.udpipe.model (a parser for all) or"
      f" config.prepare.parse.{side}_conllu (CoNLL-U for all)."
    )
  return treebank_splits


def _key(
  config: DataConfig,
  splits: Mapping[str, RawSplit],
  parsers: Mapping[str, Parser | None],
  *,
  sums: Mapping[pathlib.Path, str],
  vocabularies: Mapping[str, Vocabulary],
) -> str:
  """Hash of all that decides what comes out."""

  def of(paths: Paths) -> list[str]:
    return [sums[path] for path in paths]

  options = as_dict(config.prepare)
  for name in ("raw_dir", "downloads", "workers"):
    del options[name]
  del options["optional"], options["fields"]  # sources have the fields
  options["splits"] = {name: options["splits"][name] for name in splits}
  if not config.prepare.subset.pairs:
    del options["subset"]  # its seed changes nothing
  for side in schema.SIDES:  # their content counts, below
    del options["parse"][side], options["parse"][f"{side}_conllu"]
    del options["parse"][f"{side}_alternatives"]
  del options["parse"]["source_brackets"], options["alignments"]
  if vocabularies:
    options["vocabulary"] = {side: v.sha256 for side, v in vocabularies.items()}
  facts = {
    "recipe": RECIPE,
    "options": options,
    "name": config.data.name,
    "languages": (config.data.source_language, config.data.target_language),
    "train": config.data.train,
    "splits": {
      name: {
        "lines": split.lines,
        "texts": {
          side: [source.content_key(sums[source.path]) for source in sources]
          for side, sources in split.texts.items()
        },
        "trees": {side: of(paths) for side, paths in split.trees.items()},
        "brackets": of(split.brackets),
        **_next_to(split, of),
      }
      for name, split in splits.items()
    },
    "parsers": {side: p and p.key for side, p in parsers.items()},
  }
  return manifests.sha256_texts([json.dumps(facts, sort_keys=True)])
