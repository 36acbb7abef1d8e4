"""Trains a translator; goes on where an interrupted run stopped.

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

from jaxsyn import cli, commands, exits
from jaxsyn.config import Config, as_dict, read_config, with_defaults
from jaxsyn.data.loader.collate import BatchTransform
from jaxsyn.data.loader.loader import DataLoader, open_loader
from jaxsyn.data.loader.transforms import wrong_parents
from jaxsyn.data.sentence.controls import WrongParents
from jaxsyn.data.store import manifests
from jaxsyn.data.store.dataset import Dataset, Split
from jaxsyn.errors import InputError, did_you_mean
from jaxsyn.options import flat
from jaxsyn.plan import check_parsed, check_trees, resolve
from jaxsyn.scoring import selection
from jaxsyn.session import teacher, warm_start, workdir
from jaxsyn.storage import checksums, files, hub, lock, remote
from jaxsyn.training import frozen, hosts, loop
from jaxsyn.training.checkpoint_writer import CheckpointWriter
from jaxsyn.training.log import Log
from jaxsyn.training.mesh import Layout
from jaxsyn.training.profile import Profile
from jaxsyn.training.runtime import enough_memory, set_up_jax
from jaxsyn.training.start import Training
from jaxsyn.training.step import check_maps, first_params
from jaxsyn.validation import Validator

_LESS_MEMORY = (
  "config.batch.tokens (with config.optimiser.accumulate raised as much, "
  "updates are as large), config.model.width, or the layers"
)


def run(
  config: Config | Mapping[str, Any],
  folder: str | pathlib.Path,
  batch_transform: BatchTransform | None = None,
) -> loop.TrainingEnd:
  """Trains, from the newest checkpoint in the folder if there is one.

  Args:
    config: of `get_config`, or checked by `jaxsyn.config.read_config`.
    folder: of the run; made if it does not exist.
    batch_transform: function on every host batch (NumPy), in training and
      validation, to add `source_weighting_BSS` for the part `given_weighting`,
      say. Rows and columns of padding are in it too.

  Returns:
    how it ended: the step, the reason, the best score.

  Raises:
    InputError: what was given does not fit; the message says what to do.
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
  batch_transform: BatchTransform | None,
) -> loop.TrainingEnd:
  """Trains as `run`, with a resolved config."""
  dataset = Dataset(config.data.directory)
  split = dataset.split(config.data.train)
  plan = resolve(config, dataset.manifest)
  teachers = teacher.read(plan, dataset.manifest)
  own_change = batch_transform
  for one in teachers:
    plan = dataclasses.replace(plan, features=plan.features | one.features)
    batch_transform = one.chain(batch_transform)
  unparsed = check_parsed(plan, dataset)
  hosts.check_joined()
  message = flat(as_dict(config), "config.") | flat(
    workdir.hashes(dataset.manifest), "data."
  )
  message.pop("config.data.directory")  # each may have a copy
  hosts.check_same("config", message)
  layout = Layout(config.train.parallelism, config.train.mesh)
  loader = open_loader(
    split,
    plan.features,
    data=config.data,
    batch=config.batch,
    seed=config.seed,
    shard=layout.host_shard,
    batch_transform=batch_transform,
  )
  attention_sampler = None
  if pictures := config.train.writers.pictures:
    # Only here: it loads what draws.
    from jaxsyn.inspection.attention_sampler import AttentionSampler

    attention_sampler = AttentionSampler(
      *(plan, dataset.manifest, config.data.validation, pictures),
      batch_transform=own_change,
    )
  validator = Validator(
    plan,
    layout,
    dataset.split(config.data.validation),
    batch_transform=batch_transform,
    split_transform=own_change,
    attention_logger=attention_sampler,
  )

  empty = loader.empty()[0]  # made here: a teacher cannot be asked in a trace
  check_maps(plan.recipe, empty)
  shapes = jax.eval_shape(
    lambda: first_params(plan.recipe, empty, jax.random.key(0))
  )
  layout.shardings(shapes)  # rejects sizes that cannot be split
  frozen_told = frozen.check(config.train.freeze, shapes)
  warm = warm_start.read(
    config.train.start, plan, config.data.directory, folder
  )
  profile = Profile(config.train.profile, folder)
  wrong_parent_rates = _wrong_parents(config, split)

  def open_log(start: int) -> Log:
    log = Log(files.path_of(folder), config, start)
    log.say(f"the best checkpoint is that of {selection.title(config.train)}")
    log.say(_length(config, loader))
    for warning in unparsed:
      log.say(f"warning: {warning}")
    messages = (*loader.messages, frozen_told, _no_test(config, dataset))
    messages += tuple(
      f"wrong parents of {name}: "
      + ", ".join(f"{side} {100 * rate:.2f} %" for side, rate in rates.items())
      for name, rates in wrong_parent_rates.items()
    )
    messages += tuple(one.message for one in teachers)
    for message in filter(None, (*messages, *(warm.messages if warm else ()))):
      log.say(message)
    return log

  # What can be refused was, before there is a folder. Of several processes that
  # train together the first one writes.
  with contextlib.ExitStack() as stack:

    def create() -> None:
      stack.enter_context(lock.exclusive_lock(folder))
      teacher.check_same(folder, teachers)
      workdir.create(folder, config)
      if wrong_parent_rates:
        files.write_json(
          files.path_of(folder) / workdir.WRONG_PARENTS,
          checksums.add_checksum(wrong_parent_rates),
        )
      teacher.write(folder, teachers)
      if warm:
        warm.write(folder)

    hosts.on_main_process(create)
    hosts.check_shared(folder)
    checkpoints = CheckpointWriter(folder, config.train.keep)
    try:
      with enough_memory(_sizes(loader), _LESS_MEMORY):
        end = loop.train(
          Training(
            config=config,
            recipe=plan.recipe,
            layout=layout,
            loader=loader,
            checkpoints=checkpoints,
            validate=validator,
            open_log=open_log,
            profile=profile,
            begin=warm,
          )
        )
      checkpoints.wait_for_all()  # none leaves one alone that still saves
      return end
    finally:
      checkpoints.close()


def _wrong_parents(config: Config, split: Split) -> dict[str, dict[str, float]]:
  """Returns the share of words with a wrong parent, by split and side.

  Of the splits that are trained on, validated on and tested on; empty unless
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


def _length(config: Config, loader: DataLoader) -> str:
  """How often the run sees its examples: few pairs may be seen for hours."""
  train, pairs = config.train, loader.examples_per_epoch
  often = train.steps / max(1, loader.batch_sampler.batches_per_epoch())
  end = (
    f"or {train.minutes:g} minutes"
    if train.minutes
    else "unless config.train.minutes or config.train.patience ends it"
  )
  return f"{train.steps:,} steps, {often:,.1f} times {pairs:,} examples, {end}"


def _no_test(config: Config, dataset: Dataset) -> str:
  """Which splits to report on were not prepared; "" where all were."""
  prepared, folder = dataset.manifest["splits"], config.data.directory
  left_out = dataset.manifest.get("left_out", {})
  untested = [name for name in prepared if name not in config.data.test]
  messages = []
  for name in config.data.test:
    if name in left_out:
      messages.append(
        f"config.data.test names {name}, which was left out when {folder} was"
        f" prepared: {left_out[name]}."
      )
    elif name not in prepared:
      messages.append(
        f"config.data.test names {name}, which {folder} has not: nothing can be"
        f" compared on it. {did_you_mean(name, untested)}"
      )
  return " ".join(messages)


def prepared_otherwise(config: Config, options: Mapping[str, Any]) -> str:
  """Which options of preparing were given too late; "" for none.

  Args:
    config: of the run.
    options: what followed --config, by dotted name.
  """
  prepare_options = {name for name in options if name.startswith("prepare.")}
  if not prepare_options:
    return ""
  manifest = manifests.read(config.data.directory)
  was = flat({"prepare": manifest["options"]})
  now = flat({"prepare": as_dict(config.prepare)})
  return " ".join(
    f"config.{name} does nothing here: {config.data.directory} was prepared with "
    f"{was.get(name)!r}. Prepare it again."
    for name in sorted(prepare_options)
    if json.dumps(was.get(name)) != json.dumps(now.get(name))
  )


def _sizes(loader: DataLoader) -> str:
  """The batches of the run in words, for who has too little memory."""
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
    # Orbax would take it for a pattern, and write checkpoints without arrays.
    raise InputError(
      f"--workdir {folder} contains one of *, ?, [ and ]. Choose a name without "
      "these characters."
    )


def _main(values: flags.FlagValues) -> None:
  if not values.workdir:
    raise InputError("--workdir is missing: name the folder of the run.")
  _check_workdir(values.workdir)
  exits.check_target(values.workdir, "--workdir", folder=True, store=True)
  logging.set_verbosity(logging.WARNING)  # Orbax tells every file it writes
  hosts.join(values)
  set_up_jax(values.workdir)
  config = with_defaults(read_config(values.config))
  message = prepared_otherwise(config, cli.overrides(values))
  if message and jax.process_index() == 0:
    print(f"warning: {message}", file=sys.stderr)
  manifest = manifests.read(config.data.directory)
  check_trees([resolve(config, manifest)])
  with hosts.shutdown_together(values.heartbeat):
    outcome = run(config, values.workdir)
  if jax.process_index():
    return
  best = outcome.progress
  was_signalled = outcome.reason.startswith("SIG")
  selected = "no validation so far"
  if best.best_step >= 0:
    selected = (
      f"best validation {selection.title(config.train)} "
      f"{best.best_score:.2f} at step {best.best_step}"
    )
  print(
    f"{'stopped' if was_signalled else 'finished'} at step {outcome.step} "
    f"({outcome.reason}); {selected}; shapes: {outcome.shapes}, compilations of "
    f"the step: {outcome.compilations}."
  )
  if was_signalled:
    remark = ", and so each of the others" * (jax.process_count() > 1)
    words = shlex.join(sys.argv[1:])
    print(f"To go on{remark}: {commands.again('train')} {words}")


def define_flags() -> None:
  """Those of the command."""
  cli.config_flag()
  flags.DEFINE_string("workdir", None, "Folder of the run, made if absent.")
  hosts.define_flags()


if __name__ == "__main__":
  define_flags()
  cli.main(_main)
