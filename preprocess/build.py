"""Prepares a data set: raw parallel text in, TFRecords and a report out.

  python -m preprocess.build --config configs/multi30k_en_de.py [--raw_dir DIR]

Writes CoNLL-U, vocabulary, TFRecords, index, manifest and report into
config.data.directory. What is done already is used again, after an
interruption too; if nothing changed and nothing is damaged, nothing is done.
What is damaged is made again; --verify only looks, at everything. work/ in that
folder holds what is used again and may be deleted.
"""

from __future__ import annotations

import dataclasses
import errno
import importlib.metadata
import pathlib
import shutil
import time
from collections.abc import Mapping
from typing import Any

from absl import flags

from jaxsyn import cli, exits, files, lock
from jaxsyn.config import Config, read_config
from jaxsyn.data import schema
from jaxsyn.data.sentence.vocabulary import Vocabulary
from jaxsyn.data.store import manifests
from preprocess import (
  clean,
  parse,
  publish,
  records,
  subwords,
  verify,
)
from preprocess.inputs import Inputs, read_inputs
from preprocess.split import RawSplit

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
  directory = pathlib.Path(config.data.directory)
  try:
    return _run(config, raw_dir, directory)
  except OSError as error:
    if error.errno not in _FULL or error.filename:
      raise
    # Which disk: to the system, what is written to is but a number.
    raise OSError(error.errno, error.strerror, str(directory)) from error


def _run(config: Config, raw_dir: str, directory: pathlib.Path) -> pathlib.Path:
  started = time.monotonic()
  # A folder that was prepared may be on a disk that can only be read.
  if not (directory / manifests.FILE).exists():
    exits.check_target(str(directory), "config.data.directory", folder=True)
  inputs = read_inputs(config, raw_dir, directory / "raw")
  if verify.damage(directory, inputs.key) == []:
    print(f"{directory} is prepared already, from the same input and options.")
    return directory
  exits.check_target(str(directory), "config.data.directory", folder=True)
  publish.check_room(directory, config.data.name, inputs.files)
  clean.apply(config, inputs.splits)
  clean.check_text(inputs.splits)
  advice = "Wait until it has ended, then run the same command again."
  with lock.alone(directory / "work", advice=advice):
    # Once more, for another process may have made or mended it meanwhile.
    damage = verify.damage(directory, inputs.key)
    if damage == []:
      print(f"{directory} was prepared meanwhile, by another process.")
      return directory
    for fault in damage or []:
      print(f"damaged: {fault}", flush=True)
    if damage:
      print(f"{directory} is made again.", flush=True)
    _make(inputs, directory, started)
  print((directory / "report.txt").read_text(encoding="utf-8"))
  return directory


def _make(inputs: Inputs, directory: pathlib.Path, started: float) -> None:
  """Makes everything in a folder of its own, then moves it to its place."""
  config, splits, work = inputs.config, inputs.splits, directory / "work"
  for folder in (directory, work, work / "parse"):
    files.remove_unfinished(folder)
  # Not in work/, which may be a link to another disk: nothing moves from there.
  new = directory / f".new{files.PARTIAL}"
  new.mkdir()
  try:
    vocabularies = subwords.vocabularies(config, splits, work)
    subwords.drop(config, splits, vocabularies)
    for split in splits.values():
      for side in schema.SIDES:
        lines = (f"{line}\n" for line in split.lines(side))
        parse.write_text(manifests.text_file(new, split.name, side), lines)
      _write_trees(split, inputs, new, cache=work / "parse")
    manifest = records.write(new, inputs, vocabularies)
    manifest |= _copy_models(inputs, vocabularies, new)
    manifest |= {
      "options": dataclasses.asdict(config.prepare),
      "versions": {p: importlib.metadata.version(p) for p in _PACKAGES},
      "key": inputs.key,
    }
    made = (p.relative_to(new) for p in sorted(new.rglob("*")) if p.is_file())
    manifest["files"] = files.sums(new, [p.as_posix() for p in made])
    manifest["downloads"] = inputs.downloads
    manifest["seconds"] = round(time.monotonic() - started, 1)
    publish.publish(new, directory, manifest)
  finally:
    shutil.rmtree(new, ignore_errors=True)


def _write_trees(
  split: RawSplit, inputs: Inputs, new: pathlib.Path, *, cache: pathlib.Path
) -> None:
  """Writes the trees of the kept lines: those given, or a parser's."""
  options = inputs.config.prepare
  for side, parser in inputs.parsers.items():
    path = manifests.conllu_file(new, split.name, side)
    split.conllu[side] = path
    if side in split.given:
      annotated = bool(options.parse.annotations)
      split.relations[side] = parse.take(split, side, path, whole=annotated)
      continue
    assert parser, "trees of a side are given in all splits or in none"
    chunks = parse.parse(
      split.lines(side),
      parser,
      cache,
      workers=options.workers,
      what=f"parsing {split.name} {side}",
    )
    split.relations[side] = parse.join(split, side, path, chunks)


def _copy_models(
  inputs: Inputs, vocabularies: Mapping[str, Vocabulary], new: pathlib.Path
) -> dict[str, Any]:
  """Copies vocabularies and parsers; returns that part of the manifest."""
  joint = inputs.config.prepare.vocabulary.joint
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
  for side, parser in inputs.parsers.items():
    trees = "CoNLL-U" if side in inputs.train.given else "parser"
    parsed[side] = {"file": "", "sha256": "", "name": "", "trees": trees}
    if parser:
      file = f"parser.{side}.udpipe"
      files.copy(parser.path, new / file)
      parsed[side] |= {
        "file": file,
        "sha256": parser.sha256,
        "name": parser.path.name,
      }
  return {"vocabulary": said, "parser": parsed}


def _main(values: flags.FlagValues) -> None:
  if values.raw_dir:  # in the config, so that what refers to it follows
    values.config.prepare.raw_dir = values.raw_dir
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
