"""Whether a prepared folder is what was made: quickly, or all of it.

`damage` is what `preprocess.build` asks before it says that there is nothing to
do; it mends what is damaged by making the folder again. `run` is its --verify:
it reads, decodes and compares everything, tells, and changes nothing.
"""

from __future__ import annotations

import itertools
import os
import pathlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from jaxsyn import progress
from jaxsyn.data import schema
from jaxsyn.data.sentence import conllu, example
from jaxsyn.data.store import fetch, integrity, layout, manifests
from jaxsyn.data.store.decoding import InvalidExampleError
from jaxsyn.data.store.example_check import Check
from jaxsyn.data.store.prepared import PreparedSplit
from jaxsyn.data.store.rows import Rows
from jaxsyn.errors import InputError
from jaxsyn.preprocess import subset
from jaxsyn.storage import files
from jaxsyn.storage.checksums import sha256_of


def damage(directory: pathlib.Path, key: str) -> list[str] | None:
  """What is wrong with a folder that was made from the same input.

  All files are read: that costs a fraction of reading the raw text, which was
  read to get the key.

  Args:
    directory: the prepared folder.
    key: of `preprocess.inputs.Inputs`.

  Returns:
    a message a fault, none where all is whole; or None where there is no data
    set, or one from other input or options.
  """
  if not files.is_file(directory / manifests.FILE):
    return None
  try:
    manifest = manifests.read(directory)
  except InputError:  # it says to prepare anew, which is being done
    file = directory / manifests.FILE
    return [f"{file} is not as this version wrote it"]
  if manifest.get("key") != key:
    return None
  return list(integrity.corrupt_files(directory, manifest).values())


def run(directory: os.PathLike[str] | str) -> None:
  """Reads all of a prepared folder, and prints what is there and what is wrong.

  Every file is compared with its checksum; every record is decoded and compared
  with what is made of its lines, its trees and the vocabulary anew; downloads
  are compared with their records. Raw files that were not fetched are not
  looked at: preparing reads them, and makes the folder anew where they changed.

  Raises:
    InputError: something is damaged, or there is no prepared folder.
  """
  directory = files.path_of(directory)
  manifest = manifests.read(directory)
  languages = (manifest["source_language"], manifest["target_language"])
  print(f"{directory}: {manifest['name']}, {' to '.join(languages)}")
  broken = integrity.corrupt_files(directory, manifest)
  total = sum(facts["bytes"] for facts in manifest["files"].values())
  print(
    f"  files: {len(manifest['files']) - len(broken)} of"
    f" {len(manifest['files'])} as they were written ({total:,} bytes)"
  )
  faults = list(broken.values())
  faults += _downloads(directory / "raw")
  print("  raw files: not looked at; the command without --verify reads them")
  if broken:
    print("  records: not compared, since files are damaged")
  else:
    faults += [
      f"{directory / file} has another SHA-256 than the manifest says"
      for file, sha256 in layout.models(manifest).items()
      if sha256_of(directory / file) != sha256
    ]
    for name, split in manifest["splits"].items():
      try:
        wrong = list(_split(directory, manifest, name))
      except InputError as error:
        wrong = [str(error)]
      state = f"{len(wrong)} faults" if wrong else "as made from text and trees"
      print(f"  {name}: {split['examples']:,} records, {state}")
      faults += wrong
  for fault in faults:
    print(f"  damaged: {fault}")
  if faults:
    more = f" (and {len(faults) - 1} more, see above)" if faults[1:] else ""
    raise InputError(
      f"{directory} is damaged: {faults[0].rstrip('.')}{more}. Run python -m"
      " preprocess.build without --verify to make it whole."
    )
  print(f"{directory} is whole.")


def _downloads(raw: pathlib.Path) -> Iterator[str]:
  """What is wrong with the files that were fetched."""
  records = files.names(raw, "*.sha256")
  paths = [(raw / name).with_suffix("") for name in records]
  paths = [path for path in paths if files.is_file(path)]  # else it was removed
  count = 0
  for path in paths:
    try:
      if sha256_of(path) != fetch.recorded(path):
        yield f"{path} is not as it was fetched"
      else:
        count += 1
    except InputError as error:
      yield str(error)
  if paths:
    print(f"  downloads: {count} of {len(paths)} as they were fetched")


def _split(
  directory: pathlib.Path, manifest: Mapping[str, Any], name: str
) -> Iterator[str]:
  """The first fault of a split, if it has one.

  Raises:
    InputError: its text, trees or records cannot be read.
  """
  records = PreparedSplit(directory, name)
  check = Check(manifest)
  subset_lines = None
  if "subset" in manifest["splits"][name]:
    subset_lines = subset.read(directory, name)
  sentences = [
    integrity.sentences(directory, manifest, name, side)
    for side in schema.SIDES
  ]
  vocabularies = tuple(
    manifests.vocabulary(directory, manifest, side) for side in schema.SIDES
  )
  known = manifests.encoding(manifest) | {"vocabularies": vocabularies}
  count = last = 0
  with progress.bar(f"comparing {name}", len(records), unit="pair") as bar:
    for rows in records.rows((*records.features, *schema.UTF8)):
      try:
        check(rows)
      except InvalidExampleError as error:
        yield f"split {name}, record {count + error.number}: {error.why}"
        return
      lines = rows.flat["line"]
      source, target = zip(*itertools.islice(zip(*sentences), len(rows)))
      made = example.encode_all(source, target, lines=lines, **known)
      made = _with_texts(made, source, target)
      for i, feature in _differences(rows, made):
        if feature in schema.UTF8:
          fault = f"{schema.UTF8[feature]} is not its line"
        else:
          fault = f"{feature} is not what its line and tree give"
        yield f"split {name}, record {count + i}: {fault}"
        return
      if (
        subset_lines is not None
        and (bad := ~np.isin(lines, subset_lines)).any()
      ):
        i = int(np.argmax(bad))
        yield (
          f"split {name}, record {count + i}: line {lines[i]} is not in"
          f" {subset.file_of(name)}"
        )
        return
      before = np.append(last, lines[:-1])
      if (bad := lines <= before).any():
        i = int(np.argmax(bad))
        yield (
          f"split {name}, record {count + i}: line {lines[i]} comes after"
          f" {before[i]}"
        )
        return
      count, last = count + len(rows), int(lines[-1])
      bar.advance(len(rows))
  for rest in sentences:  # `match` says where trees are left over
    next(rest, None)


def _with_texts(
  rows: Rows,
  source: Sequence[str | conllu.Parse],
  target: Sequence[str | conllu.Parse],
) -> Rows:
  """Adds the texts of sentences to their examples."""
  flat, start = {**rows.flat}, {**rows.start}
  for name, sentences in zip(schema.UTF8, (source, target), strict=True):
    texts = [one if isinstance(one, str) else one.text for one in sentences]
    data = [text.encode() for text in texts]
    flat[name] = np.frombuffer(b"".join(data), np.uint8)
    start[name] = np.cumsum([0, *map(len, data)])
  return Rows(flat, start)


def _differences(stored: Rows, made: Rows) -> Iterator[tuple[int, str]]:
  """Where examples differ: the first one, and a feature that it has."""
  differ = [
    feature
    for feature in made.flat
    if not np.array_equal(stored.flat[feature], made.flat[feature])
    or not np.array_equal(stored.start[feature], made.start[feature])
  ]
  if differ:
    for i, (one, other) in enumerate(zip(stored.examples(), made.examples())):
      for feature in differ:
        if not np.array_equal(one[feature], other[feature]):
          yield i, feature
