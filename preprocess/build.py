"""Prepares a data set: raw parallel text in, TFRecords and a report out.

  python -m preprocess.build --config configs/multi30k_en_de.py [--raw_dir DIR]

Writes CoNLL-U, vocabulary, TFRecords, index, manifest and report into
config.data.directory. What is done already is used again, after an
interruption too; if nothing changed and nothing is damaged, nothing is done.
What is damaged is made again; --verify only looks, at everything. work/ in that
folder holds what is used again and may be deleted.
"""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import importlib.metadata
import pathlib
import shutil
import time
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from absl import flags
from tqdm import tqdm

from jaxsyn import cli, exits, files, lock
from jaxsyn.config import Config, read_config
from jaxsyn.data import schema
from jaxsyn.data.sentence import conllu, example
from jaxsyn.data.store import integrity
from jaxsyn.data.store import manifest as manifests
from preprocess import (
  clean,
  constituents,
  inputs,
  parse,
  publish,
  report,
  subwords,
  verify,
)
from preprocess.inputs import Split

_PACKAGES = (
  *("sentencepiece", "ufal.udpipe", "py3langid"),
  *("tensorflow-datasets", "numpy"),
)

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def run(config: Any, raw_dir: str = "") -> pathlib.Path:
  """Prepares the data set of a config.

  Args:
    config: a `jaxsyn.config.Config`, or a ConfigDict as get_config returns it.
    raw_dir: folder of the raw files; "" for config.prepare.raw_dir.

  Returns:
    The prepared folder, config.data.directory.

  Raises:
    InputError: something about the config or the files; names it.
  """
  if not isinstance(config, Config):
    config = read_config(config)
  started = time.monotonic()
  inputs.check(config)
  directory = pathlib.Path(config.data.directory)
  with _full_disk_at(directory):
    return _run(config, raw_dir, directory, started)


@contextlib.contextmanager
def _full_disk_at(directory: pathlib.Path) -> Iterator[None]:
  """Says which disk: to the system, what is written to is but a number."""
  try:
    yield
  except OSError as error:
    if error.errno not in _FULL or error.filename:
      raise
    raise OSError(error.errno, error.strerror, str(directory)) from error


def _run(config, raw_dir, directory, started) -> pathlib.Path:
  # A folder that was prepared may be on a disk that can only be read.
  if not (directory / manifests.FILE).exists():
    exits.check_target(directory, "config.data.directory", folder=True)
  splits = inputs.read(config, raw_dir, directory / "raw")
  parsers = inputs.parsers(config, splits, directory / "raw")
  key = inputs.key(config, splits, parsers)
  if verify.damage(directory, key) == []:
    print(f"{directory} is prepared already, from the same input and options.")
    return directory
  exits.check_target(directory, "config.data.directory", folder=True)
  publish.check_room(directory, config.data.name, inputs.used(splits))
  _clean(config, splits)
  inputs.check_text(splits)
  work = directory / "work"
  advice = "Wait until it has ended, then run the same command again."
  with lock.alone(work, advice=advice):
    # Once more, for another process may have made or mended it meanwhile.
    damage = verify.damage(directory, key)
    if damage == []:
      print(f"{directory} was prepared meanwhile, by another process.")
      return directory
    for fault in damage or []:
      print(f"damaged: {fault}", flush=True)
    if damage:
      print(f"{directory} is made again.", flush=True)
    _make(config, splits, parsers, key, work, directory, started)
  print((directory / "report.txt").read_text(encoding="utf-8"))
  return directory


def _make(config, splits, parsers, key, work, directory, started) -> None:
  """Makes everything in a folder of its own, then moves it to its place."""
  for folder in (directory, work, work / "parse"):
    files.remove_unfinished(folder)
  # Not in work/, which may be a link to another disk: nothing moves from there.
  new = directory / f".new{files.PARTIAL}"
  new.mkdir()
  try:
    vocabularies = subwords.vocabularies(config, splits, work)
    subwords.drop(config, splits, vocabularies)
    for name, split in splits.items():
      _trees(config, name, split, parsers, work, new)
    manifest = _records(config, splits, vocabularies, parsers, new)
    manifest |= _provenance(config, key, vocabularies, parsers, splits, new)
    made = (p.relative_to(new) for p in sorted(new.rglob("*")) if p.is_file())
    manifest["files"] = integrity.sums(new, [p.as_posix() for p in made])
    manifest["downloads"] = inputs.downloads(directory / "raw", splits, parsers)
    manifest["seconds"] = round(time.monotonic() - started, 1)
    publish.publish(new, directory, manifest)
  finally:
    shutil.rmtree(new, ignore_errors=True)


def _clean(config: Config, splits: Mapping[str, Split]) -> None:
  options, data = config.prepare.clean, config.data
  for name, split in splits.items():
    if options.nfc:
      # References stay as they are: a score must not change with the option.
      sides = schema.SIDES if name == data.train else ("source",)
      normal = {}
      for side in sides:
        normal[side], _ = clean.nfc(getattr(split.pairs, side))
        _, changed = clean.nfc(split.lines(side))
        print(f"{name}: {changed} {side} lines changed by NFC")
      split.pairs = dataclasses.replace(split.pairs, **normal)
  split = splits[data.train]
  steps = clean.steps(options, data.source_language, data.target_language)
  cleaned = clean.clean(split.lines("source"), split.lines("target"), steps)
  split.kept = [split.kept[i] for i in cleaned.kept]
  split.dropped = cleaned.dropped


def _trees(config, name, split, parsers, work, new) -> None:
  """Writes the text and the trees of a split."""
  for side in schema.SIDES:
    text = "".join(line + "\n" for line in split.lines(side))
    parse.write_text(manifests.text_file(new, name, side), [text])
  options = config.prepare
  for side, parser in parsers.items():
    path = split.conllu[side] = manifests.conllu_file(new, name, side)
    lines = split.lines(side)
    if side in split.given:
      file, every = str(split.file(side)), getattr(split.pairs, side)
      whole = bool(options.parse.annotations)
      parse.take(split.given[side], file, every, split.kept, name, path, whole)
      continue
    found = parse.parse(
      lines,
      parser,
      work / "parse",
      beam=options.parse.beam,
      workers=options.workers,
      what=f"parsing {name} {side}",
    )
    parse.join(found, parse.chunks(lines), name, split.numbers, path)


def _records(config, splits, vocabularies, parsers, new) -> dict[str, Any]:
  """Writes records, index and report; returns that part of the manifest."""
  from jaxsyn.data.store import tfds_builder

  data, sides = config.data, config.prepare.parse.sides
  annotations = config.prepare.parse.annotations
  labels = {
    side: parse.relations(splits[data.train].conllu[side]) for side in sides
  }
  brackets = constituents.labels(splits)
  bracket_ids = schema.relation_ids(brackets)
  counted = {name: report.Counts(sides) for name in splits}
  manifest = {
    "name": data.name,
    "version": tfds_builder.VERSION,
    "source_language": data.source_language,
    "target_language": data.target_language,
    "sides": list(sides),
    "relations": labels,
    **({"brackets": {"source": brackets}} if brackets else {}),
    **({"annotations": list(annotations)} if annotations and sides else {}),
  }
  facts = tfds_builder.write(
    new,
    name=data.name,
    version=tfds_builder.VERSION,
    features=schema.tfds_features(
      sides, brackets=bool(brackets), annotations=annotations
    ),
    splits={
      name: (
        len(split.kept),
        constituents.added(
          examples(name, split, vocabularies, manifest, counted[name]),
          split,
          vocabularies["source"],
          bracket_ids,
          counted[name],
        ),
      )
      for name, split in splits.items()
    },
    shards=config.prepare.shards,
  )
  for name, split in splits.items():
    facts[name] = {
      "examples": facts[name]["examples"],
      "lines": len(split.kept) + sum(split.dropped.values()),
      "dropped": split.dropped,
      "unparsed": counted[name].unparsed,
      "blank": counted[name].blank,
      "files": [file.name for file in split.pairs.files],
      "raw_sha256": split.pairs.sha256,
      **({"brackets": counted[name].brackets} if split.brackets else {}),
      **facts[name],
    }
  given = splits[data.train].given
  trees = " and ".join(
    f"{side} side ({'CoNLL-U' if side in given else parsers[side].path.name})"
    for side in sides
  )
  sizes = " and ".join(
    f"{v.size:,}" for v in dict.fromkeys(vocabularies.values())
  )
  title = (
    f"{data.name}: {data.source_language} to {data.target_language}, vocabulary"
    f" of {sizes} subwords, {f'trees on the {trees}' if trees else 'no trees'}"
  )
  report.write(new, title, facts, counted, data.train)
  return {**manifest, "splits": facts}


def examples(
  name: str, split: Split, vocabularies, manifest, counts: report.Counts
) -> Iterator[dict[str, np.ndarray]]:
  """The examples of a split in order, counted on the way."""
  sentences = []
  for side in schema.SIDES:
    sentence = iter(split.lines(side))
    if side in split.conllu:
      sentence = conllu.match(
        conllu.read(split.conllu[side]),
        sentence,
        f"kept lines of {split.file(side)}",
      )
    sentences.append(sentence)
  known = manifests.encoding(manifest)
  known["vocabularies"] = (vocabularies["source"], vocabularies["target"])
  rows = zip(split.numbers, *sentences)
  total = len(split.kept)
  for number, source, target in tqdm(
    rows, f"writing {name}", total, unit="pair", disable=None
  ):
    made = example.encode(source, target, line=number, **known)
    counts.add(made)
    yield made


def _provenance(
  config, key, vocabularies, parsers, splits, new
) -> dict[str, Any]:
  """Copies the models; returns that part of the manifest."""
  given = splits[config.data.train].given
  joint = config.prepare.vocabulary.joint
  said = {}
  for side, vocabulary in vocabularies.items():
    file = "vocabulary.model" if joint else f"{side}.model"
    files.copy(vocabulary.path, new / file)
    said[side] = {
      "file": file,
      "sha256": vocabulary.sha256,
      "size": vocabulary.size,
    }
  parsed = {}
  for side, parser in parsers.items():
    trees = "CoNLL-U" if side in given else "parser"
    if parser is None:
      parsed[side] = {"file": "", "sha256": "", "name": "", "trees": trees}
      continue
    file = f"parser.{side}.udpipe"
    files.copy(parser.path, new / file)
    parsed[side] = {
      "file": file,
      "sha256": parser.sha256,
      "name": parser.path.name,
      "trees": trees,
    }
  options = dataclasses.asdict(config.prepare)
  return {
    "vocabulary": said,
    "parser": parsed,
    "options": options,
    "versions": {p: importlib.metadata.version(p) for p in _PACKAGES},
    "key": key,
  }


def _main(values: flags.FlagValues) -> None:
  directory = read_config(values.config).data.directory
  if values.verify:
    verify.run(directory)
    return
  run(values.config, values.raw_dir)


if __name__ == "__main__":
  cli.config_flag()
  flags.DEFINE_string(
    "raw_dir", "", "Folder of the raw files; else config.prepare.raw_dir."
  )
  flags.DEFINE_bool(
    "verify",
    False,
    "Read all of the prepared folder and tell what is damaged, changing"
    " nothing. Exit status 0: it is whole; 2: it is not.",
  )
  cli.main(_main)
