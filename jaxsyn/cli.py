"""What every command shares: flags in, one clear message out.

An entry point ends in

    def define_flags():
      cli.config_flag()
      flags.DEFINE_string("workdir", None, "Folder of the run.")

    if __name__ == "__main__":
      define_flags()
      cli.main(_main)  # _main(values) calls run(values.config, ...)

and has a line in `jaxsyn.commands`.

How a command ends, and with which exit status: `jaxsyn.exits`.
"""

from __future__ import annotations

import importlib.util
import re
import sys
import types
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import ml_collections
from absl import app, flags
from ml_collections import config_flags
from ml_collections.config_flags import config_path

from jaxsyn import addresses
from jaxsyn.errors import InputError, did_you_mean
from jaxsyn.exits import guarded
from jaxsyn.options import describe, text, unused_option_error

flags.disclaim_key_flags()  # --config shows in the help of the command


def config_flag() -> None:
  """Defines --config ADDRESS and its overrides --config.a.b=value."""
  config_flags.DEFINE_config_file(
    "config",
    help_string="Settings by name, or a file of your own (mine.py); after ':' "
    "a system: multi30k_en_de:pascal. Of a paper, first a task: "
    "papers/pascal:nc11_en_de:pascal. "
    "It is a Python program and is run: read one from elsewhere first. "
    "Any option can follow: --config.model.width=256; --helpconfig lists them, "
    "--helpconfig=model those of a section; with --config, as it has them.",
  )


def main(
  function: Callable[[flags.FlagValues], Any],
  *,
  multiple: bool = False,
  word: str = "",
  words: bool = False,
  instead: str = "",
) -> None:
  """Parses the flags, calls function(flags) and exits; see the module.

  Args:
    function: the command.
    multiple, word, words, instead: see `parse`.
  """

  def run() -> None:
    how = {"multiple": multiple, "words": words}
    function(parse(sys.argv, word=word, instead=instead, **how))

  guarded(run)


def overrides(values: flags.FlagValues) -> dict[str, Any]:
  """What follows --config on the command line: dotted name -> value."""
  return config_flags.get_override_values(values["config"])


def _config_class() -> type:
  """Returns the class of configs; commands without one do not load JAX."""
  from jaxsyn.config import Config

  return Config


def check_chosen(
  configs: Sequence[ml_collections.ConfigDict], options: Iterable[str]
) -> None:
  """Raises InputError for an option that does nothing in any of the configs.

  Args:
    configs: of the systems.
    options: dotted names, as of `overrides`.
  """
  for option in options:
    errors = [
      unused_option_error(_config_class(), config, option) for config in configs
    ]
    if all(errors):
      raise InputError(errors[0])


def address_of(values: flags.FlagValues) -> str:
  """The --config of a command line: FILE, or FILE:SYSTEM, of whatever name."""
  return config_flags.get_config_filename(values["config"])


def parse(
  argv: Sequence[str],
  *,
  multiple: bool = False,
  word: str = "",
  words: bool = False,
  instead: str = "",
) -> flags.FlagValues:
  """Parses flags, config file and overrides; every fault is an InputError.

  Args:
    argv: the command line.
    multiple: the command makes configs of several systems out of --config and
      looks itself whether the overrides do something: `check_chosen`.
    word: the flag whose value may stand alone, as FOLDER in "new FOLDER".
    words: it takes several: all that stand alone.
    instead: Name of a flag that replaces --config where it is given.
  """
  values = flags.FLAGS
  replaced = bool(instead) and any(
    re.match(f"--?{instead}(=|$)", one) for one in argv
  )
  for name, short in (("help", True), ("h", True), ("helpfull", False)):
    if f"--{name}" in argv or f"-{name}" in argv:
      app.usage(shorthelp=short, writeto_stdout=True)
      sys.exit(0)
  names: list[str] = []
  if instead and not replaced:
    word = ""
  if "config" in values and not replaced:
    names = [
      word for word in argv if re.fullmatch(r"--?helpconfig(=.*)?", word)
    ]
    argv = [word for word in argv if word not in names]
    if names and not any(re.match("--?config", word) for word in argv):
      _help_config(names[0])
    argv = _check_config(
      values.read_flags_from_files(list(argv), False), multiple=multiple
    )
  values.set_gnu_getopt(bool(word))  # flags may follow it
  try:
    rest = values(list(argv))[1:]
    if word and rest:
      values[word].parse(rest if words else rest[0])
      rest = [] if words else rest[1:]
  except flags.Error as error:
    raise InputError(f"{error} (--help lists the flags)") from None
  if rest:
    raise InputError(f"unexpected argument {rest[0]!r} (--help: the flags).")
  if names:
    _help_config(names[0], values.config)
  if "config" in values and not multiple and not replaced:
    check_chosen([values.config], overrides(values))
  return values


def load(address: str) -> ml_collections.ConfigDict:
  """The config of an address.

  Args:
    address: NAME[:SYSTEM] or FILE[:SYSTEM], of a paper NAME:TASK[:SYSTEM].

  Raises:
    InputError: no such file, no get_config in it, unknown task or system.
  """
  path, colon, rest = address.partition(":")
  module = module_of(path)
  if not hasattr(module, "get_config"):
    raise InputError(
      f"{path} has no function get_config; `jaxsyn new` writes a config file."
    )
  return module.get_config(rest) if colon else module.get_config()


def names_system(address: str) -> bool:
  """Whether an address says a system: after its task, where files have TASKS."""
  path, _, rest = address.partition(":")
  return ":" in rest if hasattr(module_of(path), "TASKS") else bool(rest)


def module_of(path: str) -> types.ModuleType:
  """The Python file of a name or a path, run.

  Raises:
    InputError: no such file, or no Python.
  """
  file = addresses.file_of(path)
  spec = importlib.util.spec_from_file_location("jaxsyn_config", file)
  if spec is None or spec.loader is None:
    raise InputError(f"{path} is no Python file.")
  module = importlib.util.module_from_spec(spec)
  sys.modules[spec.name] = module  # dataclasses look there for their own module
  try:
    spec.loader.exec_module(module)
  except SyntaxError as error:
    raise InputError(f"{path}:{error.lineno}: {error.msg}.") from None
  return module


def _help_config(
  word: str, config: ml_collections.ConfigDict | None = None
) -> None:
  """Prints options and exits.

  Args:
    word: --helpconfig, or --helpconfig=SECTION.
    config: whose values are shown; None: the defaults.
  """
  section = word.partition("=")[2].removeprefix("config.")
  listed = text(_config_class(), f"config.{section}".rstrip("."), config)
  if not listed:
    sections = [row.name.removeprefix("config.") for row in describe(_config_class())
                if row.is_section and row.name.count(".") < 3]  # fmt: skip
    raise InputError(f"{word}: {did_you_mean(section, sections)}")
  print(listed)
  sys.exit(0)


def _check_config(argv: list[str], *, multiple: bool) -> list[str]:
  """Finds what ml_collections would answer with a traceback.

  Args:
    argv: the words.
    multiple: as of `parse`.

  Returns: the words, with files in the place of names, which it does not know.
  """
  words, config_indices = list(argv), list[int]()
  for i, word in enumerate(argv):
    if match := re.fullmatch(r"(--?config)(?:=(.*))?", word):
      flag, value = match.groups()
      at = i if value is not None else i + 1
      value_text = "".join(argv[at : at + 1]) if value is None else value
      path, colon, rest = value_text.partition(":")
      config_path = f"{addresses.file_of(path)}{colon}{rest}"
      words[at : at + 1] = [
        config_path if value is None else f"{flag}={config_path}"
      ]
      config_indices.append(i)
  if not config_indices:
    raise InputError(
      "--config is missing: name settings or a file, as in --config "
      "multi30k_en_de:pascal."
    )
  config = load(value_text)
  for i, word in enumerate(argv):
    if match := re.match(r"--?(?:no)?config\.([^=]+)", word):
      if i < config_indices[0]:
        raise InputError(f"{word} must come after --config FILE.")
      check_option(config, match[1], multiple=multiple)
  return words


def check_option(section: Any, path: str, *, multiple: bool = False) -> None:
  """Raises InputError where a dotted path leaves the config.

  Args:
    section: the config.
    path: dotted, without "config.".
    multiple: it is for several systems, of which none is named.
  """
  if path == "system":
    raise InputError(
      "--config.system would be a name without its parts: a system stands "
      "after ':', as in --config multi30k_en_de:pascal."
    )
  where = "config"
  for name in path.split("."):
    if not isinstance(section, ml_collections.ConfigDict):
      raise InputError(f"{where} is a value and has no option {name!r}.")
    if name not in section:
      names = (row.name for row in describe(_config_class()))
      if any(f"{known}.".startswith(f"config.{path}.") for known in names):
        if multiple:
          raise InputError(
            f"config.{path} is an option of {name!r}, which not all systems "
            "have; set it for one: --systems "
            f'"NAME=SYSTEM,{path}=VALUE".'
          )
        raise InputError(
          f"config.{path} is an option of {name!r}, which this system does not "
          "have; take a system that has it, after ':' in --config."
        )
      raise InputError(
        f"{where} has no option {name!r}. {did_you_mean(name, section)}"
      )
    where, section = f"{where}.{name}", section[name]


def set_option(
  config: ml_collections.ConfigDict, path: str, value: Any
) -> None:
  """Sets one option.

  Args:
    config: that has it.
    path: dotted, without "config.".
    value: of its type.

  Raises:
    InputError: no such option, a section, or another type.
  """
  check_option(config, path)
  old = config_path.get_value(path, config)
  if isinstance(old, ml_collections.ConfigDict):
    raise InputError(
      f"config.{path} is a section; name one of its options: "
      f"{', '.join(sorted(old)) or 'it has none'}."
    )
  try:
    config_path.set_value(path, config, value)
  except TypeError as error:
    raise InputError(f"config.{path} cannot be {value!r}: {error}") from None
