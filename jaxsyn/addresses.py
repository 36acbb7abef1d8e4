"""Config files by name: --config NAME or FILE, optionally with :SYSTEM.

Names are those of the files in `configs` that come with jaxsyn, such as
multi30k_en_de or papers/pascal; with .py it is a path.
"""

from __future__ import annotations

import functools
import pathlib
import re

from jaxsyn.errors import InputError, did_you_mean

FOLDER = pathlib.Path(__file__).parent / "configs"
# Configs of datasets and papers; `base` has no data, the others no get_config.
_MAKES_CONFIG = re.compile(
  r"^(def get_config\(\s*\w|get_config = )", re.MULTILINE
)


@functools.cache
def names() -> tuple[str, ...]:
  """Returns the names of the configs that come with jaxsyn, sorted."""
  return tuple(
    path.relative_to(FOLDER).with_suffix("").as_posix()
    for path in sorted(FOLDER.rglob("*.py"))
    if _MAKES_CONFIG.search(path.read_text(encoding="utf-8"))
  )


def file_of(name: str) -> pathlib.Path:
  """Returns the file of a name or a path.

  Raises:
    InputError: It does not exist; the message guesses which was meant.
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
  """Returns an address for messages, by name if the file comes with jaxsyn."""
  path, colon, rest = address.partition(":")
  file = pathlib.Path(path)
  if file.is_relative_to(FOLDER):
    path = file.relative_to(FOLDER).with_suffix("").as_posix()
  return f"{path}{colon}{rest}"
