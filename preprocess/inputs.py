"""Input of a dataset: options, raw files and parsers, and a hash of these.

All input is located before any work is done, so that wrong options and missing
files are reported at once.
"""

from __future__ import annotations

import concurrent.futures
import dataclasses
import json
import pathlib
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from jaxsyn.data import schema
from jaxsyn.data.options import DataConfig
from jaxsyn.data.sentence.parsers import Parser, ParserSpec
from jaxsyn.data.store import fetch, manifests
from jaxsyn.errors import InputError
from jaxsyn.options import ROOT, as_dict
from jaxsyn.preprocess import options, raw, tfds_input, vocabulary
from jaxsyn.preprocess.corpus import (
  PrepareJob,
  SplitInput,
  chunk_lines,
)
from jaxsyn.preprocess.outputs import Outputs
from jaxsyn.preprocess.readers import Source, reader_of
from jaxsyn.storage import files
from jaxsyn.storage.checksums import sha256_of

# Increase it when datasets from unchanged input must be prepared again.
_RECIPE = 3
# Options that do not affect the result, or are in the content of the splits.
_UNRECORDED = (
  "raw_dir",
  "downloads",
  "workers",
  "optional",
  "fields",
  "alignments",
)
_READERS = 4  # threads that read files for their hash

Paths = tuple[pathlib.Path, ...]


@dataclasses.dataclass
class RawSplit:
  """Input files of one split: text of both sides, given trees and alignments.

  Attributes:
    name: name of the split.
    texts: side -> text files; both sides may be read from the same files.
    lines: range of lines to read, as in config.prepare.splits.
    trees: side -> CoNLL-U files of all lines, if trees are given.
    alternatives: side -> CoNLL-U files, each with a further parse of all lines.
    brackets: files with constituency trees of all source lines.
    alignments: files with word alignments of all lines.
    aligned: side -> files with the aligned words, if they differ from the text.
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
    """Paths of the source text files, then of the target text files."""
    return [source.path for side in schema.SIDES for source in self.texts[side]]

  @property
  def files(self) -> list[pathlib.Path]:
    """Paths of all input files of the split, without duplicates."""
    groups: list[Iterable[pathlib.Path]] = [self.text_paths, self.brackets]
    groups += [*self.trees.values(), *self.alternatives.values()]
    groups += [self.alignments, *self.aligned.values()]
    return list(dict.fromkeys(file for group in groups for file in group))

  @property
  def file_names(self) -> list[str]:
    """Names of the text files; a file that has both sides is listed once."""
    names = [path.name for path in self.text_paths]
    both = self.texts["source"][0].field
    return list(dict.fromkeys(names)) if both else names

  def split_input(self) -> SplitInput:
    """Returns the input of the split for workers, with absolute paths."""
    streams = dict(self.texts)
    groups = {f"trees.{side}": paths for side, paths in self.trees.items()}
    for side, paths in self.alternatives.items():
      for number, path in enumerate(paths):
        groups[f"alternatives.{side}.{number}"] = (path,)
    groups |= {"brackets": self.brackets, "alignments": self.alignments}
    groups |= {f"words.{side}": paths for side, paths in self.aligned.items()}
    for name, paths in groups.items():
      if paths:
        streams[name] = tuple(map(Source, paths))
    absolute = {
      name: tuple(
        dataclasses.replace(source, path=files.absolute(source.path))
        for source in sources
      )
      for name, sources in streams.items()
    }
    size = sum(files.size_of(source.path) for source in absolute["source"])
    return SplitInput(self.name, self.lines, chunk_lines(size), absolute)

  def content(self, sums: Mapping[pathlib.Path, str]) -> dict[str, Any]:
    """Returns the line range and file hashes that identify the split's content.

    Args:
      sums: path -> SHA-256 of each file.
    """

    def hashes(paths: Paths) -> list[str]:
      return [sums[path] for path in paths]

    found: dict[str, Any] = {
      "lines": self.lines,
      "texts": {
        side: [source.content_key(sums[source.path]) for source in sources]
        for side, sources in self.texts.items()
      },
      "trees": {side: hashes(paths) for side, paths in self.trees.items()},
      "brackets": hashes(self.brackets),
    }
    if self.alignments:
      found["alignments"] = hashes(self.alignments)
      found["aligned"] = {s: hashes(paths) for s, paths in self.aligned.items()}
    if self.alternatives:
      found["alternatives"] = {
        side: hashes(paths) for side, paths in self.alternatives.items()
      }
    return found


@dataclasses.dataclass(frozen=True)
class Inputs:
  """Complete input of a dataset: options, raw files, parsers and their hashes.

  Attributes:
    config: options of the dataset.
    splits: name -> input files of the split, the training split first.
    parsers: side with trees -> its parser. If trees are given, the parser is
      for `jaxsyn.translate`; None if the config names none.
    specs: side -> specification of its parser.
    fetched: folder of downloaded files.
    sums: path -> SHA-256 of each file.
    key: hash of all input and options that affect the dataset.
    left_out: optional test split -> reason why it is left out.
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
    """Paths of the input files of all splits."""
    return [file for split in self.splits.values() for file in split.files]

  def sha256(self, split: RawSplit) -> str:
    """Returns a hash of the source and target texts of a split."""
    return manifests.sha256_texts(self.sums[path] for path in split.text_paths)

  @property
  def downloads(self) -> dict[str, str]:
    """SHA-256 and origin of each downloaded file, by file name."""
    paths = {file for spec in self.specs.values() if (file := spec.file)}
    return {
      path.name: origin
      for path in sorted(paths.union(self.files))
      if path.parent == self.fetched and (origin := fetch.record(path))
    }

  def job(
    self, outputs: Outputs, new: pathlib.Path, retained: pathlib.Path
  ) -> PrepareJob:
    """Returns the preparation job for workers; arguments as in `PrepareJob`."""
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
      splits=tuple(split.split_input() for split in self.splits.values()),
      parsers=parsers,
    )


def read_inputs(
  config: DataConfig,
  raw_dir: str,
  fetched: pathlib.Path,
  prepared: Collection[str] = (),
) -> Inputs:
  """Returns the complete input of a dataset; downloads files that are missing.

  Args:
    config: options of the dataset.
    raw_dir: folder of the raw files, "" for config.prepare.raw_dir.
    fetched: folder of downloaded files.
    prepared: names of splits that are already prepared. These are not left out
      if their files cannot be downloaded now.

  Raises:
    InputError: an option is wrong, or a file or parser does not exist.
  """
  options.check(config)
  finder = _Finder(config, raw_dir or config.prepare.raw_dir, fetched)
  # The training split first, then in the order of the config.
  names = dict.fromkeys([config.data.train, *config.prepare.splits])
  splits, left_out = {}, {}
  for name in names:
    entry = options.split_entry(config.prepare.splits[name])
    try:
      splits[name] = RawSplit(name, finder.texts(name, entry), entry.lines)
    except raw.MissingFileError as error:
      if name not in config.prepare.optional or name in prepared:
        raise
      left_out[name] = error.short
      continue
    listed = dict.fromkeys(map(str, splits[name].text_paths))
    print(f"reading {name}: {', '.join(listed)}", flush=True)
  if left_out:
    _warn_of_left_out(config, left_out)
  for name, split in splits.items():
    _add_given_files(config, split, finder)
    if links := config.prepare.alignments.get(name):
      option = f"alignments.{name}"
      split.alignments, *words = (finder.named(option, file) for file in links)
      split.aligned = dict(zip(schema.SIDES, words))
  _use_trees_of_treebanks(config, splits)
  parsers: dict[str, Parser | None] = {}
  specs: dict[str, ParserSpec] = {}
  for side in config.prepare.parse.sides:
    spec = getattr(config.prepare.parse, side).parser
    parsers[side] = None
    if spec.named or side not in splits[config.data.train].trees:
      language = getattr(config.data, f"{side}_language")
      at = ROOT / "prepare" / "parse" / side / spec.kind
      specs[side] = spec.resolve(at, language, fetched, finder.downloads)
      parsers[side] = specs[side].open()
  used = {file for split in splits.values() for file in split.files}
  with concurrent.futures.ThreadPoolExecutor(_READERS) as readers:
    sums = dict(zip(used, readers.map(sha256_of, used)))
  return Inputs(
    config,
    splits,
    parsers=parsers,
    specs=specs,
    fetched=fetched,
    sums=sums,
    key=_key(config, splits, parsers, sums),
    left_out=left_out,
  )


class _Finder:
  """Finder of raw files by their names in the config, which may download them.

  Attributes:
    downloads: file name -> URL and hash, from config.prepare.downloads.
  """

  def __init__(self, config: DataConfig, raw_dir: str, fetched: pathlib.Path):
    self._config, self._raw_dir, self._fetched = config, raw_dir, fetched
    self.downloads = raw.addresses(config.prepare.downloads)

  def texts(
    self, split: str, entry: options.SplitEntry
  ) -> dict[str, tuple[Source, ...]]:
    """Returns the text files of each side that a split's config entry names."""
    data, fields = self._config.data, self._config.prepare.fields
    languages = {s: getattr(data, f"{s}_language") for s in schema.SIDES}
    if entry.is_tfds:
      return tfds_input.sources(
        entry.source,
        entry.tfds_split or split,
        raw_dir=self._raw_dir,
        fields=fields,
        languages=languages,
      )
    found = {}
    names = {"source": entry.source, "target": entry.target}
    keys = dict(zip(schema.SIDES, fields)) or languages
    for column, side in enumerate(schema.SIDES):
      field_of = {"tsv": str(column), "jsonl": keys[side]}
      sources = []
      for path in self._expand(names[side]):
        reader = reader_of(path.name)
        sources.append(Source(path, reader, field_of.get(reader, "")))
      found[side] = tuple(sources)
    return found

  def named(self, option: str, file: str) -> Paths:
    """Returns the paths for a file name in an option of config.prepare."""
    if file in self.downloads:
      return self._expand(file)
    for path in (files.path_of(self._raw_dir) / file, files.path_of(file)):
      if files.is_file(path):
        return (path,)
    raise InputError(
      f"config.prepare.{option}: there is no file {file}, nor is it in the folder"
      f" of the raw files ({self._raw_dir or 'not set'})."
    )

  def _expand(self, entry: str) -> Paths:
    return raw.expand(
      entry,
      self._raw_dir,
      own_folder=self._fetched,
      downloads=self.downloads,
    )


def _warn_of_left_out(config: DataConfig, left_out: Mapping[str, str]) -> None:
  why = "; ".join(f"{name} ({short})" for name, short in left_out.items())
  tests = len({*config.data.test, *left_out})
  print(
    f"warning: {len(left_out)} of {tests} test splits are left"
    f" out: {why}. They are optional (config.prepare.optional); with their"
    " files in --raw_dir, prepare again.",
    flush=True,
  )


def _add_given_files(
  config: DataConfig, split: RawSplit, finder: _Finder
) -> None:
  """Adds files with trees, further parses and constituency trees to a split."""
  parse, name = config.prepare.parse, split.name
  for side in parse.sides:
    if given := getattr(parse, f"{side}_conllu"):
      option = f"parse.{side}_conllu.{name}"
      split.trees[side] = finder.named(option, given[name])
    option = f"parse.{side}_alternatives.{name}"
    paths = getattr(parse, f"{side}_alternatives").get(name, ())
    if paths:
      found = [finder.named(option, file) for file in paths]
      split.alternatives[side] = tuple(path for some in found for path in some)
  if file := parse.source_brackets.get(name):
    split.brackets = finder.named(f"parse.source_brackets.{name}", file)


def _use_trees_of_treebanks(
  config: DataConfig, splits: Mapping[str, RawSplit]
) -> None:
  """Uses the trees of raw files that are treebanks, unless others are given.

  Raises:
    InputError: a side is a treebank in only some of the splits.
  """
  parse = config.prepare.parse
  for side in parse.sides:
    if getattr(parse, f"{side}_conllu") or getattr(parse, side).parser.named:
      continue
    treebanks = [
      name
      for name, split in splits.items()
      if all(source.reader == "conllu" for source in split.texts[side])
    ]
    others = [name for name in splits if name not in treebanks]
    if treebanks and others:
      raise InputError(
        f"the {side} files of {', '.join(treebanks)} are treebanks, those of"
        f" {', '.join(others)} are not: say where trees come from, in"
        f" config.prepare.parse.{side}.udpipe.model (a parser for all) or"
        f" config.prepare.parse.{side}_conllu (CoNLL-U for all)."
      )
    for name in treebanks:
      sources = splits[name].texts[side]
      splits[name].trees[side] = tuple(source.path for source in sources)


def _key(
  config: DataConfig,
  splits: Mapping[str, RawSplit],
  parsers: Mapping[str, Parser | None],
  sums: Mapping[pathlib.Path, str],
) -> str:
  """Returns a hash of all options, files and parsers that affect the result."""
  recorded = as_dict(config.prepare)
  for name in _UNRECORDED:
    del recorded[name]
  recorded["splits"] = {name: recorded["splits"][name] for name in splits}
  if not config.prepare.subset.pairs:
    del recorded["subset"]  # its seed has no effect
  for side in schema.SIDES:
    for name in (side, f"{side}_conllu", f"{side}_alternatives"):
      del recorded["parse"][name]
  del recorded["parse"]["source_brackets"]
  if given := vocabulary.given_vocabularies(config):
    recorded["vocabulary"] = {side: v.sha256 for side, v in given.items()}
  content = {
    "recipe": _RECIPE,
    "options": recorded,
    "name": config.data.name,
    "languages": (config.data.source_language, config.data.target_language),
    "train": config.data.train,
    "splits": {name: split.content(sums) for name, split in splits.items()},
    "parsers": {side: p and p.key for side, p in parsers.items()},
  }
  return manifests.sha256_texts([json.dumps(content, sort_keys=True)])
