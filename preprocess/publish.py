"""Completes a new dataset, and moves it into the dataset directory.

The manifest comes last: a folder without a manifest is no dataset.
"""

from __future__ import annotations

import importlib.metadata
import os
import pathlib
import re
import shutil
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from jaxsyn.data import schema
from jaxsyn.data.store import manifests
from jaxsyn.errors import InputError
from jaxsyn.options import as_dict
from jaxsyn.preprocess import inputs, records, report, stages
from jaxsyn.preprocess.job import PrepareJob, SplitInput
from jaxsyn.preprocess.outputs import Result
from jaxsyn.preprocess.vocabulary import model_file
from jaxsyn.storage import checksums, files, remote

_PACKAGES = "sentencepiece ufal.udpipe py3langid tensorflow-datasets numpy"


def complete(job: PrepareJob) -> dict[str, Any]:
  """Completes a new dataset: writes its metadata, models and report.

  Args:
    job: Preparation job, whose stages are finished.

  Returns:
    Manifest of the dataset.
  """
  described = job.manifest
  shards = stages.results(job, "shards")
  splits, indexes = {}, {}
  for number, split in enumerate(job.splits):
    entry, indexes[split.name] = records.write_index(job, number, shards)
    splits[split.name] = entry | _describe(job, split, indexes[split.name])
  models = _copy_models(job)
  title = _title(job, models["vocabulary"])
  left_out = job.left_out
  text = report.text(
    title, splits, indexes, sides=described["sides"], left_out=left_out
  )
  # TFDS takes a second to load, and input errors should be reported first.
  from jaxsyn.data.store import tfds_metadata

  with files.filled_folder(job.new) as folder:
    tfds_metadata.write_metadata(
      manifests.tfds_folder(folder, described),
      name=described["name"],
      version=described["version"],
      features=tfds_metadata.tfds_features(described),
      splits=splits,
      title=title,
    )
    files.write_text(folder / "report.txt", text)
  names = files.names(job.new)
  sums = {
    result["file"]: {name: result[name] for name in ("bytes", "crc32c")}
    for result in shards
  }
  rest = [name for name in names if name not in sums]
  sums |= checksums.file_checksums(job.new, rest)
  return {
    **described,
    "splits": splits,
    **models,
    "options": as_dict(job.config.prepare),
    "versions": {p: importlib.metadata.version(p) for p in _PACKAGES.split()},
    "key": job.key,
    "files": {name: sums[name] for name in names},
    "downloads": inputs.downloads_of(job),
    **({"left_out": left_out} if left_out else {}),
  }


def _describe(job: PrepareJob, split: SplitInput, index: np.ndarray) -> Result:
  """Returns the manifest entry of a split: its origin and counts."""
  lines = job.line_ranges[job.splits.index(split)]
  trees = job.summary("trees")
  counts = dict(job.summary("encode")["counts"][split.name])
  unknown, unparsed = counts.pop("unknown"), counts.pop("unparsed")
  entry = {
    "lines": len(lines),
    "dropped": trees["dropped"][split.name],
    "unparsed": sum(unparsed.values()),
    "unknown": unknown,
    # EOS alone.
    "blank": {side: int((index[side] == 1).sum()) for side in schema.SIDES},
    "tree_warnings": trees["warnings"][split.name],
    "files": list(dict.fromkeys(path.name for path in split.text_paths)),
    "raw_sha256": checksums.sha256_texts(
      job.sums[path] for path in split.text_paths
    ),
    "optional": counts,
  }
  subset = job.config.prepare.subset
  if subset.pairs and job.is_train(split):
    clean_pairs = subset.pairs + entry["dropped"]["subset"]
    entry["subset"] = {
      "pairs": subset.pairs,
      "of": clean_pairs,
      "seed": subset.seed,
    }
  return entry


def _copy_models(job: PrepareJob) -> dict[str, Any]:
  """Copies vocabularies and parsers; returns their entries in the manifest."""
  options, vocabularies, parsers = job.config.prepare.vocabulary, {}, {}
  for side, vocabulary in job.vocabularies.items():
    file = model_file(options, side)
    files.copy(vocabulary.path, job.new / file)
    vocabularies[side] = {
      "file": file,
      "sha256": vocabulary.sha256,
      "size": vocabulary.size,
    }
  for side, parser in job.parser_specs.items():
    trees = "CoNLL-U" if job.has_trees(side) else "parser"
    entry = {"file": "", "sha256": "", "name": "", "trees": trees}
    if parser:
      spec, identity = parser
      entry |= identity.entry()
      if path := spec.file:
        entry["file"] = f"parser.{side}.{identity.kind}"
        files.copy(path, job.new / entry["file"])
    parsers[side] = entry
  return {"vocabulary": vocabularies, "parser": parsers}


def _title(job: PrepareJob, vocabulary: Mapping[str, Any]) -> str:
  """Returns a one-line description of the dataset for its metadata."""
  data, sides = job.config.data, []
  for side, parser in job.parser_specs.items():
    is_parsed = parser and not job.has_trees(side)
    origin = parser[1].title if parser and is_parsed else "CoNLL-U"
    sides.append(f"{side} side ({origin})")
  sizes = {entry["file"]: f"{entry['size']:,}" for entry in vocabulary.values()}
  trees = f"trees on the {' and '.join(sides)}" if sides else "no trees"
  return (
    f"{data.name}: {data.source_language} to {data.target_language}, vocabulary"
    f" of {' and '.join(sizes.values())} subwords, {trees}"
  )


def check_no_user_files(
  directory: pathlib.Path, name: str, sources: Iterable[pathlib.Path]
) -> None:
  """Raises InputError if publishing would delete a user's own files.

  Hidden files are ignored.

  Args:
    directory: Dataset directory; it may not exist.
    name: Name of the dataset.
    sources: Input files of the dataset.
  """
  shard = r"(-\d{5}-of-\d{5})?"
  prepared = {
    "conllu": rf".+\.(source|target){shard}\.conllu\.gz",
    # "drawn": line numbers of a subset, from an earlier version.
    "text": rf".+\.((source|target){shard}|drawn)\.gz",
    name: r"\d+\.\d+\.\d+/.+",
  }
  input_paths = {_real_path(path) for path in sources}
  for folder_name, pattern in prepared.items():
    folder = directory / folder_name
    names = [folder_name] if files.is_file(folder) else []
    for inner in files.names(folder):
      is_input = _real_path(folder / inner) in input_paths
      is_prepared = re.fullmatch(pattern, inner) or inner.startswith(".")
      if is_input or not is_prepared:
        names.append(f"{folder_name}/{inner}")
    if names:
      raise InputError(
        f"{directory / names[0]} would be deleted, since {folder} is replaced by"
        " prepared files. Move it to another folder, or set"
        " config.data.directory to one."
      )


def _real_path(path: pathlib.Path) -> str:
  return str(path) if remote.is_remote(path) else os.path.realpath(path)


def publish(
  new: pathlib.Path, directory: pathlib.Path, manifest: Mapping[str, Any]
) -> None:
  """Moves a new dataset into its directory and writes the manifest last.

  The old manifest is removed first, so a mix of old and new files is never
  used, even after a loss of power.

  Args:
    new: Folder of the new files, in `directory`.
    directory: Dataset directory.
    manifest: Manifest of the new files.
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
