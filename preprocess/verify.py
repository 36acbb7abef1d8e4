"""Checks of a dataset directory: checksums of its files, or all its content.

`corrupt_files` determines whether a dataset must be prepared. `run` implements
`jaxsyn prepare --verify`: it compares all content and changes nothing.
"""

from __future__ import annotations

import itertools
import os
import pathlib
from collections.abc import Iterator, Sequence

import numpy as np

from jaxsyn import progress
from jaxsyn.data import schema
from jaxsyn.data.sentence import conllu, example
from jaxsyn.data.store import (
  example_check,
  fetch,
  layout,
  manifests,
)
from jaxsyn.data.store.dataset import Dataset
from jaxsyn.data.store.records import InvalidExampleError
from jaxsyn.data.store.rows import Rows
from jaxsyn.errors import InputError
from jaxsyn.preprocess import subset
from jaxsyn.storage import files
from jaxsyn.storage.checksums import sha256_of


def corrupt_files(directory: pathlib.Path, key: str) -> list[str] | None:
  """Returns a message for each corrupt file of a dataset made from given input.

  Reads all files. That takes a fraction of the time of reading the raw text for
  the key.

  Args:
    directory: dataset directory.
    key: hash of the input, from `preprocess.inputs.Inputs`.

  Returns:
    Messages; or None if there is no dataset, or only a dataset made from other
    input or options.
  """
  if not files.is_file(directory / manifests.FILE):
    return None
  try:
    dataset = Dataset(directory)
  except InputError:  # its remedy is to prepare again, as the caller does
    file = directory / manifests.FILE
    return [f"{file} is not as this version wrote it"]
  if dataset.manifest.get("key") != key:
    return None
  return list(dataset.corrupt_files().values())


def run(directory: os.PathLike[str] | str) -> None:
  """Verifies all content of a dataset directory; prints a summary and errors.

  Compares each file with its checksum, each record with the features computed
  from its line, its tree and the vocabulary, and downloaded files with their
  hashes. Other raw files are not read: preparation reads them, and makes the
  dataset again if they changed.

  Raises:
    InputError: a file or record is corrupt, or the dataset does not exist.
  """
  dataset = Dataset(directory)
  directory, manifest = dataset.directory, dataset.manifest
  languages = (manifest["source_language"], manifest["target_language"])
  print(f"{directory}: {manifest['name']}, {' to '.join(languages)}")
  broken = dataset.corrupt_files()
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
        wrong = list(_split(dataset, name))
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
  """Yields a message for each corrupt download in a folder of raw files."""
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


def _split(dataset: Dataset, name: str) -> Iterator[str]:
  """Yields a message about the first wrong record of a split, if there is any.

  Raises:
    InputError: the text, trees or records of the split cannot be read.
  """
  manifest, records = dataset.manifest, dataset.split(name)
  subset_lines = None
  if "subset" in manifest["splits"][name]:
    subset_lines = subset.read(dataset.directory, name)
  sentences = [dataset.sentences(name, side) for side in schema.SIDES]
  vocabularies = tuple(dataset.vocabulary(side) for side in schema.SIDES)
  options = manifests.encoding(manifest) | {"vocabularies": vocabularies}
  count = last = 0
  with progress.bar(f"comparing {name}", len(records), unit="pair") as bar:
    for rows in records.rows((*records.features, *schema.UTF8)):
      try:
        example_check.check(rows, manifest)
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
  """Raises InvalidExampleError if a stored example differs from a made one."""
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
  """Checks that the line numbers of examples ascend and are in the subset."""
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
  """Returns a batch of examples with the texts of their sentences added."""
  flat, start = {**rows.flat}, {**rows.start}
  for name, sentences in zip(schema.UTF8, (source, target), strict=True):
    texts = [one if isinstance(one, str) else one.text for one in sentences]
    data = [text.encode() for text in texts]
    flat[name] = np.frombuffer(b"".join(data), np.uint8)
    start[name] = np.cumsum([0, *map(len, data)])
  return Rows(flat, start)
