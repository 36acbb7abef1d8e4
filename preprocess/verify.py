"""Checks a dataset directory: file checksums, or all of its content.

`corrupt_files` determines whether a dataset must be prepared. `run` implements
`jaxsyn prepare --verify`: it compares all content and makes no changes.
"""

from __future__ import annotations

import itertools
import os
import pathlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from jaxsyn.data import schema
from jaxsyn.data.sentence import example
from jaxsyn.data.sentence.conllu import Parse
from jaxsyn.data.store import manifests
from jaxsyn.data.store.dataset import Dataset
from jaxsyn.data.store.rows import InvalidExampleError, Rows
from jaxsyn.errors import InputError
from jaxsyn.preprocess.features import OPTIONAL
from jaxsyn.storage import files
from jaxsyn.storage.checksums import sha256_of
from jaxsyn.utils import progress


def corrupt_files(directory: pathlib.Path, key: str) -> list[str] | None:
  """Returns a message for each corrupt file of a dataset.

  Reads all files. That takes a fraction of the time of reading the raw text for
  the key.

  Args:
    directory: Dataset directory.
    key: Hash of the input, from `preprocess.job.PrepareJob`.

  Returns:
    Messages; None if there is no dataset, or one of other input or options.
  """
  if not files.is_file(directory / manifests.FILE):
    return None
  try:
    dataset = Dataset(directory)
  except InputError:  # its remedy is to prepare again, as the caller does
    file = directory / manifests.FILE
    return [f"{file} is corrupt, or of another version of jaxsyn"]
  if dataset.manifest.get("key") != key:
    return None
  return list(dataset.corrupt_files().values())


def run(directory: os.PathLike[str] | str) -> None:
  """Verifies all content of a dataset directory; prints a summary and errors.

  Compares each file with its checksum, and each record with the features
  computed from its line, its tree and the vocabulary. Raw files are not read:
  preparation reads them, and rebuilds the dataset if they changed.

  Raises:
    InputError: A file or record is corrupt, or the dataset does not exist.
  """
  dataset = Dataset(directory)
  directory, manifest = dataset.directory, dataset.manifest
  languages = (manifest["source_language"], manifest["target_language"])
  print(f"{directory}: {manifest['name']}, {' to '.join(languages)}")
  faults = list(dataset.corrupt_files().values())
  is_intact, count = not faults, len(manifest["files"])
  total = sum(entry["bytes"] for entry in manifest["files"].values())
  print(f"  files: {count - len(faults)} of {count} intact ({total:,} bytes)")
  if is_intact:
    faults += [
      f"{directory / file} has another SHA-256 than in the manifest"
      for file, sha256 in manifests.model_hashes(manifest).items()
      if sha256_of(directory / file) != sha256
    ]
    for name, split in manifest["splits"].items():
      fault = _split_fault(dataset, name)
      state = "an error" if fault else "equal to those of text and trees"
      print(f"  {name}: {split['examples']:,} records, {state}")
      faults += [fault] if fault else []
  else:
    print("  records: not compared, since files are corrupt")
  for fault in faults:
    print(f"  corrupt: {fault}")
  if faults:
    more = f" (and {len(faults) - 1} more, see above)" if faults[1:] else ""
    raise InputError(
      f"{directory} is corrupt: {faults[0].rstrip('.')}{more}. Run the command"
      " without --verify to rebuild it."
    )
  print(f"{directory} is intact.")


def _split_fault(dataset: Dataset, name: str) -> str:
  """Returns a message about the first invalid record of a split, or ""."""
  count = 0
  try:
    for size in _checked_blocks(dataset, name):
      count += size
  except InvalidExampleError as error:
    return f"split {name}, record {count + error.index}: {error.why}"
  except InputError as error:  # text, trees or records cannot be read
    return str(error)
  return ""


def _checked_blocks(dataset: Dataset, name: str) -> Iterator[int]:
  """Compares records with text and trees; yields the size of each block.

  Raises:
    InvalidExampleError: A record is invalid; the error has its index in the block.
    InputError: The text, trees or records of the split cannot be read.
  """
  records, last = dataset.split(name), 0
  sentences = [dataset.sentences(name, side) for side in schema.SIDES]
  options = schema.encoding(dataset.manifest)
  options["vocabularies"] = tuple(map(dataset.vocabulary, schema.SIDES))
  with progress.bar(f"comparing {name}", len(records), unit="pair") as bar:
    for rows in records.rows((*records.features, *schema.UTF8)):
      line = rows.flat["line"]
      pairs = list(itertools.islice(zip(*sentences), len(rows)))
      source, target = zip(*pairs)
      made = example.encode_all(source, target, lines=line, **options)
      _compare(rows, made)
      _compare(rows, _texts(pairs))
      check_optional(rows, dataset.manifest)
      check_lines(line, last)
      last = int(line[-1])
      bar.advance(len(rows))
      yield len(rows)
  for rest in sentences:  # `match` reports trees that are left over
    next(rest, None)


def check_optional(rows: Rows, manifest: Mapping[str, Any]) -> None:
  """Raises InvalidExampleError if an optional feature has invalid values.

  Their input files are not in the dataset directory, so they are not compared.
  """
  features = [feature for feature in OPTIONAL if feature.name in manifest]
  for i, stored in enumerate(rows.examples() if features else ()):
    for feature in features:
      if error := feature.error(stored, manifest):
        raise InvalidExampleError(i, error)


def check_lines(line: np.ndarray, last: int) -> None:
  """Raises InvalidExampleError unless line numbers ascend and exceed `last`."""
  before = np.append(last, line[:-1])
  if (line <= before).any():
    i = int(np.argmax(line <= before))
    raise InvalidExampleError(i, f"line {line[i]} comes after {before[i]}")


def _compare(stored: Rows, made: Rows) -> None:
  """Raises InvalidExampleError if stored and recomputed examples differ."""
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
        why = f"{name} differs from that of its line and tree"
        if name in schema.UTF8:
          why = f"{schema.UTF8[name]} differs from its line"
        raise InvalidExampleError(i, why)


def _texts(pairs: Sequence[tuple[str | Parse, str | Parse]]) -> Rows:
  """Encodes the texts of sentence pairs as arrays of UTF-8 bytes."""
  examples = []
  for pair in pairs:
    texts = [one if isinstance(one, str) else one.text for one in pair]
    data = [np.frombuffer(text.encode(), np.uint8) for text in texts]
    examples.append(dict(zip(schema.UTF8, data)))
  return Rows.of(examples, schema.UTF8)
