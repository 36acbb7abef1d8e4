"""Checks of a prepared folder: quickly, or all of it.

`corrupt_files` decides whether there is anything to prepare. `run` is `jaxsyn
prepare --verify`: it reads and compares everything, and changes nothing.
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
from jaxsyn.data.store.dataset import Dataset
from jaxsyn.data.store.decoding import InvalidExampleError
from jaxsyn.data.store.example_check import Check
from jaxsyn.data.store.rows import Rows
from jaxsyn.errors import InputError
from jaxsyn.preprocess import subset
from jaxsyn.storage import files
from jaxsyn.storage.checksums import sha256_of


def corrupt_files(directory: pathlib.Path, key: str) -> list[str] | None:
  """Returns what is wrong with a folder that was made from the same input.

  All files are read: that costs a fraction of reading the raw text, which was
  read for the key.

  Args:
    directory: the prepared folder.
    key: hash of the input, of `preprocess.inputs.Inputs`.

  Returns:
    A message for each corrupt file; or None if there is no dataset, or one of
    other input or options.
  """
  if not files.is_file(directory / manifests.FILE):
    return None
  try:
    manifest = manifests.read(directory)
  except InputError:  # its remedy is to prepare again, which is being done
    file = directory / manifests.FILE
    return [f"{file} is not as this version wrote it"]
  if manifest.get("key") != key:
    return None
  return list(integrity.corrupt_files(directory, manifest).values())


def run(directory: os.PathLike[str] | str) -> None:
  """Reads all of a prepared folder, and prints what is there and what is wrong.

  Every file is compared with its checksum. Every record, read as training reads
  it, is compared with what its line, its tree and the vocabulary give. Fetched
  files are compared with their hashes. Other raw files are not read: preparing
  reads them, and makes the folder again if they changed.

  Raises:
    InputError: something is corrupt, or there is no prepared folder.
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
  print("  raw files: not read; the command without --verify reads them")
  if broken:
    print("  records: not compared, since files are corrupt")
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
      state = f"{len(wrong)} errors" if wrong else "as made from text and trees"
      print(f"  {name}: {split['examples']:,} records, {state}")
      faults += wrong
  for fault in faults:
    print(f"  corrupt: {fault}")
  if faults:
    more = f" (and {len(faults) - 1} more, see above)" if faults[1:] else ""
    raise InputError(
      f"{directory} is corrupt: {faults[0].rstrip('.')}{more}. Run the"
      " command without --verify to make it again."
    )
  print(f"{directory} is intact.")


def _downloads(raw: pathlib.Path) -> Iterator[str]:
  """Yields what is wrong with the fetched files."""
  records = files.names(raw, "*.sha256")
  paths = [(raw / name).with_suffix("") for name in records]
  paths = [path for path in paths if files.is_file(path)]  # others were removed
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
  """Yields the first error of a split, if there is one.

  Raises:
    InputError: its text, trees or records cannot be read.
  """
  records = Dataset(directory).split(name)
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
  options = manifests.encoding(manifest) | {"vocabularies": vocabularies}
  count = last = 0
  with progress.bar(f"comparing {name}", len(records), unit="pair") as bar:
    for rows in records.rows((*records.features, *schema.UTF8)):
      try:
        check(rows)
        lines = rows.flat["line"]
        pairs = itertools.islice(zip(*sentences), len(rows))
        source, target = zip(*pairs)
        made = example.encode_all(source, target, lines=lines, **options)
        _check_examples(rows, _with_texts(made, source, target))
        _check_lines(lines, last, subset_lines, subset.file_of(name))
      except InvalidExampleError as error:
        yield f"split {name}, record {count + error.number}: {error.why}"
        return
      count, last = count + len(rows), int(lines[-1])
      bar.advance(len(rows))
  for rest in sentences:  # `match` reports trees that are left over
    next(rest, None)


def _check_examples(stored: Rows, made: Rows) -> None:
  """Raises InvalidExampleError for the first example that differs."""
  names = [
    name
    for name in made.flat
    if not np.array_equal(stored.flat[name], made.flat[name])
    or not np.array_equal(stored.start[name], made.start[name])
  ]
  if not names:
    return
  for i, (one, other) in enumerate(zip(stored.examples(), made.examples())):
    for name in names:
      if not np.array_equal(one[name], other[name]):
        what = f"{name} is not what its line and tree give"
        if name in schema.UTF8:
          what = f"{schema.UTF8[name]} is not its line"
        raise InvalidExampleError(i, what)


def _check_lines(
  lines: np.ndarray, last: int, subset_lines: np.ndarray | None, file: str
) -> None:
  """Raises InvalidExampleError unless lines ascend and are in the subset."""
  if subset_lines is not None:
    is_wrong = ~np.isin(lines, subset_lines)
    if is_wrong.any():
      i = int(np.argmax(is_wrong))
      raise InvalidExampleError(i, f"line {lines[i]} is not in {file}")
  before = np.append(last, lines[:-1])
  is_wrong = lines <= before
  if is_wrong.any():
    i = int(np.argmax(is_wrong))
    what = f"line {lines[i]} comes after {before[i]}"
    raise InvalidExampleError(i, what)


def _with_texts(
  rows: Rows,
  source: Sequence[str | conllu.Parse],
  target: Sequence[str | conllu.Parse],
) -> Rows:
  """Returns examples with the texts of their sentences added."""
  flat, start = {**rows.flat}, {**rows.start}
  for name, sentences in zip(schema.UTF8, (source, target), strict=True):
    texts = [one if isinstance(one, str) else one.text for one in sentences]
    data = [text.encode() for text in texts]
    flat[name] = np.frombuffer(b"".join(data), np.uint8)
    start[name] = np.cumsum([0, *map(len, data)])
  return Rows(flat, start)
