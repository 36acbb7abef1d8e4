"""Prepares a data set: raw parallel text in, TFRecords and a report out.

  python -m preprocess.build --config configs/multi30k_en_de.py [--raw_dir DIR]

Writes CoNLL-U, vocabulary, TFRecords, index, manifest and report into
config.data.directory. What is done already is used again, after an
interruption too; if nothing changed, nothing is done. work/ in that folder
holds what is used again and may be deleted.
"""

from __future__ import annotations

import dataclasses
import importlib.metadata
import json
import os
import pathlib
import shutil
import time
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from absl import flags
from tqdm import tqdm

from jaxsyn import cli
from jaxsyn import config as configs
from jaxsyn.data import conllu, example, integrity, schema
from jaxsyn.data import manifest as manifests
from jaxsyn.data.records import Records
from jaxsyn.data.vocabulary import Vocabulary, train
from jaxsyn.errors import InputError
from preprocess import clean, constituents, inputs, parse, report
from preprocess.inputs import Split

_PACKAGES = (
  *("sentencepiece", "ufal.udpipe", "py3langid"),
  *("tensorflow-datasets", "numpy"),
)


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
  if not isinstance(config, configs.Config):
    config = configs.read(config)
  started = time.monotonic()
  inputs.check(config)
  directory = pathlib.Path(config.data.directory)
  splits = inputs.read(config, raw_dir, directory / "raw")
  parsers = inputs.parsers(config, splits, directory / "raw")
  key = inputs.key(config, splits, parsers)
  if _is_done(directory, key):
    print(f"{directory} is prepared already, from the same input and options.")
    return directory

  work = directory / "work"
  new = work / "new"  # everything is made here, then moved
  shutil.rmtree(new, ignore_errors=True)
  try:
    new.mkdir(parents=True)
  except (FileExistsError, FileNotFoundError, NotADirectoryError) as error:
    raise InputError(
      f"config.data.directory: cannot make the folder {directory} ({error})."
    ) from None
  try:
    _clean(config, splits)
    vocabularies = _vocabularies(config, splits, work)
    _drop_long(config, splits, vocabularies)
    for name, split in splits.items():
      _trees(config, name, split, parsers, work, new)
    manifest = _records(config, splits, vocabularies, parsers, new)
    given = splits[config.data.train].given
    manifest |= _provenance(config, key, vocabularies, parsers, given, new)
    manifest["files"] = integrity.sums(new, integrity.names(new, manifest))
    manifest["seconds"] = round(time.monotonic() - started, 1)
    _publish(new, directory, manifest)
  finally:
    shutil.rmtree(new, ignore_errors=True)
  print((directory / "report.txt").read_text(encoding="utf-8"))
  return directory


def _is_done(directory: pathlib.Path, key: str) -> bool:
  """Whether the folder is whole and made from the same input."""
  try:
    manifest = manifests.read(directory)
    if manifest.get("key") != key:
      return False
    for side, facts in manifest["vocabulary"].items():
      manifests.check_vocabulary(
        manifest, Vocabulary(directory / facts["file"]), side
      )
    for split in manifest["splits"]:
      Records(directory, split)
      files = [manifests.text_file(directory, split, s) for s in schema.SIDES]
      files += [
        manifests.conllu_file(directory, split, s) for s in manifest["sides"]
      ]
      if not all(file.is_file() for file in files):
        return False
  except InputError:
    return False
  return True


def _clean(config: configs.Config, splits: Mapping[str, Split]) -> None:
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


def _vocabularies(
  config: configs.Config, splits: Mapping[str, Split], work: pathlib.Path
) -> dict[str, Vocabulary]:
  """Side -> vocabulary; twice the same object if it is joint."""
  options, split = config.prepare.vocabulary, splits[config.data.train]
  groups = [schema.SIDES] if options.joint else [(s,) for s in schema.SIDES]
  found = {}
  for sides in groups:
    lines = [line for side in sides for line in split.lines(side)]
    # What was used to train it is in its name.
    said = json.dumps(dataclasses.asdict(options), sort_keys=True)
    key = manifests.sha256_texts([said, *lines])[:32]
    path = work / f"vocabulary-{key}.model"
    try:
      vocabulary = Vocabulary(path)
    except InputError:  # not made yet, or damaged
      print(f"training a vocabulary on {len(lines):,} lines", flush=True)
      vocabulary = train(
        lines,
        path,
        size=options.size,
        type=options.type,
        character_coverage=options.character_coverage,
        normalisation=options.normalisation,
      )
    if vocabulary.size != options.size:
      print(
        f"the text is enough for a vocabulary of {vocabulary.size} pieces, not"
        f" {options.size}"
      )
    found |= dict.fromkeys(sides, vocabulary)
  return found


def _drop_long(config, splits, vocabularies) -> None:
  """Drops training pairs of more subwords than wanted, EOS included.

  And those that have none on a side, where empty ones are to go: "▁" alone is
  text, and yet a blank to the vocabulary.
  """
  split, most = splits[config.data.train], config.prepare.max_subwords
  kept, none, long = [], 0, 0
  for i in tqdm(split.kept, "counting subwords", unit="pair", disable=None):
    lengths = [
      len(vocabularies[side].encode(getattr(split.pairs, side)[i]).id)
      for side in schema.SIDES
    ]
    if config.prepare.clean.empty and not all(lengths):
      none += 1
    elif max(lengths) >= most:
      long += 1
    else:
      kept.append(i)
  if none:
    split.dropped["empty"] += none
  split.dropped["max_subwords"] = long
  if not kept:
    raise InputError(
      f"config.prepare.max_subwords={most} drops all training pairs"
      + (f", but {none} that have no subwords." if none else ".")
    )
  split.kept = kept


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
      parse.take(split.given[side], file, every, split.kept, name, path)
      continue
    files = parse.parse(
      lines,
      parser,
      work / "parse",
      beam=options.parse.beam,
      workers=options.workers,
      what=f"parsing {name} {side}",
    )
    parse.join(files, parse.chunks(lines), name, split.numbers, path)


def _records(config, splits, vocabularies, parsers, new) -> dict[str, Any]:
  """Writes records, index and report; returns that part of the manifest."""
  from jaxsyn.data import tfds_builder

  data, sides = config.data, config.prepare.parse.sides
  labels = {
    side: parse.relations(splits[data.train].conllu[side]) for side in sides
  }
  ids = {side: schema.relation_ids(labels[side]) for side in sides}
  brackets = constituents.labels(splits)
  bracket_ids = schema.relation_ids(brackets)
  counted = {name: report.Counts(sides) for name in splits}
  facts = tfds_builder.write(
    new,
    data.name,
    tfds_builder.VERSION,
    schema.tfds_features(sides, bool(brackets)),
    {
      name: (
        len(split.kept),
        constituents.added(
          examples(name, split, vocabularies, ids, counted[name]),
          split,
          vocabularies["source"],
          bracket_ids,
          counted[name],
        ),
      )
      for name, split in splits.items()
    },
    config.prepare.shards,
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
  return {
    "name": data.name,
    "version": tfds_builder.VERSION,
    "source_language": data.source_language,
    "target_language": data.target_language,
    "sides": list(sides),
    "splits": facts,
    "relations": labels,
    **({"brackets": {"source": brackets}} if brackets else {}),
  }


def examples(
  name: str, split: Split, vocabularies, ids, counts: report.Counts
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
  both = (vocabularies["source"], vocabularies["target"])
  rows = zip(split.numbers, *sentences)
  total = len(split.kept)
  for number, source, target in tqdm(
    rows, f"writing {name}", total, unit="pair", disable=None
  ):
    made = example.encode(source, target, both, ids, number)
    counts.add(made)
    yield made


def _provenance(
  config, key, vocabularies, parsers, given, new
) -> dict[str, Any]:
  """Copies the models; returns that part of the manifest."""
  joint = config.prepare.vocabulary.joint
  said = {}
  for side, vocabulary in vocabularies.items():
    file = "vocabulary.model" if joint else f"{side}.model"
    shutil.copyfile(vocabulary.path, new / file)
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
    shutil.copyfile(parser.path, new / file)
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


def _publish(
  new: pathlib.Path, directory: pathlib.Path, manifest: Mapping[str, Any]
) -> None:
  """Moves the pieces to their places; the manifest comes last.

  A folder without a manifest is no data set, so a mix of old and new pieces
  is never taken for one.
  """
  (directory / manifests.FILE).unlink(missing_ok=True)
  for piece in sorted(new.iterdir()):
    old = directory / piece.name
    if old.is_dir():
      shutil.rmtree(old)
    os.replace(piece, old)
  manifests.write(directory, manifest)


def _main(values: flags.FlagValues) -> None:
  run(values.config, values.raw_dir)


if __name__ == "__main__":
  cli.config_flag()
  flags.DEFINE_string(
    "raw_dir", "", "Folder of the raw files; else config.prepare.raw_dir."
  )
  cli.main(_main)
