"""Parses command lines and config files for all commands.

The module of a command ends in

    def define_flags():
      cli.config_flag()
      flags.DEFINE_string("workdir", None, "Run directory.")

    if __name__ == "__main__":
      define_flags()
      cli.main(_main)  # _main(values) calls run(values.config, ...)

and has an entry in `jaxsyn.commands`. `jaxsyn.utils.exits` prints errors and sets the
exit status.
"""

from __future__ import annotations

import importlib.util
import re
import sys
import textwrap
import types
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import ml_collections
from absl import app, flags
from ml_collections import config_flags
from ml_collections.config_flags import config_path

from jaxsyn.commands import COMMANDS
from jaxsyn.errors import InputError, did_you_mean
from jaxsyn.options import describe, text, unused_option_error
from jaxsyn.utils import addresses
from jaxsyn.utils.exits import guarded

flags.disclaim_key_flags()  # --config shows in the help of the command

# What absl appends to the help of a flag that may be repeated.
_REPEATED = "; repeat this option to specify a list of values"


def config_flag() -> None:
  """Defines the flag --config and its overrides, such as --config.seed=1."""
  config_flags.DEFINE_config_file(
    "config",
    help_string="Config: the name of a config included in jaxsyn, or your own "
    "file (mine.py), optionally followed by ':' and a system: "
    "multi30k_en_de:pascal. Configs of papers take a task first: "
    "papers/pascal:nc11_en_de:pascal. A config is Python code "
    "that is executed, so read other people's configs before you "
    "use them. Options can follow: --config.model.width=256. "
    "--helpconfig lists all options, and --helpconfig=model lists "
    "the options of a section; with --config, the values of that "
    "config are shown.",
  )


def main(
  function: Callable[[flags.FlagValues], Any],
  *,
  multiple: bool = False,
  word: str = "",
) -> None:
  """Parses the command line, runs a command with its flags, and exits.

  Args:
    function: Function that runs the command.
    multiple, word: See `parse`.
  """
  guarded(lambda: function(parse(sys.argv, multiple=multiple, word=word)))


def overrides(values: flags.FlagValues) -> dict[str, Any]:
  """Returns a dict of the --config.OPTION overrides on the command line."""
  return config_flags.get_override_values(values["config"])


def _config_class() -> type:
  """Returns `Config`, imported late because the import loads JAX."""
  from jaxsyn.config import Config

  return Config


def check_chosen(
  configs: Sequence[ml_collections.ConfigDict], options: Iterable[str]
) -> None:
  """Raises InputError if an option has no effect in any of the configs."""
  cls = _config_class()
  for option in options:
    errors = [unused_option_error(cls, config, option) for config in configs]
    if all(errors):
      raise InputError(errors[0])


def address_of(values: flags.FlagValues) -> str:
  """Returns the value of --config: FILE, or FILE:SYSTEM for a named system."""
  return config_flags.get_config_filename(values["config"])


def parse(
  argv: Sequence[str], *, multiple: bool = False, word: str = ""
) -> flags.FlagValues:
  """Parses a command line into flags, including a config with overrides.

  Args:
    argv: Command line.
    multiple: Whether the command makes configs of several systems from --config,
      and calls `check_chosen` itself.
    word: Flag whose name may be omitted, such as "folder" in `jaxsyn new FOLDER`.
      A flag for several values takes all arguments. In a command with --config
      this flag replaces --config, and must be named.

  Raises:
    InputError: A flag or an option is invalid.
  """
  values = flags.FLAGS
  if {"--help", "-help", "--h", "-h"} & {*argv}:
    print(_help())
    sys.exit(0)
  if {"--helpfull", "-helpfull"} & {*argv}:
    app.usage(writeto_stdout=True)
    sys.exit(0)
  has_config = "config" in values
  if has_config and word:
    has_config = not any(re.match(f"--?{word}(=|$)", one) for one in argv)
    word = "" if has_config else word
  helps: list[str] = []
  if has_config:
    helps = [one for one in argv if re.fullmatch("--?helpconfig(=.*)?", one)]
    argv = [one for one in argv if one not in helps]
    if helps and not any(re.match("--?config", one) for one in argv):
      _help_config(helps[0])
    argv = values.read_flags_from_files(list(argv), False)
    argv = _check_config(argv, multiple=multiple)
  values.set_gnu_getopt(bool(word))  # flags may follow the argument
  try:
    rest = values(list(argv))[1:]
    if word and rest:
      takes_all = isinstance(values[word].value, list)
      values[word].parse(rest if takes_all else rest[0])
      rest = [] if takes_all else rest[1:]
  except flags.Error as error:
    raise InputError(f"{error} (--help lists the flags)") from None
  if rest:
    raise InputError(f"unexpected argument {rest[0]!r} (--help: the flags).")
  if helps:
    _help_config(helps[0], values.config)
  if has_config and not multiple:
    check_chosen([values.config], overrides(values))
  return values


def load(address: str) -> ml_collections.ConfigDict:
  """Returns the ConfigDict of a config address FILE[:SYSTEM].

  Args:
    address: Address NAME[:SYSTEM] or FILE[:SYSTEM]; for a paper,
      NAME:TASK[:SYSTEM].

  Raises:
    InputError: The file, its get_config, the task or the system does not exist.
  """
  path, colon, rest = address.partition(":")
  module = module_of(path)
  if not hasattr(module, "get_config"):
    raise InputError(
      f"{path} has no function get_config; `jaxsyn new` writes a config file."
    )
  return module.get_config(rest) if colon else module.get_config()


def names_system(address: str) -> bool:
  """Returns whether a config address FILE[:SYSTEM] names a system.

  In files with TASKS, the system follows the task.
  """
  path, _, rest = address.partition(":")
  return ":" in rest if hasattr(module_of(path), "TASKS") else bool(rest)


def module_of(path: str) -> types.ModuleType:
  """Runs a Python file, given by name or path; returns its module.

  Raises:
    InputError: The file does not exist or is not Python.
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


def _help() -> str:
  """Returns the --help text of the running command, with flags in groups."""
  module = sys.modules["__main__"]
  name = getattr(module.__spec__, "name", "")
  command = next((c for c in COMMANDS.values() if c.module == name), None)
  key_flags = flags.FLAGS.get_key_flags_for_module(sys.argv[0])
  known = {flag.name: flag for flag in key_flags}
  groups = {"flags": sorted(known)}
  if command:
    first = [*command.required, *command.common]
    groups = {
      "required flags": [*command.required],
      "common flags": [*command.common],
      "rare flags": sorted(known.keys() - first),
    }
  lines = [(module.__doc__ or "").strip()]
  for title, names in groups.items():
    entries = [_flag_help(known[name]) for name in names if name in known]
    lines += ["", f"{title}:", *entries] if entries else []
  return "\n".join(lines)


def _flag_help(flag: flags.Flag[Any]) -> str:
  """Returns the help text of a flag, with its bounds and default."""
  syntax = flag.parser.syntactic_help if flag.parser else ""
  meaning = " ".join(str(flag.help).split())
  meaning = meaning.replace(_REPEATED, " May be repeated.")
  meaning += f" ({syntax})" if syntax else ""
  if flag.boolean:
    meaning += " Default: true." if flag.default else ""
  elif flag.default not in (None, "", []):
    meaning += f" Default: {flag.default_as_str}."
  return textwrap.fill(
    meaning,
    78,
    initial_indent=f"  --{'[no]' if flag.boolean else ''}{flag.name}: ",
    subsequent_indent="    ",
    break_on_hyphens=False,
  )


def _help_config(
  word: str, config: ml_collections.ConfigDict | None = None
) -> None:
  """Prints the help for config options and exits.

  Args:
    word: Argument --helpconfig or --helpconfig=SECTION.
    config: Config whose values are shown; None: the defaults.
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
  """Checks --config and overrides; returns arguments with the config's path.

  Without these checks, ml_collections would print a traceback.

  Args:
    argv: Command line.
    multiple: See `parse`.

  Returns:
    Command line with the file of --config instead of its name.
  """
  words, first, config = list(argv), len(argv), None
  for i, word in enumerate(argv):
    match = re.fullmatch("(--?config)(?:=(.*))?", word)
    if match and match[2] is not None:
      address = match[2]
      words[i] = f"{match[1]}={_with_file(address)}"
    elif match:
      address = "".join(argv[i + 1 : i + 2])
      words[i + 1 : i + 2] = [_with_file(address)]
    if match:
      first, config = min(first, i), load(address)
  if config is None:
    raise InputError(
      "--config is missing: name settings or a file, as in --config "
      "multi30k_en_de:pascal."
    )
  for i, word in enumerate(argv):
    if override := re.match(r"--?(?:no)?config\.([^=]+)", word):
      if i < first:
        raise InputError(f"{word} must come after --config FILE.")
      check_option(config, override[1], multiple=multiple)
  return words


def _with_file(address: str) -> str:
  path, colon, rest = address.partition(":")
  return f"{addresses.file_of(path)}{colon}{rest}"


def check_option(section: Any, path: str, *, multiple: bool = False) -> None:
  """Raises InputError for an option that a config does not have.

  Args:
    section: Config that must have the option.
    path: Dotted name without "config.".
    multiple: Whether the config is for several systems, and names no system.
  """
  if path == "system":
    raise InputError(
      "--config.system would be a name without its parts: name the system "
      "after ':', as in --config multi30k_en_de:pascal."
    )
  where = "config"
  for name in path.split("."):
    if not isinstance(section, ml_collections.ConfigDict):
      raise InputError(f"{where} is a value and has no option {name!r}.")
    if name not in section:
      rows = describe(_config_class())
      if not any(f"{row.name}.".startswith(f"config.{path}.") for row in rows):
        raise InputError(
          f"{where} has no option {name!r}. {did_you_mean(name, section)}"
        )
      message = f"config.{path} is an option of {name!r}, which "
      if multiple:
        message += (
          "not all systems have; set it for one: --systems "
          f'"NAME=SYSTEM,{path}=VALUE".'
        )
      else:
        message += (
          "this system does not have; take a system that has it, after ':' in "
          "--config."
        )
      raise InputError(message)
    where, section = f"{where}.{name}", section[name]


def set_option(
  config: ml_collections.ConfigDict, path: str, value: Any
) -> None:
  """Sets an option of a config by its dotted name, in place.

  Args:
    config: Config with the option.
    path: Dotted name without "config.".
    value: Value of the option's type.

  Raises:
    InputError: The option does not exist, is a section, or has another type.
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
