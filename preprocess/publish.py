"""Completes a new dataset, and moves it into the dataset directory.

The manifest comes last: a folder without a manifest is no dataset.
"""

from __future__ import annotations

import importlib.metadata
import os
import pathlib
import re
import shutil
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from jaxsyn.data import schema
from jaxsyn.data.store import manifests
from jaxsyn.errors import InputError
from jaxsyn.options import as_dict
from jaxsyn.preprocess import clean, extras, records, report, stages, subset
from jaxsyn.preprocess.corpus import JobContext, SplitInput
from jaxsyn.preprocess.inputs import Inputs
from jaxsyn.preprocess.outputs import Result
from jaxsyn.storage import checksums, files, remote

_PACKAGES = "sentencepiece ufal.udpipe py3langid tensorflow-datasets numpy"


def complete(inputs: Inputs, context: JobContext) -> dict[str, Any]:
  """Writes metadata, models and report of a new dataset.

  Args:
    inputs: input of the dataset.
    context: preparation job, whose stages are finished.

  Returns:
    Manifest of the dataset.
  """
  job, described = context.job, context.manifest
  sums = {
    result["file"]: {name: result[name] for name in ("bytes", "crc32c")}
    for result in stages.results(context, "shards")
  }
  encoded, trees = (
    stages.results(context, stage) for stage in ("encode", "trees")
  )
  counts, splits = {}, {}
  for number, split in enumerate(job.splits):
    chunks = context.chunks(split.name)
    of_split = [encoded[n] for n in chunks]
    counts[split.name] = report.total(result["counts"] for result in of_split)
    entry = _describe(inputs, context, split, counts[split.name])
    entry |= records.write_index(context, number)
    entry["doubts"] = context.outputs.summary("trees")["warnings"][split.name]
    if "brackets" in split.streams:
      entry["brackets"] = extras.bracket_counts(of_split)
    if any(split.alternatives(side) for side in schema.SIDES):
      of_trees = [trees[n] for n in chunks]
      entry["alternatives"] = extras.alternative_counts(of_trees)
    if context.config.prepare.subset.pairs and context.is_train(split):
      entry["subset"] = _write_subset(context)
    if "alignments" in split.streams:
      entry["linked"] = sum(result["linked"] for result in of_split)
    splits[split.name] = entry
  models = _copy_models(inputs, context)
  title = _title(inputs, models["vocabulary"])
  with files.filled_folder(job.new) as folder:
    _write_tfds_metadata(folder, context, title, splits)
    report.write(
      folder,
      title,
      splits,
      counts=counts,
      sides=described["sides"],
      train=context.config.data.train,
      left_out=inputs.left_out,
    )
  names = files.names(job.new)
  rest = [name for name in names if name not in sums]
  sums |= checksums.file_checksums(job.new, rest)
  return {
    **described,
    "splits": splits,
    **models,
    "options": as_dict(context.config.prepare),
    "versions": {p: importlib.metadata.version(p) for p in _PACKAGES.split()},
    "key": inputs.key,
    "files": {name: sums[name] for name in names},
    "downloads": inputs.downloads,
    **({"left_out": inputs.left_out} if inputs.left_out else {}),
  }


def _describe(
  inputs: Inputs, context: JobContext, split: SplitInput, counts: report.Counts
) -> Result:
  """Returns the origin and line counts of a split, for the manifest."""
  raw = inputs.splits[split.name]
  lines = context.line_ranges[context.job.splits.index(split)]
  return {
    "lines": len(lines),
    "dropped": context.outputs.summary("trees")["dropped"][split.name],
    "unparsed": report.unparsed(counts, context.manifest["sides"]),
    "blank": {side: report.blank(counts, side) for side in schema.SIDES},
    "files": raw.text_names,
    "raw_sha256": inputs.sha256(raw),
  }


def _write_subset(context: JobContext) -> Result:
  """Writes the line numbers of the random subset of the training split.

  Returns: The entry of the subset in the manifest.
  """
  options, name = context.config.prepare.subset, context.config.data.train
  lines = [
    context.chunk(number).lines[row]
    for number in context.train_chunks
    for row in clean.kept_rows(context, number)
  ]
  subset.write(context.job.new, name, lines)
  return {
    "pairs": options.pairs,
    "of": options.pairs + context.dropped[name]["subset"],
    "seed": options.seed,
    "lines": subset.file_of(name),
  }


def _copy_models(inputs: Inputs, context: JobContext) -> dict[str, Any]:
  """Copies vocabularies and parsers; returns their manifest entries."""
  joint, new = context.config.prepare.vocabulary.joint, context.job.new
  recorded, parsed = {}, {}
  for side, vocabulary in context.vocabularies.items():
    file = "vocabulary.model" if joint else f"{side}.model"
    files.copy(vocabulary.path, new / file)
    recorded[side] = {
      "file": file,
      "sha256": vocabulary.sha256,
      "size": vocabulary.size,
    }
  for side, parser in inputs.parsers.items():
    trees = "CoNLL-U" if inputs.has_trees(side) else "parser"
    parsed[side] = {"file": "", "sha256": "", "name": "", "trees": trees}
    if parser:
      parsed[side] |= parser.identity.entry()
      if path := inputs.specs[side].file:
        parsed[side]["file"] = f"parser.{side}.{parser.identity.kind}"
        files.copy(path, new / parsed[side]["file"])
  return {"vocabulary": recorded, "parser": parsed}


def _title(inputs: Inputs, vocabulary: Mapping[str, Any]) -> str:
  """Returns a one-line description of the dataset."""
  data, sides = inputs.config.data, []
  for side, parser in inputs.parsers.items():
    is_parsed = parser and not inputs.has_trees(side)
    origin = parser.identity.title if parser and is_parsed else "CoNLL-U"
    sides.append(f"{side} side ({origin})")
  sizes = {entry["file"]: f"{entry['size']:,}" for entry in vocabulary.values()}
  trees = f"trees on the {' and '.join(sides)}" if sides else "no trees"
  return (
    f"{data.name}: {data.source_language} to {data.target_language}, vocabulary"
    f" of {' and '.join(sizes.values())} subwords, {trees}"
  )


def _write_tfds_metadata(
  folder: pathlib.Path,
  context: JobContext,
  title: str,
  splits: Mapping[str, Mapping[str, Any]],
) -> None:
  # TFDS takes a second to load, and input errors should be reported first.
  from jaxsyn.data.store import tfds_metadata

  described = context.manifest
  tfds_metadata.write_metadata(
    manifests.tfds_folder(folder, described),
    name=described["name"],
    version=described["version"],
    features=tfds_metadata.tfds_features(described),
    splits=splits,
    title=title,
  )


def check_no_user_files(
  directory: pathlib.Path, name: str, used: Iterable[pathlib.Path]
) -> None:
  """Raises InputError if a file of the user is where prepared files go.

  Args:
    directory: dataset directory; it may not exist.
    name: name of the dataset.
    used: input files of the dataset.
  """
  shard = r"(-\d{5}-of-\d{5})?"
  prepared = {
    "conllu": rf".+\.(source|target){shard}\.conllu\.gz",
    "text": rf".+\.((source|target){shard}|drawn)\.gz",
    name: r"\d+\.\d+\.\d+",
  }
  used = list(used)
  for folder_name, pattern in prepared.items():
    folder = directory / folder_name
    users = [p for p in used if _real(p).startswith(_real(folder) + os.sep)]
    users += [p for p in _inside(folder) if not re.fullmatch(pattern, p.name)]
    if users:
      raise InputError(
        f"{users[0]} would be lost, for {folder} is where prepared files go."
        " Move it to another folder, or set config.data.directory to one."
      )


def _inside(folder: pathlib.Path) -> Iterator[pathlib.Path]:
  """Yields the visible paths directly in a folder, or the path of a file."""
  if remote.is_remote(folder):
    existing = {name.partition("/")[0] for name in files.names(folder)}
    yield from (folder / name for name in sorted(existing) if name[0] != ".")
  elif folder.is_dir():
    yield from (p for p in sorted(folder.iterdir()) if p.name[0] != ".")
  elif os.path.lexists(folder):
    yield folder


def _real(path: pathlib.Path) -> str:
  return str(path) if remote.is_remote(path) else os.path.realpath(path)


def publish(
  new: pathlib.Path, directory: pathlib.Path, manifest: Mapping[str, Any]
) -> None:
  """Moves a new dataset into its directory and writes the manifest last.

  The old manifest is removed first, so a mix of old and new files is never
  used, even after a loss of power.

  Args:
    new: folder of the new files, in `directory`.
    directory: dataset directory.
    manifest: manifest of the new files.
  """
  manifest_file = directory / manifests.FILE
  if remote.is_remote(directory):  # which cannot move folders
    files.remove(manifest_file)
    for name in sorted({name.partition("/")[0] for name in files.names(new)}):
      files.remove_folder(directory / name)
    manifests.write(new, manifest)
    remote.move(new, directory, last=manifests.FILE)
    return
  files.flush_tree(new)
  manifest_file.unlink(missing_ok=True)
  files.flush_folder(directory)
  for path in sorted(new.iterdir()):
    place = directory / path.name
    if place.is_dir() and not place.is_symlink():
      shutil.rmtree(place)
    else:
      place.unlink(missing_ok=True)
    os.rename(path, place)
  files.flush_folder(directory)
  manifests.write(directory, manifest)
