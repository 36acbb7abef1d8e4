"""Models of UDPipe, by file or by name; fetched where they are not there.

Names are those of spacy-udpipe, which is imported where it is used: who has
files needs it not.
"""

from __future__ import annotations

import types
from collections.abc import Mapping
from pathlib import Path

from jaxsyn.data.store import fetch
from jaxsyn.errors import InputError, did_you_mean
from jaxsyn.options import ConfigPath
from jaxsyn.storage import files

MAX_BYTES = 1 << 30  # of a model; the largest have 0.1 GB
_NONE: Mapping[str, fetch.Download] = types.MappingProxyType({})


def find(
  model: str,
  language: str,
  directory: str | Path,
  *,
  at: ConfigPath,
  check: fetch.Check,
  downloads: Mapping[str, fetch.Download] = _NONE,
) -> Path:
  """The parser model that a config means.

  Args:
    model: a file; or a name that spacy-udpipe knows ("en", "en-gum", "de");
      or one of `downloads`; or "" for the `language`.
    language: code of the side's language.
    directory: where a downloaded model is kept and looked for.
    at: where the parser stands in the config, for messages.
    check: raises InputError for a file that is no model.
    downloads: file name -> address. For a model of spacy-udpipe's it may say
      another place, or the SHA-256; else what comes first is taken, written
      down (`jaxsyn.data.store.fetch`), and must be the same ever after.

  Raises:
    InputError: no such file and no such name, or the download failed.
  """
  if model and files.is_file(model):
    return files.path_of(model)
  name = model or language
  if name in downloads:
    file = name
  else:
    from spacy_udpipe import utils as spacy_udpipe

    if name not in spacy_udpipe.LANGUAGES:
      message = (
        f"the language {name!r} (config.data.*_language) has no parser model"
      )
      if model:
        message = f"parser model {name!r} is no file and no name"
      known = [*spacy_udpipe.LANGUAGES, *downloads]
      guess = "" if "." in name else f" {did_you_mean(name, known)}"
      raise InputError(
        f"{message} of spacy-udpipe. Name a UDPipe file or one of its models with "
        f"{at}.model, or another parser with {at.above}.parser, or prepare "
        f'without trees: --config.prepare.parse.sides="()".{guess}'
      )
    file = spacy_udpipe.LANGUAGES[name]
    place = fetch.Download(
      f"{spacy_udpipe.BASE_URL}/{file}", max_bytes=MAX_BYTES
    )
    downloads = {file: place, **downloads}
  path = files.path_of(directory) / file
  try:
    fetch.get(path, downloads[file], check)
  except InputError as error:
    raise InputError(
      f"parser model {name!r}: download of {file} from {downloads[file].url}"
      f" failed ({error}). Put the file into {path.parent} by hand, or name"
      f" another .udpipe file in {at}.model. Systems without trees, as"
      " transformer, need none:"
      ' --config.prepare.parse.sides="()" prepares for them alone.'
    ) from None
  return path
