"""The systems of a comparison, as its command names them.

--systems names some of the table of systems, --variant one of them with options of
its own, --table the rows of a published ablation. --config.OPTION=VALUE is for all.
"""

from __future__ import annotations

import pathlib
from typing import Any

import ml_collections
from absl import flags

from jaxsyn import addresses, cli, variants
from jaxsyn.comparison import planned_jobs, results
from jaxsyn.config import read_config
from jaxsyn.errors import InputError, did_you_mean
from jaxsyn.options.flags import list_flag

flags.disclaim_key_flags()  # they show in the help of the command


def define_flags() -> None:
  """--systems, --variant, --table."""
  list_flag(
    "systems",
    [],
    "Names of configs/systems.py, the baseline first; "
    "they may be joined: pascal+relative.",
  )
  flags.DEFINE_multi_string(
    "variant",
    [],
    "A system with options of its own, after --systems: "
    "NAME=SYSTEM,OPTION=VALUE,..., as in dasa_random_tree=dasa,data.tree=random. "
    "Repeated for several.",
  )
  flags.DEFINE_string(
    "table",
    "",
    "An ablation instead: a paper of configs/papers and a table of it, as in "
    "pascal/layers, or FILE.py/layers (a Python program, which is run); its "
    "first row is the baseline.",
  )


def read(
  values: flags.FlagValues,
) -> tuple[list[planned_jobs.System], results.Ablation | None]:
  """The systems of the command line, with all overrides, and their table.

  Raises:
    InputError: what was given does not fit; the message says what to do.
  """
  if bool(values.systems) == bool(values.table):
    raise InputError("give --systems, or --table, and not both.")
  if values.variant and values.table:
    raise InputError("--variant goes with --systems, not with --table.")
  address = cli.address_of(values)
  overrides = cli.overrides(values)
  if cli.names_system(address):
    raise InputError(
      f"--config {addresses.displayed(address)} names a system; --systems or --table do that here."
    )
  if "seed" in overrides:
    raise InputError(
      "config.seed is set by --seeds here: from 0, as many as you say."
    )
  if values.table:
    return _rows(values, address, overrides)
  plain = cli.load(address)
  varied = list(map(variants.read, values.variant))
  chosen = {name: name for name in values.systems}
  chosen |= {variant.name: variant.system for variant in varied}
  names = [*values.systems, *(variant.name for variant in varied)]
  if len(chosen) < len(names):
    raise InputError(
      f"--systems and --variant name one twice: {', '.join(names)}."
    )
  configs = [cli.load(f"{address}:{system}") for system in chosen.values()]
  for name, config in zip(names, configs):
    for path, value in overrides.items():
      field = _field(config, path)
      if field not in (_field(plain, path), value):
        raise InputError(
          f"--config.{path}={value}: {name} is {name} because it has "
          f"config.{path}={field!r}. Leave the option or the system out."
        )
    config.update_from_flattened_dict(overrides)
  for variant, config in zip(varied, configs[len(values.systems) :]):
    if both := sorted(set(variant.options) & set(overrides)):
      raise InputError(
        f"--config.{both[0]} is for all systems, and --variant {variant.name} "
        "has its own. Leave one out."
      )
    variant.on(config)
    cli.check_chosen([config], variant.options)
  cli.check_chosen(configs, overrides)
  systems = map(planned_jobs.System, names, map(read_config, configs))
  return list(systems), None


def _rows(
  values: flags.FlagValues, address: str, overrides: dict[str, Any]
) -> tuple[list[planned_jobs.System], results.Ablation]:
  """The rows of an ablation table on the data of a config, and the table."""
  file, name, table = _table(values)
  is_same_file = file.samefile(address.partition(":")[0])
  configs = []
  for row in table.rows:
    if both := sorted(set(row.overrides) & set(overrides)):
      raise InputError(
        f"--config.{both[0]} is what the table varies ({row.name} has "
        f"{row.overrides[both[0]]!r}). Leave the option or the table out."
      )
    # On its own paper's task a row has what that paper sets for its system.
    config = cli.load(
      f"{address}:{name}/{row.name}" if is_same_file else address
    )
    config.update_from_flattened_dict(overrides)
    configs.append(config if is_same_file else row.on(config))
  cli.check_chosen(configs, overrides)
  systems = [
    planned_jobs.System(
      row.name, read_config(config), dict(row.published or {})
    )
    for row, config in zip(table.rows, configs)
  ]
  published_by_others = {
    name: dict(bleu) for name, bleu in table.others.items()
  }
  return systems, results.Ablation(
    table.source, table.question, published_by_others
  )


def _table(values: flags.FlagValues) -> tuple[pathlib.Path, str, Any]:
  """The table of PAPER/TABLE: its file, its name there, itself.

  PAPER is a file, or the name of one in papers/ beside the config, or of one
  that comes with jaxsyn.
  """
  paper, _, name = values.table.rpartition("/")
  file = pathlib.Path(paper)
  if file.suffix != ".py":
    folder = pathlib.Path(cli.address_of(values).partition(":")[0]).parent
    folder = folder if folder.name == "papers" else folder / "papers"
    places = [folder, addresses.FOLDER / "papers"]
    candidates = [
      f for place in places if (f := place / f"{paper}.py").is_file()
    ]
    if not candidates:
      known = {
        f"{path.stem}/{table}"
        for place in places
        for path in place.glob("*.py")
        for table in getattr(cli.module_of(str(path)), "TABLES", ())
      }
      raise InputError(
        f"no paper has a table {values.table!r}. "
        f"{did_you_mean(values.table, known)}"
      )
    file = candidates[0]
  tables = getattr(cli.module_of(str(file)), "TABLES", {})
  if name not in tables:
    raise InputError(
      f"{addresses.displayed(str(file))} has no table {name!r}. {did_you_mean(name, tables)}"
    )
  return file, name, tables[name]


def _field(config: ml_collections.ConfigDict, path: str) -> Any:
  for name in path.split("."):
    config = config[name]
  return config
