"""Config addresses: --config NAME or FILE, optionally with :SYSTEM.

A name is that of a file in `configs`, which comes with jaxsyn, such as
multi30k_en_de or papers/pascal. An address with .py is a path.
"""

from __future__ import annotations

import functools
import pathlib
import re

from jaxsyn.errors import InputError, did_you_mean

FOLDER = pathlib.Path(__file__).parent.parent / "configs"
# Configs of datasets and papers; `base` has no data, other files no get_config.
_MAKES_CONFIG = re.compile(
  r"^(def get_config\(\s*\w|get_config = )", re.MULTILINE
)


@functools.cache
def names() -> tuple[str, ...]:
  """Returns the sorted names of the config files that come with jaxsyn."""
  return tuple(
    path.relative_to(FOLDER).with_suffix("").as_posix()
    for path in sorted(FOLDER.rglob("*.py"))
    if _MAKES_CONFIG.search(path.read_text(encoding="utf-8"))
  )


def file_of(name: str) -> pathlib.Path:
  """Returns the path of the config file with a given name or path.

  Raises:
    InputError: The file does not exist; the message suggests similar names.
  """
  if name in names():
    return FOLDER / f"{name}.py"
  file = pathlib.Path(name)
  if file.is_file():
    return file
  bare = name.removesuffix(".py").removeprefix("configs/")
  if bare in names():
    raise InputError(
      f"no config file {name!r}. The settings of this name that come with "
      f"jaxsyn are --config {bare}."
    )
  near = (f.as_posix() for f in file.parent.glob("*.py"))
  raise InputError(
    f"no config file {name!r}. {did_you_mean(name, [*near, *names()])}"
  )


def displayed(address: str) -> str:
  """Returns a config address FILE[:SYSTEM] in the form shown in messages.

  Files that come with jaxsyn are shown by name.
  """
  path, colon, rest = address.partition(":")
  file = pathlib.Path(path)
  if file.is_relative_to(FOLDER):
    path = file.relative_to(FOLDER).with_suffix("").as_posix()
  return f"{path}{colon}{rest}"
