"""Ablation tables: rows of changes to a config.

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
  """One line of a table: a system and what differs from it.

  Attributes:
    name: for the command line; unique in its table.
    system: a name that `systems.apply` takes.
    overrides: dotted field of the config -> value.
    published: "task split" -> BLEU as the paper reports it; None: no such row.
    folder: where `overrides` change how the text is prepared, what the names
      of the data set and of its folder end in; empty: the row's name.
  """

  name: str
  system: str
  overrides: Mapping[str, Any] = dataclasses.field(default_factory=dict)
  published: Mapping[str, float] | None = None
  folder: str = ""

  def on(self, config: ConfigDict) -> ConfigDict:
    """Makes a data set's baseline this row, in place, and returns it.

    Args:
      config: what a data set's `get_config("transformer")` returns.

    Raises:
      InputError: the config has a system already, or lacks a field of the row.
    """
    if config.system != "transformer":
      raise InputError(
        f"config.system is {config.system!r} already; a row brings its own: "
        'give what get_config("transformer") returns.'
      )
    return self.override(systems.apply(config, self.system))

  def override(self, config: ConfigDict) -> ConfigDict:
    """Sets the fields of the row in a config of its system, in place.

    Raises:
      InputError: a field is unknown, is a section, or has another type.
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
  """Rows that differ in one respect.

  Attributes:
    source: paper and table.
    question: what the table asks.
    rows: the paper's own choice, or its baseline, comes first.
    others: systems that we do not have -> their published figures, which
      reports show.
  """

  source: str
  question: str
  rows: tuple[Row, ...]
  others: Mapping[str, Mapping[str, float]] = dataclasses.field(
    default_factory=dict
  )

  def row(self, name: str) -> Row:
    """The row of a name; of "", the first.

    Raises:
      InputError: no such row; the message lists those there are.
    """
    rows = {row.name: row for row in self.rows}
    if name and name not in rows:
      raise InputError(
        f"no row {name!r} in {self.source}. {did_you_mean(name, rows)}"
      )
    return rows[name] if name else self.rows[0]
