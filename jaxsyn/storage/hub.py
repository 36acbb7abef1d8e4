"""Models on a hub of models: hub:OWNER/NAME, or hub:OWNER/NAME@REVISION.

What `python -m jaxsyn.export --format safetensors` wrote and its owner put there
is fetched once, into the cache of huggingface_hub (extra "hub"), and is then a
folder like any other; HF_HUB_OFFLINE=1 asks nobody again. HF_ENDPOINT and
HF_TOKEN say where the hub is and who asks.
"""

from __future__ import annotations

import os
import pathlib

from jaxsyn.errors import InputError, StoreError

_SCHEME = "hub:"
# Of a stranger's repository nothing else is fetched.
_FILES = ("*.json", "*.safetensors", "*.model", "*.udpipe", "README.md")


def is_named(folder: str | os.PathLike[str]) -> bool:
  """Whether a folder is one of a hub. Looks at its letters alone."""
  return os.fspath(folder).startswith(_SCHEME)


def refuse(folder: str | os.PathLike[str], flag: str) -> None:
  """Raises InputError for a folder of a hub, where one is to be written."""
  if is_named(folder):
    raise InputError(
      f"{flag} {folder}: nothing is written to a hub; name a folder, and upload "
      "that with its own tools."
    )


def fetched(folder: str | os.PathLike[str]) -> pathlib.Path:
  """The local copy of a model on a hub.

  Args:
    folder: hub:OWNER/NAME, perhaps with @REVISION.

  Raises:
    InputError: no such repository or revision, no right to it, or the library
      is not installed.
    StoreError: the hub cannot be reached.
  """
  name, _, revision = os.fspath(folder).removeprefix(_SCHEME).partition("@")
  try:
    import huggingface_hub
    from huggingface_hub import errors
  except ImportError:
    raise InputError(
      f"{folder}: for models of a hub the package huggingface_hub is needed: "
      "pip install -e '.[hub]'."
    ) from None
  try:
    return pathlib.Path(
      huggingface_hub.snapshot_download(
        name, revision=revision or None, allow_patterns=[*_FILES]
      )
    )
  except (errors.HFValidationError, errors.RepositoryNotFoundError) as error:
    raise InputError(
      f"{folder}: no such model, or no right to it ({_line(error)}). It is "
      "hub:OWNER/NAME; HF_TOKEN, or `hf auth login`, says who asks."
    ) from None
  except errors.RevisionNotFoundError:
    raise InputError(
      f"{folder}: the model has no revision {revision!r}; name a branch, a tag "
      "or a commit after @."
    ) from None
  except (errors.HfHubHTTPError, errors.LocalEntryNotFoundError) as error:
    raise StoreError(
      f"{folder}: the hub does not answer as it should ({_line(error)}). Try "
      "again; what was fetched before is used with HF_HUB_OFFLINE=1."
    ) from None


def _line(error: Exception) -> str:
  """The first line of what a library says."""
  lines = [line for line in str(error).splitlines() if line.strip()]
  return (lines[0] if lines else repr(error))[:200].rstrip(".")
