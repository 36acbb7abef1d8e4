"""Parses --systems, which names the systems of a comparison.

  --systems transformer,pascal+relative
  --systems "transformer,random=dasa,data.tree=random,train.steps=900"
  --systems pascal/layers

An item is a system of configs/systems.py, several systems joined by "+", or
NAME=SYSTEM,OPTION=VALUE,... with options of that system, written without
"config.". Commas in brackets or quotes do not separate items. PAPER/TABLE or
FILE.py/TABLE means all rows of a published ablation. --config.OPTION=VALUE applies
to all systems.
"""

from __future__ import annotations

import ast
import dataclasses
import pathlib
import re
from collections.abc import Mapping, Sequence
from typing import Any

import ml_collections
from absl import flags
from ml_collections.config_flags import config_path

from jaxsyn import cli
from jaxsyn.comparison import planned_jobs, results
from jaxsyn.config import read_config
from jaxsyn.errors import InputError, did_you_mean
from jaxsyn.utils import addresses

flags.disclaim_key_flags()  # they show in the help of the command

_NAME = r"\w[\w.+-]{0,99}"  # also the name of a folder
_SYSTEM = r"[\w+]+"
_OPTION = r"[a-z_0-9]+(?:\.[a-z_0-9]+)+"
# A comma outside of brackets and quotes, or a bracket or quote.
_TOKEN = re.compile(r"""[^,()\[\]{}'"]+|.""", re.DOTALL)
_EXAMPLE = (
  "SYSTEM, NAME=SYSTEM,OPTION=VALUE,... or PAPER/TABLE, as in "
  '"pascal,random=dasa,data.tree=random" or "pascal/layers"'
)


def define_flags() -> None:
  """Defines the command-line flag --systems."""
  flags.DEFINE_multi_string(
    "systems",
    [],
    "Systems to compare, the baseline first: names in configs/systems.py "
    "(transformer,pascal+relative); NAME=SYSTEM,OPTION=VALUE,... for a system "
    "with options (random=dasa,data.tree=random); or PAPER/TABLE or "
    "FILE.py/TABLE for the rows of an ablation (pascal/layers), the first row "
    "being the baseline.",
  )


@dataclasses.dataclass(frozen=True)
class NamedSystem:
  """System in a comparison: its name, base system and options from --systems.

  Attributes:
    name: Name in the comparison.
    system: Name in configs/systems.py, or several names joined by "+".
    options: Values as written on the command line, by dotted name without
      "config.".
  """

  name: str
  system: str
  options: dict[str, str] = dataclasses.field(default_factory=dict)

  def apply(self, config: ml_collections.ConfigDict) -> None:
    """Applies the option values from --systems to a system's config, in place.

    Raises:
      InputError: An option does not exist, or a value has another type.
    """
    for path, text in self.options.items():
      try:
        cli.check_option(config, path)
        old = config_path.get_value(path, config)
        cli.set_option(config, path, _value(text, old))
      except InputError as error:
        raise InputError(f"--systems {self.name}: {error}") from None


def table_of(texts: Sequence[str]) -> str:
  """Returns the name of the ablation table in --systems, or "".

  Raises:
    InputError: There is a table and another item.
  """
  items = split(texts)
  tables = [item for item in items if "/" in item and "=" not in item]
  if tables and len(items) > 1:
    raise InputError(
      f"--systems {tables[0]} is a table, which cannot be compared together "
      "with other systems. Leave one out."
    )
  return tables[0] if tables else ""


def parse(texts: Sequence[str]) -> list[NamedSystem]:
  """Returns the systems named in the values of --systems.

  Raises:
    InputError: A value does not have the form of the module's docstring.
  """
  parsed: list[NamedSystem] = []
  with_options: list[NamedSystem] = []  # written as NAME=SYSTEM
  for item in split(texts):
    name, equals, value = (part.strip() for part in item.partition("="))
    if not equals and re.fullmatch(_SYSTEM, name):
      parsed.append(NamedSystem(name, name))
    elif equals and re.fullmatch(_OPTION, name):
      if not with_options or with_options[-1] is not parsed[-1]:
        raise InputError(
          f"--systems {item!r} is an option of no system; it must be {_EXAMPLE}."
        )
      parsed[-1].options[name] = value
    elif re.fullmatch(_NAME, name) and re.fullmatch(_SYSTEM, value):
      parsed.append(NamedSystem(name, value))
      with_options.append(parsed[-1])
    else:
      raise InputError(f"--systems {item!r} must be {_EXAMPLE}.")
  for one in with_options:
    if not one.options:
      raise InputError(
        f"--systems '{one.name}={one.system}' has no option; it must be "
        f"{_EXAMPLE}."
      )
  return parsed


def split(texts: Sequence[str]) -> list[str]:
  """Splits the values of --systems at commas outside brackets and quotes."""
  items = []
  for text in texts:
    items.append("")
    depth, quote = 0, ""
    for token in _TOKEN.findall(text):
      if token == "," and not depth and not quote:
        items.append("")
        continue
      items[-1] += token
      if quote:
        quote = "" if token == quote else quote
      elif token in "'\"":
        quote = token
      elif token in "([{)]}":
        depth += 1 if token in "([{" else -1
  return items


def read(
  values: flags.FlagValues,
) -> tuple[list[planned_jobs.System], results.Ablation | None]:
  """Returns the systems to compare, and the ablation table that lists them.

  The table is None if --systems names single systems.

  Raises:
    InputError: The flags are not compatible.
  """
  if not values.systems:
    raise InputError(f"--systems is missing: {_EXAMPLE}.")
  address = cli.address_of(values)
  overrides = cli.overrides(values)
  if cli.names_system(address):
    raise InputError(
      f"--config {addresses.displayed(address)} names a system, which belongs "
      "in --systems."
    )
  if "seed" in overrides:
    raise InputError("config.seed is set by --seeds: 0, 1, ...")
  if table := table_of(values.systems):
    return _table_rows(table, address, overrides)
  return _systems(parse(values.systems), address, overrides), None


def _systems(
  parsed: Sequence[NamedSystem], address: str, overrides: Mapping[str, Any]
) -> list[planned_jobs.System]:
  """Returns the systems of a comparison with their complete configs."""
  names = [one.name for one in parsed]
  if len(set(names)) < len(names):
    raise InputError(f"--systems names one twice: {', '.join(names)}.")
  defaults = cli.load(address)
  configs = [cli.load(f"{address}:{one.system}") for one in parsed]
  for one, config in zip(parsed, configs):
    for path, value in overrides.items():
      current = config_path.get_value(path, config)
      if current not in (config_path.get_value(path, defaults), value):
        raise InputError(
          f"--config.{path}={value}: {one.name} is {one.name} because it has "
          f"config.{path}={current!r}. Leave the option or the system out."
        )
      if path in one.options:
        raise InputError(
          f"--config.{path} is for all systems, and --systems {one.name} sets it "
          "too. Leave one out."
        )
    config.update_from_flattened_dict(overrides)
    one.apply(config)
    cli.check_chosen([config], one.options)
  cli.check_chosen(configs, overrides)
  read = map(read_config, configs)
  return [planned_jobs.System(*pair) for pair in zip(names, read)]


def _table_rows(
  table_name: str, address: str, overrides: dict[str, Any]
) -> tuple[list[planned_jobs.System], results.Ablation]:
  """Returns the systems in the rows of an ablation table, and its description.

  The systems use the data of the config at the given address.
  """
  file, name, table = _table(table_name, address)
  is_same_file = file.samefile(address.partition(":")[0])
  systems, configs = [], []
  for row in table.rows:
    if both := sorted(set(row.overrides) & set(overrides)):
      raise InputError(
        f"--config.{both[0]} is what the table varies ({row.name} has "
        f"{row.overrides[both[0]]!r}). Leave the option or the table out."
      )
    # In the config of its own paper a row has the paper's settings.
    row_name = f":{name}/{row.name}" if is_same_file else ""
    config = cli.load(f"{address}{row_name}")
    config.update_from_flattened_dict(overrides)
    configs.append(config if is_same_file else row.on(config))
    published = dict(row.published or {})
    system = planned_jobs.System(row.name, read_config(configs[-1]), published)
    systems.append(system)
  cli.check_chosen(configs, overrides)
  others = {name: dict(bleu) for name, bleu in table.others.items()}
  return systems, results.Ablation(table.source, table.question, others)


def _table(table_name: str, address: str) -> tuple[pathlib.Path, str, Any]:
  """Finds an ablation table; returns its file, its name and the table.

  The paper in PAPER/TABLE is a file, or the name of a file in the folder papers/
  next to the config or in that of jaxsyn.
  """
  paper, _, name = table_name.rpartition("/")
  file = pathlib.Path(paper)
  if file.suffix != ".py":
    folder = pathlib.Path(address.partition(":")[0]).parent
    folder = folder if folder.name == "papers" else folder / "papers"
    files = [*folder.glob("*.py"), *(addresses.FOLDER / "papers").glob("*.py")]
    same = [path for path in files if path.stem == paper]
    if not same:
      known = set[str]()
      for path in files:
        known |= {f"{path.stem}/{table}" for table in _tables_in(path)}
      raise InputError(
        f"no paper has a table {table_name!r}. "
        f"{did_you_mean(table_name, known)}"
      )
    file = same[0]
  tables = _tables_in(file)
  if name not in tables:
    raise InputError(
      f"{addresses.displayed(str(file))} has no table {name!r}. "
      f"{did_you_mean(name, tables)}"
    )
  return file, name, tables[name]


def _tables_in(file: pathlib.Path) -> Mapping[str, Any]:
  return getattr(cli.module_of(str(file)), "TABLES", {})


def _value(text: str, old: Any) -> Any:
  """Parses an option's value from text, in which strings may lack quotes.

  `old` is the present value of the option.
  """
  if isinstance(old, bool):
    return {"true": True, "false": False}.get(text.lower(), text)
  if isinstance(old, str) and text[:1] not in ("'", '"'):
    return text
  try:
    return ast.literal_eval(text)
  except (SyntaxError, ValueError):
    return text
