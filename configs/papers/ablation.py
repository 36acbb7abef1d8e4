"""Ablation tables, whose rows change the options of a config.

The file of a paper has its TABLES, whose rows are named after a task
(`jaxsyn.configs.papers.paper`). The same rows can be used on another dataset:

  for row in pascal.TABLES["layers"].rows:
    config = row.on(enja.get_config("transformer"))

A row only sets the options that the table varies. All others are those of the
dataset's config and of the system. `jaxsyn.plan` rejects a row that does not
fit the model (layer 6 of 4).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from ml_collections import ConfigDict

from jaxsyn import cli
from jaxsyn.configs import systems
from jaxsyn.errors import InputError, did_you_mean


@dataclasses.dataclass(frozen=True)
class Row:
  """Row of an ablation table: a system with changed options.

  Attributes:
    name: Name on the command line, unique in its table.
    system: Name of a system, as in `systems.apply`.
    overrides: Option values by dotted name, without "config.".
    published: BLEU in the paper by "task split"; None: not in the paper.
    folder: Ending of the names of the dataset and its folder, if `overrides`
      change the preparation; empty: the row's name.
  """

  name: str
  system: str
  overrides: Mapping[str, Any] = dataclasses.field(default_factory=dict)
  published: Mapping[str, float] | None = None
  folder: str = ""

  def on(self, config: ConfigDict) -> ConfigDict:
    """Applies this table row to a baseline config, in place; returns the config.

    Args:
      config: Result of a dataset's `get_config("transformer")`.

    Raises:
      InputError: The config has another system, or lacks an option of the row.
    """
    if config.system != "transformer":
      raise InputError(
        f"config.system is {config.system!r}, but a row has its own system: "
        'pass the result of get_config("transformer").'
      )
    return self.override(systems.apply(config, self.system))

  def override(self, config: ConfigDict) -> ConfigDict:
    """Sets the options that this table row changes in a config, in place.

    Raises:
      InputError: An option is unknown, is a section, or has another type.
    """
    before = config.prepare.to_dict()
    for path, value in self.overrides.items():
      cli.set_option(config, path, value)
    if config.prepare.to_dict() != before:
      ending = self.folder or self.name
      config.data.name = f"{config.data.name}_{ending}"
      config.data.directory = f"{config.data.directory}_{ending}"
    return config


@dataclasses.dataclass(frozen=True)
class Table:
  """Ablation table, with the question that its rows answer.

  Attributes:
    source: Paper and number of the table.
    question: Question that the table answers.
    rows: Rows; the paper's own choice, or its baseline, is first.
    others: Published figures of systems that jaxsyn lacks, for reports.
  """

  source: str
  question: str
  rows: tuple[Row, ...]
  others: Mapping[str, Mapping[str, float]] = dataclasses.field(
    default_factory=dict
  )

  def row(self, name: str) -> Row:
    """Returns the row with the given name; the first row for "".

    Raises:
      InputError: There is no such row.
    """
    rows = {row.name: row for row in self.rows}
    if name and name not in rows:
      raise InputError(
        f"no row {name!r} in {self.source}. {did_you_mean(name, rows)}"
      )
    return rows[name] if name else self.rows[0]
