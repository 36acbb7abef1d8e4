"""Trains a system, or resumes a run.

jaxsyn train --config multi30k_en_de:pascal --workdir runs/pascal
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import pathlib
import re
import shlex
import sys
from collections.abc import Mapping
from typing import Any

import jax
from absl import flags, logging

from jaxsyn import cli, commands
from jaxsyn.config import Config, as_dict, read_config, with_defaults
from jaxsyn.data.loader.collate import BatchTransform
from jaxsyn.data.loader.loader import DataLoader, open_loader
from jaxsyn.data.loader.transforms import wrong_parents
from jaxsyn.data.sentence.controls import WrongParents
from jaxsyn.data.store import manifests
from jaxsyn.data.store.dataset import Dataset, Split
from jaxsyn.errors import InputError
from jaxsyn.options import flat
from jaxsyn.plan import Plan, check_parsed, check_trees, resolve
from jaxsyn.scoring import selection
from jaxsyn.session import teacher, warm_start, workdir
from jaxsyn.storage import checksums, files, hub, lock, remote
from jaxsyn.training import frozen, hosts, loop
from jaxsyn.training.checkpoint_writer import CheckpointWriter
from jaxsyn.training.mesh import Layout
from jaxsyn.training.profile import Profile
from jaxsyn.training.runtime import enough_memory, set_up_jax
from jaxsyn.training.schedules import SCHEDULES, WarmedUp
from jaxsyn.training.step import first_params
from jaxsyn.utils import exits
from jaxsyn.validation import AttentionLogger, Validator

_LESS_MEMORY = (
  "config.batch.tokens (with config.optimiser.accumulate raised as much, "
  "updates are as large), config.model.width, or the layers"
)


def run(
  config: Config | Mapping[str, Any],
  folder: str | pathlib.Path,
  batch_transform: BatchTransform | None = None,
) -> loop.TrainingEnd:
  """Trains a model, resuming from the newest checkpoint if there is one.

  Args:
    config: Config from `get_config` or `jaxsyn.config.read_config`.
    folder: Run directory, which is created if it does not exist.
    batch_transform: Function of every host batch (NumPy arrays, with padding) in
      training and validation, for example to add `source_weighting_BSS` for the
      modifier `given_weighting`.

  Returns:
    Last step, reason of the end, and best score.

  Raises:
    InputError: The config, the data or the directory is not usable; the message
      has the remedy.
  """
  _check_workdir(folder)
  if not isinstance(config, Config):
    config = read_config(config)
  config = with_defaults(config)
  data = config.data
  with manifests.in_use((data.directory, *data.mixture.folders)):
    return _run(config, folder, batch_transform)


def _run(
  config: Config,
  folder: str | pathlib.Path,
  user_transform: BatchTransform | None,
) -> loop.TrainingEnd:
  """Trains with a complete config; the caller holds a lock on the data."""
  # The system and its data.
  dataset = Dataset(config.data.directory)
  plan = resolve(config, dataset.manifest)
  teachers = teacher.read(plan, dataset.manifest)
  batch_transform = user_transform
  for each in teachers:
    plan = dataclasses.replace(plan, features=plan.features | each.features)
    batch_transform = each.chain(batch_transform)
  warnings = check_parsed(plan, dataset)

  # Devices, which several processes may share.
  _check_same_on_all_hosts(config, dataset)
  layout = Layout(config.train.parallelism, config.train.mesh)

  # Training and validation batches.
  split = dataset.split(config.data.train)
  loader = open_loader(
    split,
    plan.features,
    data=config.data,
    batch=config.batch,
    seed=config.seed,
    shard=layout.host_shard,
    batch_transform=batch_transform,
  )
  validator = Validator(
    plan,
    layout,
    dataset.split(config.data.validation),
    batch_transform=batch_transform,
    split_transform=user_transform,
    attention_logger=_attention_logger(plan, dataset, user_transform),
  )

  # Shapes of the parameters, and their initial values from another run.
  batch = loader.empty()[0]  # outside of a trace, in which no teacher can run
  shapes = jax.eval_shape(
    lambda: first_params(plan.recipe, batch, jax.random.key(0))
  )
  layout.shardings(shapes)  # rejects sizes that cannot be cut
  frozen_message = frozen.check(config.train.freeze, shapes)
  warm = warm_start.read(
    config.train.start, plan, config.data.directory, folder
  )
  profile = Profile(config.train.profile, folder, config.train.steps)
  wrong_parent_rates = _wrong_parents(config, split)
  messages = [
    f"the best checkpoint is selected by {selection.title(config.train)}",
    _training_length(config, loader),
    *(f"warning: {warning}" for warning in warnings),
    _warmup_warning(config),
    *loader.messages,
    frozen_message,
    *map(_describe_rates, wrong_parent_rates.items()),
    *(each.message for each in teachers),
    *(warm.messages if warm else ()),
  ]

  # The run directory, now that all input has been accepted.
  with contextlib.ExitStack() as stack:

    def create() -> None:
      stack.enter_context(lock.exclusive_lock(folder))
      teacher.check_same(folder, teachers)
      workdir.create(folder, config)
      if wrong_parent_rates:
        rates = checksums.add_checksum(wrong_parent_rates)
        files.write_json(files.path_of(folder) / workdir.WRONG_PARENTS, rates)
      teacher.write(folder, teachers)
      if warm:
        warm.write(folder)

    hosts.on_main_process(create)
    hosts.check_shared(folder)
    checkpoints = CheckpointWriter(folder, config.train.keep)
    stack.callback(checkpoints.close)

    # Steps, validation and checkpoints.
    with enough_memory(_batch_sizes(loader), _LESS_MEMORY):
      end = loop.train(
        loop.Training(
          config=config,
          recipe=plan.recipe,
          layout=layout,
          loader=loader,
          checkpoints=checkpoints,
          validate=validator,
          profile=profile,
          messages=[message for message in messages if message],
          warm_start=warm,
        )
      )
    checkpoints.wait_for_all()  # no process exits while another one saves
    return end


def _check_same_on_all_hosts(config: Config, dataset: Dataset) -> None:
  hosts.check_joined()
  options = flat(as_dict(config), "config.")
  del options["config.data.directory"]  # each host may have a copy
  hashes = flat(workdir.hashes(dataset.manifest), "data.")
  hosts.check_same("config", options | hashes)


def _attention_logger(
  plan: Plan, dataset: Dataset, user_transform: BatchTransform | None
) -> AttentionLogger | None:
  count = plan.config.train.writers.pictures
  if not count:
    return None
  # Imported only if needed, since it loads matplotlib.
  from jaxsyn.inspection.attention_sampler import AttentionSampler

  return AttentionSampler(
    plan,
    dataset.manifest,
    plan.config.data.validation,
    count,
    batch_transform=user_transform,
  )


def _wrong_parents(config: Config, split: Split) -> dict[str, dict[str, float]]:
  """Returns the fraction of artificially wrong parents, by split and side.

  Splits are those for training, validation and test. The result is empty unless
  config.data.tree is "wrong_parents".
  """
  data, seed = config.data, config.seed
  if not isinstance(data.tree, WrongParents):
    return {}
  dataset = split.dataset
  rates = {data.train: wrong_parents(split, data, seed)}
  for name in (data.validation, *data.test):
    if name in dataset.manifest["splits"] and name not in rates:
      rates[name] = wrong_parents(dataset.split(name), data, seed)
  return rates


def _describe_rates(entry: tuple[str, Mapping[str, float]]) -> str:
  split, rates = entry
  sides = [f"{side} {100 * rate:.2f} %" for side, rate in rates.items()]
  return f"wrong parents of {split}: {', '.join(sides)}"


def _training_length(config: Config, loader: DataLoader) -> str:
  """Describes the length of training in steps and epochs."""
  train, sampler = config.train, loader.batch_sampler
  epochs = train.steps / max(1, sampler.batches_per_epoch())
  end = (
    f"or {train.minutes:g} minutes"
    if train.minutes
    else "unless config.train.minutes or config.train.patience ends it"
  )
  return (
    f"{train.steps:,} steps: {epochs:,.1f} epochs of "
    f"{sampler.examples_per_epoch:,} examples, {end}"
  )


def _warmup_warning(config: Config) -> str:
  """Returns a warning if training ends during the warm-up; "" otherwise."""
  schedule = config.optimiser.schedule
  updates = config.train.steps // config.optimiser.accumulate
  if not isinstance(schedule, WarmedUp) or schedule.warmup < updates:
    return ""
  return (
    f"warning: the warm-up takes {schedule.warmup:,} updates and the run has "
    f"{updates:,}, so the learning rate does not pass its peak; lower "
    f"config.optimiser.{SCHEDULES.name_of(schedule)}.warmup for a short run"
  )


def _batch_sizes(loader: DataLoader) -> str:
  shapes = ", ".join(
    f"{s.rows} x {s.source} x {s.target}" for s in loader.batch_sampler.shapes
  )
  return f"training on batches of sentences x source x target: {shapes}"


def _check_workdir(folder: str | pathlib.Path) -> None:
  """Raises InputError if checkpoints cannot be written to a directory."""
  hub.refuse(folder, "--workdir")
  if os.fspath(folder).startswith("s3://"):
    raise InputError(
      f"--workdir {folder}: checkpoints cannot be written to s3://. Use gs://, or "
      "a local or shared folder, and copy the finished run to s3://."
    )
  if remote.is_remote(folder) and re.search(r"[*?[\]]", os.fspath(folder)):
    # Orbax would interpret it as a pattern, and write no arrays.
    raise InputError(
      f"--workdir {folder} contains one of *, ?, [ and ]. Choose a name without "
      "these characters."
    )


def unused_prepare_options(
  config: Config, manifest: Mapping[str, Any], overrides: Mapping[str, Any]
) -> str:
  """Returns a warning about preparation options without effect, or "".

  Args:
    config: Config of the run.
    manifest: Manifest of its dataset.
    overrides: Options on the command line, by dotted name.
  """
  prepared = flat({"prepare": manifest["options"]})
  requested = flat({"prepare": as_dict(config.prepare)})
  # As JSON, in which tuples and lists are the same.
  unused = [
    name
    for name in sorted(overrides)
    if name.startswith("prepare.")
    and json.dumps(prepared.get(name)) != json.dumps(requested.get(name))
  ]
  return " ".join(
    f"config.{name} has no effect here: {config.data.directory} was prepared "
    f"with {prepared.get(name)!r}. Prepare it again."
    for name in unused
  )


def _main(values: flags.FlagValues) -> None:
  if not values.workdir:
    raise InputError("--workdir is missing: name the run directory.")
  _check_workdir(values.workdir)
  exits.check_target(values.workdir, "--workdir", folder=True, store=True)
  logging.set_verbosity(logging.WARNING)  # Orbax logs every file it writes
  hosts.join(values)
  set_up_jax(values.workdir)
  config = with_defaults(read_config(values.config))
  manifest = manifests.read(config.data.directory)
  warning = unused_prepare_options(config, manifest, cli.overrides(values))
  if warning and jax.process_index() == 0:
    print(f"warning: {warning}", file=sys.stderr)
  check_trees([resolve(config, manifest)])
  with hosts.shutdown_together(values.heartbeat):
    end = run(config, values.workdir)
  if jax.process_index() == 0:
    _print_end(config, end)


def _print_end(config: Config, end: loop.TrainingEnd) -> None:
  progress = end.progress
  best = "no validation so far"
  if progress.best_step >= 0:
    best = (
      f"best validation {selection.title(config.train)} "
      f"{progress.best_score:.2f} at step {progress.best_step}"
    )
  was_signalled = end.reason.startswith("SIG")
  print(
    f"{'stopped' if was_signalled else 'finished'} at step {end.step} "
    f"({end.reason}); {best}; shapes: {end.shapes}, compilations of the step: "
    f"{end.compilations}."
  )
  if was_signalled:
    each = " each process" * (jax.process_count() > 1)
    command = f"{commands.again('train')} {shlex.join(sys.argv[1:])}"
    print(f"To resume{each}: {command}")


def define_flags() -> None:
  """Defines the flags of `jaxsyn train`."""
  cli.config_flag()
  flags.DEFINE_string("workdir", None, "Run directory, created if missing.")
  hosts.define_flags()


if __name__ == "__main__":
  define_flags()
  cli.main(_main)
