"""Shared functions of the papers' configs: tasks, model sizes, schedules."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

from ml_collections import ConfigDict

from jaxsyn.configs import base, systems
from jaxsyn.configs.papers import ablation
from jaxsyn.errors import InputError, did_you_mean

SPLITS = {name: name for name in ("train", "validation", "test")}


def addressed(
  tasks: Mapping[str, Any],
  tables: Mapping[str, ablation.Table],
  settings: Callable[[str, str], ConfigDict],
) -> Callable[[str], ConfigDict]:
  """Returns a paper's `get_config`: a function from TASK:SYSTEM to a config.

  TASK selects the baseline, and TASK:TABLE the first row of the table. For a
  missing or unknown name, get_config raises an InputError that lists the known
  ones.

  Args:
    tasks, tables: Tasks and tables of the paper by name.
    settings: Function (task, system) -> config.
  """
  return functools.partial(_config_at, tasks, tables, settings)


def _config_at(
  tasks: Mapping[str, Any],
  tables: Mapping[str, ablation.Table],
  settings: Callable[[str, str], ConfigDict],
  address: str = "",
) -> ConfigDict:
  """Returns a paper's config for TASK, TASK:SYSTEM or TASK:TABLE/ROW."""
  task, _, name = address.partition(":")
  if not task:
    raise InputError(
      "a paper's file needs a task after ':', as in "
      f"--config papers/FILE:{next(iter(tasks))}. "
      f"There are {', '.join(tasks)}. :SYSTEM or :TABLE/ROW may follow."
    )
  if task not in tasks:
    raise InputError(f"no task {task!r}. {did_you_mean(task, tasks)}")
  table, slash, row = name.partition("/")
  if table in tables:
    chosen = tables[table].row(row)
    return chosen.override(settings(task, chosen.system))
  if slash:
    raise InputError(f"no table {table!r}. {did_you_mean(table, tables)}")
  if name and "+" not in name and name not in systems.SYSTEMS:
    known = (*(f"{table}/" for table in tables), *systems.SYSTEMS)
    raise InputError(
      f"no system or table {name!r}. {did_you_mean(name, known)}"
    )
  return settings(task, name)


def data_set(
  paper: str,
  task: str,
  languages: tuple[str, str],
  *,
  files: Mapping[str, str] = SPLITS,
) -> ConfigDict:
  """Returns the default config with a paper task's languages and files.

  Args:
    paper, task: Names of the paper and the task.
    languages: Language codes of source and target.
    files: Names of the files of each split, without the language.
  """
  config = base.data_set(f"paper_{paper}_{task}", *languages)
  for split, stem in files.items():
    config.prepare.splits[split] = tuple(f"{stem}.{side}" for side in languages)
  return config


def base_transformer(
  config: ConfigDict,
  *,
  dropout: float,
  inner_dropout: float = 0.0,
  tie_embeddings: bool = True,
) -> None:
  """Sets the model options to the base Transformer of Vaswani et al. 2017.

  Args:
    config: Config that is changed in place.
    dropout: Dropout rate after embeddings and on each residual branch.
    inner_dropout: Rate on attention weights and inside feed-forward layers.
    tie_embeddings: Whether both sides share an embedding table.
  """
  config.model.update(width=512, tie_embeddings=tie_embeddings)
  config.model.transformer.update(
    encoder_layers=6,
    decoder_layers=6,
    feed_forward=2048,
    heads=8,
    norm="post",
    dropout=dropout,
    attention_dropout=inner_dropout,
    activation_dropout=inner_dropout,
  )


def noam(config: ConfigDict) -> None:
  """Sets the learning-rate schedule of Vaswani et al. 2017.

  The warm-up takes 4,000 updates.
  """
  config.optimiser.update(learning_rate=1.0, schedule="noam")
  config.optimiser.noam.warmup = 4000


def by_task(
  tasks: Mapping[str, Any], split: str, *bleu: float | None
) -> dict[str, float]:
  """Returns published scores as a dict with the keys "<task> <split>".

  Scores are given in the order of `tasks`; None is a score that is not reported.
  """
  return {
    f"{task} {split}": figure
    for task, figure in zip(tasks, bleu)
    if figure is not None
  }
