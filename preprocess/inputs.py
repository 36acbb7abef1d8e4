"""Locates and hashes the input of a dataset: options, raw files and parsers.

All input is located before any work is done, so that wrong options and missing
files are reported at once.
"""

from __future__ import annotations

import concurrent.futures
import json
import os
import pathlib
from collections.abc import Collection, Mapping

from jaxsyn.data import schema
from jaxsyn.data.options import DataConfig
from jaxsyn.data.sentence.parsers import ParserSpec
from jaxsyn.data.sentence.parsers.parser import Identity
from jaxsyn.data.store import fetch
from jaxsyn.errors import InputError
from jaxsyn.options import ROOT, as_dict
from jaxsyn.preprocess import options, raw, tfds_input, vocabulary
from jaxsyn.preprocess.features import OPTIONAL
from jaxsyn.preprocess.job import (
  PrepareJob,
  SplitInput,
  Streams,
  chunk_lines,
)
from jaxsyn.preprocess.raw import Source
from jaxsyn.preprocess.readers import reader_of
from jaxsyn.storage import checksums, files, remote

# Increase it when datasets from unchanged input must be prepared again.
_RECIPE = 4
# Options that do not affect the result, or are in the content of the splits.
_UNRECORDED = ("raw_dir", "downloads", "workers", "optional", "fields")
FETCHED = "raw"  # folder of downloaded files, in the dataset directory
_READERS = 4  # threads that read files for their hash


def read_inputs(
  config: DataConfig, raw_dir: str = "", prepared: Collection[str] = ()
) -> PrepareJob:
  """Returns the complete input of a dataset; downloads missing files.

  Args:
    config: Options of the dataset.
    raw_dir: Folder of the raw files, "" for config.prepare.raw_dir.
    prepared: Names of splits that are already prepared. These are not left out
      if their files cannot be downloaded now.

  Raises:
    InputError: An option is wrong, or a file or parser does not exist.
  """
  options.check(config)
  data, prepare = config.data, config.prepare
  directory = files.absolute(data.directory)
  fetched = directory / FETCHED
  downloads = raw.addresses(prepare.downloads)
  raw_files = raw.RawFiles(raw_dir or prepare.raw_dir, fetched, downloads)
  splits, left_out = {}, {}
  # The training split first, then in the order of the config.
  for name in dict.fromkeys([data.train, *prepare.splits]):
    entry = options.split_entry(name, prepare.splits[name])
    try:
      streams = _texts(config, name, entry, raw_files)
    except raw.MissingFileError as error:
      if name not in prepare.optional or name in prepared:
        raise
      left_out[name] = error.short
      continue
    lines = chunk_lines(streams["source"])
    splits[name] = SplitInput(name, entry.lines, streams, lines)
    listed = dict.fromkeys(map(_shown, splits[name].text_paths))
    print(f"reading {name}: {', '.join(listed)}", flush=True)
  if left_out:
    _warn_of_left_out(config, left_out)
  for split in splits.values():
    split.streams.update(_given_streams(config, split.name, raw_files))
  _use_trees_of_treebanks(config, splits)
  parsers: dict[str, tuple[ParserSpec, Identity] | None] = {}
  parser_keys: dict[str, str | None] = {}
  for side in prepare.parse.sides:
    spec = getattr(prepare.parse, side).parser
    parsers[side] = parser_keys[side] = None
    if spec.named or f"trees.{side}" not in splits[data.train].streams:
      language = getattr(data, f"{side}_language")
      at = ROOT / "prepare" / "parse" / side / spec.kind
      spec = spec.resolve(at, language, fetched, downloads)
      parser = spec.open()
      parsers[side], parser_keys[side] = (spec, parser.identity), parser.key
  used = set[pathlib.Path]()
  for split in splits.values():
    for sources in split.streams.values():
      used.update(source.path for source in sources)
  with concurrent.futures.ThreadPoolExecutor(_READERS) as readers:
    sums = dict(zip(used, readers.map(checksums.sha256_of, used)))
  key = _key(config, splits, parser_keys, sums)
  inputs = tuple(splits.values())
  return PrepareJob(config, directory, inputs, parsers, sums, key, left_out)


def downloads_of(job: PrepareJob) -> dict[str, str]:
  """Returns the origin and SHA-256 of each downloaded file, by file name."""
  specs = [parser[0] for parser in job.parser_specs.values() if parser]
  paths = {file for spec in specs if (file := spec.file)}.union(job.sums)
  return {
    path.name: origin
    for path in sorted(paths)
    if path.parent == job.directory / FETCHED and (origin := fetch.record(path))
  }


def _texts(
  config: DataConfig,
  split: str,
  entry: options.SplitEntry,
  raw_files: raw.RawFiles,
) -> Streams:
  """Returns the source and target text files of a split in the config."""
  data, fields = config.data, config.prepare.fields
  wanted = dict(zip(schema.SIDES, fields)) or {
    side: getattr(data, f"{side}_language") for side in schema.SIDES
  }
  if reader_of(entry.source) == "tfds":
    return tfds_input.sources(
      entry.source,
      entry.tfds_split or split,
      raw_dir=raw_files.raw_dir,
      wanted=wanted,
    )
  streams: Streams = {}
  for column, side in enumerate(schema.SIDES):
    field_of = {"tsv": str(column), "jsonl": wanted[side]}
    sources = []
    for path in raw_files.expand(getattr(entry, side)):
      reader = reader_of(path.name)
      sources.append(Source(path, reader, field_of.get(reader, "")))
    streams[side] = tuple(sources)
  return streams


def _given_streams(
  config: DataConfig, split: str, raw_files: raw.RawFiles
) -> Streams:
  """Returns a split's files of trees and optional features, by stream name."""
  parse, named = config.prepare.parse, {}
  for side in parse.sides:
    if given := getattr(parse, f"{side}_conllu"):
      named[f"trees.{side}"] = f"parse.{side}_conllu", given[split]
  for feature in OPTIONAL:
    named |= feature.streams(config.prepare, split)
  return {
    stream: (Source(raw_files.named(f"{option}.{split}", file)),)
    for stream, (option, file) in named.items()
  }


def _shown(path: pathlib.Path) -> str:
  """Returns a path for messages, without ".." in the middle."""
  return str(path) if remote.is_remote(path) else os.path.normpath(path)


def _warn_of_left_out(config: DataConfig, left_out: Mapping[str, str]) -> None:
  why = "; ".join(f"{name} ({short})" for name, short in left_out.items())
  tests = len({*config.data.test, *left_out})
  print(
    f"warning: {len(left_out)} of {tests} test splits are left"
    f" out: {why}. They are optional (config.prepare.optional); with their"
    " files in --raw_dir, prepare again.",
    flush=True,
  )


def _use_trees_of_treebanks(
  config: DataConfig, splits: Mapping[str, SplitInput]
) -> None:
  """Uses trees of treebank files, unless trees or a parser are configured."""
  parse = config.prepare.parse
  for side in parse.sides:
    if getattr(parse, f"{side}_conllu") or getattr(parse, side).parser.named:
      continue
    treebanks = [
      name
      for name, split in splits.items()
      if all(source.reader == "conllu" for source in split.streams[side])
    ]
    others = [name for name in splits if name not in treebanks]
    if treebanks and others:
      raise InputError(
        f"the {side} files of {', '.join(treebanks)} are treebanks, those of"
        f" {', '.join(others)} are not: name the source of trees, in"
        f" config.prepare.parse.{side}.udpipe.model (a parser for all) or"
        f" config.prepare.parse.{side}_conllu (CoNLL-U for all)."
      )
    for name in treebanks:
      streams = splits[name].streams
      streams[f"trees.{side}"] = streams[side]


def _key(
  config: DataConfig,
  splits: Mapping[str, SplitInput],
  parser_keys: Mapping[str, str | None],
  sums: Mapping[pathlib.Path, str],
) -> str:
  """Returns a hash of all options, files and parsers that affect the data."""
  recorded = as_dict(config.prepare)
  parse = recorded["parse"]
  for name in _UNRECORDED:
    del recorded[name]
  # These files are recorded by content, not by name.
  for feature in OPTIONAL:
    for option in feature.options:
      section, _, name = option.rpartition(".")
      del (recorded[section] if section else recorded)[name]
  for side in schema.SIDES:
    del parse[side], parse[f"{side}_conllu"]
  recorded["splits"] = {name: recorded["splits"][name] for name in splits}
  if not config.prepare.subset.pairs:
    del recorded["subset"]  # its seed has no effect
  if given := vocabulary.given_vocabularies(config):
    recorded["vocabulary"] = {side: v.sha256 for side, v in given.items()}
  content = {
    "recipe": _RECIPE,
    "options": recorded,
    "name": config.data.name,
    "languages": (config.data.source_language, config.data.target_language),
    "train": config.data.train,
    "lines": {name: split.lines for name, split in splits.items()},
    "streams": {
      name: {
        stream: [source.content_key(sums[source.path]) for source in sources]
        for stream, sources in split.streams.items()
      }
      for name, split in splits.items()
    },
    "parsers": parser_keys,
  }
  return checksums.sha256_texts([json.dumps(content, sort_keys=True)])
