"""Raw files of a dataset, found in a local folder or downloaded."""

from __future__ import annotations

import dataclasses
import pathlib
import re
from collections.abc import Mapping, Sequence

from jaxsyn.data.store import fetch
from jaxsyn.errors import InputError
from jaxsyn.storage import files
from jaxsyn.storage.checksums import sha256_of

FIELDS_REMEDY = (
  "Set config.prepare.fields to the names of the source text and of the target"
  ' text, as in ("source_text", "target_text") or ("translation/en",'
  ' "translation/de").'
)
_ARCHIVES = (".tar", ".tar.gz", ".tgz", ".zip", ".bz2", ".xz", ".7z")


@dataclasses.dataclass(frozen=True)
class Source:
  """A raw text file and its reader, for one side of a split.

  Attributes:
    path: Path of the file.
    reader: Key of the reader in `preprocess.readers.READERS`.
    field: Column of a table, or name of a field in an example, for files that
      have both sides; "" otherwise.
    first: Index of the first example to read from a TFDS shard.
    count: Number of examples to read from a TFDS shard.
    total: Number of all examples in a TFDS shard.
  """

  path: pathlib.Path
  reader: str = "text"
  field: str = ""
  first: int = 0
  count: int = 0
  total: int = 0

  def content_key(self, sha256: str) -> str:
    """Returns a key that identifies the text that is read from the file.

    Args:
      sha256: Hash of the file.
    """
    if self.reader not in ("jsonl", "tfds"):
      return sha256
    return f"{sha256} {self.field} {self.first} {self.count}"


class MissingFileError(InputError):
  """Error for a raw file that does not exist and cannot be downloaded.

  Attributes:
    short: File name and reason, in a few words.
  """

  def __init__(self, message: str, short: str):
    super().__init__(message)
    self.short = short


def addresses(downloads: Sequence[Sequence[str]]) -> dict[str, fetch.Download]:
  """Parses config.prepare.downloads to a dict from file name to download.

  Raises:
    InputError: An entry is not (file name, URL, SHA-256[, bytes]), or a name is
      a path or occurs twice.
  """
  by_name: dict[str, fetch.Download] = {}
  for entry in downloads:
    missing = ("", "", "", str(fetch.MAX_BYTES))[len(entry) :]
    name, url, sha256, max_bytes = (*entry, *missing)[:4]
    if (
      len(entry) not in (3, 4)
      or not re.fullmatch(r"[^/\0.][^/\0]*", name)
      or name in by_name
      or not re.fullmatch("([0-9a-fA-F]{64})?", sha256)
      or not re.fullmatch("[0-9]{1,15}", max_bytes)
    ):
      raise InputError(
        "config.prepare.downloads must hold (file name, URL, SHA-256 or"
        ' "", perhaps the maximum size in bytes as in "5000000"), each file name'
        f" once and without folders, got {tuple(entry)!r}."
      )
    by_name[name] = fetch.Download(url, sha256.lower(), int(max_bytes))
  return by_name


@dataclasses.dataclass(frozen=True)
class RawFiles:
  """Raw files of a dataset by name; missing ones are downloaded.

  Attributes:
    raw_dir: Folder of the raw files, "" without one.
    fetched: Folder of downloaded files.
    downloads: Files that can be downloaded, from `addresses`.
  """

  raw_dir: str
  fetched: pathlib.Path
  downloads: Mapping[str, fetch.Download]

  def expand(self, entry: str) -> list[pathlib.Path]:
    """Returns the paths of the raw files in an entry of config.prepare.splits.

    Args:
      entry: File name, several names with commas between them, or a pattern
        such as "part-*.en.gz", whose files are read in the order of their names.

    Raises:
      MissingFileError: A file is missing, or no name matches the pattern.
      InputError: A file is invalid; see `find`.
    """
    paths: list[pathlib.Path] = []
    for name in entry.split(","):
      names = [name]
      if set("*?[") & set(name):
        names = files.names(self.raw_dir, name) if self.raw_dir else []
        if not names:
          what = f"no raw file matches {name} {self._place}"
          raise MissingFileError(f"{what}.", what)
      paths += map(self.find, names)
    return paths

  @property
  def _place(self) -> str:
    return f"in {self.raw_dir}" if self.raw_dir else "(--raw_dir is not set)"

  def find(self, name: str) -> pathlib.Path:
    """Returns the path of a raw file, after downloading it if it is missing.

    Raises:
      MissingFileError: The file does not exist and cannot be downloaded.
      InputError: The file has another hash than in the config, or is an archive.
    """
    if name.lower().endswith(_ARCHIVES):
      raise InputError(
        f"raw file {name}: archives are not supported. Unpack it, and name the"
        " text file in it (plain, .gz or .zst)."
      )
    path = files.path_of(self.raw_dir) / name
    download = self.downloads.get(name)
    if self.raw_dir and files.is_file(path):
      expected = download.sha256 if download else ""
      if expected and (actual := sha256_of(path)) != expected:
        raise InputError(
          f"{path} is not the file that the config expects: its SHA-256 is"
          f" {actual}, not {expected} as in config.prepare.downloads. Delete the"
          " file, so that it is downloaded, or remove its entry from"
          " config.prepare.downloads to use your own file."
        )
      return files.absolute(path)
    path = self.fetched / name
    if download:
      self._fetch(name, path, download)
    elif not files.is_file(path):
      raise MissingFileError(
        f"raw file {name} does not exist {self._place}, and"
        " config.prepare.downloads has no URL for it. Name the folder of the raw"
        " files with --raw_dir, or create them as the top of the config file"
        " describes.",
        f"{name} does not exist {self._place}",
      )
    return path

  def _fetch(
    self, name: str, path: pathlib.Path, download: fetch.Download
  ) -> None:
    try:
      fetch.get(path, download)
    except InputError as error:
      message = (
        f"raw file {name} cannot be downloaded from {download.url} ({error}). Try"
        f" again, download it manually to {path}, or name its folder with"
        " --raw_dir."
      )
      if isinstance(error, fetch.UnreachableError):
        raise MissingFileError(message, f"{name}: {error}") from None
      raise InputError(message) from None

  def named(self, option: str, file: str) -> pathlib.Path:
    """Returns the path of an additional input file, such as a file of trees.

    Args:
      option: Option of config.prepare that names the file, for messages.
      file: Name of a download or of a file in `raw_dir`, or a path.
    """
    if file in self.downloads:
      return self.find(file)
    for path in (files.path_of(self.raw_dir) / file, files.path_of(file)):
      if files.is_file(path):
        return files.absolute(path)
    raise InputError(
      f"config.prepare.{option}: {file} does not exist, neither as a path nor in"
      f" the folder of the raw files ({self.raw_dir or 'not set'})."
    )
