"""Downloads models from the Hugging Face Hub, named hub:OWNER/NAME[@REVISION].

A model written by `jaxsyn export --format safetensors` and uploaded by its
owner is downloaded once, to the cache of huggingface_hub (extra "hub"), and
then opened like any other exported model. HF_HUB_OFFLINE=1 only uses the cache;
HF_ENDPOINT and HF_TOKEN set the URL of the hub and the credentials.
"""

from __future__ import annotations

import os
import pathlib

from jaxsyn.errors import InputError, StoreError
from jaxsyn.storage.remote import PathLike

_SCHEME = "hub:"
# Other files are not downloaded, since a repository is not trusted.
_FILES = ["*.json", "*.safetensors", "*.model", "*.udpipe", "README.md"]


def is_named(folder: PathLike) -> bool:
  """Returns whether a path has the form hub:..., without network access."""
  return os.fspath(folder).startswith(_SCHEME)


def refuse(folder: PathLike, flag: str) -> None:
  """Raises InputError if an output path is on the Hugging Face Hub."""
  if is_named(folder):
    raise InputError(
      f"{flag} {folder}: jaxsyn does not write to a hub. Name a local folder, "
      "and upload it with the tools of the hub."
    )


def fetched(folder: PathLike) -> pathlib.Path:
  """Returns the local directory of a model after downloading it if necessary.

  Args:
    folder: Path hub:OWNER/NAME or hub:OWNER/NAME@REVISION.

  Raises:
    InputError: The repository or revision does not exist or is not accessible,
      or the library is not installed.
    StoreError: The hub cannot be reached.
  """
  name, _, revision = os.fspath(folder).removeprefix(_SCHEME).partition("@")
  try:
    import huggingface_hub
    from huggingface_hub import errors
  except ImportError:
    raise InputError(
      f"{folder}: models on a hub need the package huggingface_hub: "
      "pip install -e '.[hub]'."
    ) from None
  try:
    path = huggingface_hub.snapshot_download(
      name, revision=revision or None, allow_patterns=_FILES
    )
  except (errors.HFValidationError, errors.RepositoryNotFoundError) as error:
    raise InputError(
      f"{folder}: no such model, or no access to it ({_first_line(error)}). The "
      "form is hub:OWNER/NAME; credentials come from HF_TOKEN or `hf auth login`."
    ) from None
  except errors.RevisionNotFoundError:
    raise InputError(
      f"{folder}: the model has no revision {revision!r}; name a branch, a tag "
      "or a commit after @."
    ) from None
  except (errors.HfHubHTTPError, errors.LocalEntryNotFoundError) as error:
    raise StoreError(
      f"{folder}: a request to the hub failed ({_first_line(error)}). Try again, "
      "or set HF_HUB_OFFLINE=1 to use a model that was downloaded before."
    ) from None
  return pathlib.Path(path)


def _first_line(error: Exception) -> str:
  return str(error).strip().partition("\n")[0][:200].rstrip(".")
