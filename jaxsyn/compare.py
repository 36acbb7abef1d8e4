"""Trains systems with several seeds on the same batches, and compares them.

jaxsyn compare --config multi30k_en_de \\
  --systems transformer,pascal,deps_san --seeds 3 --workdir runs/cmp

Without data and checkpoints, from the files result.json of finished runs alone:

jaxsyn compare --results runs/cmp results/other --workdir report

The first system is the baseline. Run k of every system has config.seed = k and so
the same batches in the same order. The same command goes on after an interruption,
adds --systems and --seeds to what is there, and otherwise writes the report again:
report.html, and the same as .json, .md and .tex, in --workdir. All the files:
`jaxsyn.comparison.planned_jobs`. Each run is tested against the baseline's run
of the same seed over sentences (--significance), and systems over seeds and
sentences: `jaxsyn.comparison.hierarchical`.
"""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import functools
import itertools
import json
import pathlib
import shlex
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from absl import flags, logging

import jaxsyn
from jaxsyn import addresses, cli, commands, exits, named_systems, train
from jaxsyn.comparison import (
  analysis,
  attention_samples,
  examples,
  facts,
  measure,
  page,
  planned_jobs,
  progress,
  report,
  results,
  run_result,
)
from jaxsyn.comparison.inference import (
  POOLED,
  SEPARATE,
  Inference,
  check_family,
  read_family,
  read_margins,
)
from jaxsyn.comparison.runner import JobRunner, watch_parent
from jaxsyn.config import Config, as_dict, read_config
from jaxsyn.data.loader.transforms import iterate_translations
from jaxsyn.data.options import Data
from jaxsyn.data.sentence import text
from jaxsyn.data.store import manifests
from jaxsyn.data.store.dataset import Dataset
from jaxsyn.errors import InputError, did_you_mean
from jaxsyn.inspection.inspector import attention_of
from jaxsyn.options import CHECKPOINT_MODE, ConfigPath, Range, from_config
from jaxsyn.options.flags import list_flag, number_flag
from jaxsyn.plan import check_parsed, check_trees
from jaxsyn.progress import Bar
from jaxsyn.scoring.metrics import of_likelihoods
from jaxsyn.scoring.scorers import Measured
from jaxsyn.scoring.settings import Settings, of_flags, settings_flags
from jaxsyn.session import Session
from jaxsyn.storage import files, lock
from jaxsyn.training.runtime import set_up_jax

BASELINE = "transformer"
BUFFER = 1000  # sentences for each device, sorted by length together
_CHILD = "from jaxsyn import compare; compare.child()"


@dataclasses.dataclass(frozen=True)
class Compared:
  """What came of a comparison.

  Attributes:
    signal: name of the signal that stopped it; "" for its own end.
    results: of all runs that finished; None where it was stopped.
  """

  signal: str
  results: results.Comparison | None


def run(
  systems: Sequence[planned_jobs.System] | Mapping[str, Any],
  folder: str | pathlib.Path,
  seeds: int = 3,
  *,
  settings: Settings | None = None,
  inference: Inference | None = None,
  origin: results.Origin | None = None,
  processes: int = 1,
  devices: Sequence[str] = (),
) -> Compared:
  """Trains what is not trained, translates, scores, writes the tables.

  Args:
    systems: name -> config, of `get_config` or checked; the first is the
      baseline. Or the same with what papers published.
    folder: of the comparison; made if it is not there.
    seeds: how many of each system, from 0.
    settings: how to score; None: BLEU and chrF.
    inference: Family of tests, error variance, margins; None: defaults.
    origin: for the results, where the systems came from; None: from Python.
    processes: runs at a time on the same devices.
    devices: GPUs, as CUDA_VISIBLE_DEVICES names them: so many runs on each.

  Raises:
    InputError: what was given does not fit; the message says what to do.
  """
  if isinstance(systems, Mapping):
    systems = [planned_jobs.System(n, _checked(c)) for n, c in systems.items()]
  if not systems or seeds < 1 or processes < 1:
    raise InputError("give at least one system, one seed and one process.")
  # What would be found out after days of training is found out here.
  inference = inference or Inference()
  check_family(inference.family, [system.name for system in systems])
  language = systems[0].config.data.target_language
  settings = (settings or Settings()).with_defaults(language)
  folder = pathlib.Path(folder)
  systems = [planned_jobs.on_prepared(system) for system in systems]
  plans = planned_jobs.check_all(systems, folder)
  check_trees(plans)
  unparsed = list[str]()
  for plan in plans:
    unparsed += check_parsed(plan, Dataset(plan.config.data.directory))
  each = [{"CUDA_VISIBLE_DEVICES": device} for device in devices] or [{}]
  directories = set[str]()
  for system in systems:
    data = system.config.data
    directories.update((data.directory, *data.mixture.folders))
  with lock.exclusive_lock(folder), manifests.in_use(sorted(directories)):
    planned_jobs.start_experiment(folder, systems, origin)
    jobs = planned_jobs.jobs(folder, systems, range(seeds))
    board = progress.Board(folder)
    try:
      for warning in unparsed:
        board.say(f"warning: {warning}")
      command = functools.partial(_command, settings=settings)
      worked = JobRunner(jobs, command, board, each * processes).work()
      if worked.signal:
        return Compared(worked.signal, None)
      if left_out := systems[0].manifest.get("left_out"):
        board.say(f"test splits without files: {', '.join(left_out)}")
      board.say("scoring")
      scores = _analyse(jobs, worked.failed, settings, inference)
      _write(folder, scores)
      if left_out := planned_jobs.other_jobs(folder, jobs):
        board.say(f"not in this report: {', '.join(left_out)}")
      board.say(f"wrote {folder / 'report.html'}, and .json, .md, .tex")
    finally:
      board.close()
  return Compared("", scores)


def one(
  folder: str | pathlib.Path, system: str, seed: int, settings: Settings
) -> None:
  """Trains and translates with one run of a comparison that was begun.

  Args:
    folder: Folder of the comparison.
    system, seed: Name and seed of the run.
    settings: How to score, with the tokenizer named.
  """
  job = planned_jobs.job(pathlib.Path(folder), system, seed)
  # The process of a comparison that was killed may be saving still.
  with lock.exclusive_lock(job.run, wait=True):
    if job.finished:
      return
    # Before the training, which may take days: the code is loaded by now.
    commit = facts.record_commit(job.run)
    outcome = train.run(job.config, job.run)
    if outcome.reason.startswith("SIG"):
      print(f"stopped at step {outcome.step} ({outcome.reason})", flush=True)
      return
    session = Session(job.run)
    likelihoods = {}
    for split in job.config.data.test:
      # Also if the file exists: only a finished run has its checksum.
      _translate(session, split, job.hypotheses(split))
      likelihoods[split] = _likelihoods(session, split)
    if job.attention_folder:
      _sample_attention(session, job.config.data, job.attention_folder)
    measurer = measure.Measurer(measure.without_sources(settings))
    result = run_result.RunResult(
      format=run_result.FORMAT,
      version=jaxsyn.__version__,
      commit=commit,
      finished=datetime.datetime.now(datetime.UTC).isoformat(
        timespec="seconds"
      ),
      system=system,
      seed=seed,
      config=as_dict(job.config),
      published=dict(job.system.published),
      origin=planned_jobs.read_origin(job.folder),
      data=facts.dataset(job),
      facts=facts.of_run(job, outcome, session.params, session.notes),
      curve=facts.curve(job),
      tests=measurer(job, likelihoods),
      files=job.output_sums(),
    )
    run_result.write(job.result_file, result)


def _analyse(
  jobs: Sequence[planned_jobs.TrainingJob],
  failed: Mapping[planned_jobs.TrainingJob, str],
  settings: Settings,
  inference: Inference,
) -> results.Comparison:
  """The comparison of all runs that finished, with examples."""
  measurer = measure.Measurer(settings)
  runs = {job: measurer.completed(job) for job in jobs if job.finished}
  comparison = analysis.of_runs(
    list(runs.values()),
    settings,
    list(dict.fromkeys(job.system.name for job in jobs)),
    planned_jobs.failures(failed),
    inference=inference,
  )
  return examples.add(comparison, runs, settings.metrics)


def report_on(
  paths: Sequence[str | pathlib.Path],
  folder: str | pathlib.Path,
  systems: Sequence[str] = (),
  *,
  settings: Settings | None = None,
  inference: Inference | None = None,
) -> results.Comparison:
  """Writes the report of results alone, without data and checkpoints.

  Args:
    paths: Files result.json, or folders that are searched for them.
    folder: Folder of the report.
    systems: Systems to compare, the baseline first; none: all, with
      `transformer` as the baseline.
    settings: Metrics and tests. The tokenizer and the case are those of the
      results.
    inference: Family of tests, error variance, margins; None: defaults.

  Raises:
    InputError: A result is missing, corrupt, or differs from the others in test
      sets, signatures or config.
  """
  runs = run_result.read_all([pathlib.Path(path) for path in paths])
  names = list(dict.fromkeys(run.system for run in runs))
  if not systems and BASELINE not in names:
    raise InputError(
      f"no result of {BASELINE}. Name the baseline first in --systems; the "
      f"results have {', '.join(names)}."
    )
  for name in systems:
    if name not in names:
      raise InputError(f"no result of {name!r}. {did_you_mean(name, names)}")
  chosen = systems or [BASELINE, *(n for n in names if n != BASELINE)]
  comparison = analysis.of_runs(
    *(runs, settings or Settings(), chosen),
    inference=inference or Inference(),
  )
  folder = pathlib.Path(folder)
  folder.mkdir(parents=True, exist_ok=True)
  _write(folder, comparison)
  return comparison


def _write(folder: pathlib.Path, scores: results.Comparison) -> None:
  """All files of the report, each of which ends with its last line."""
  for name, content in (
    (results.FILE, results.to_json(scores)),
    ("report.html", page.html(scores, folder)),
    ("report.md", report.markdown(scores)),
    ("report.tex", report.latex(scores)),
  ):
    files.write_text(folder / name, content.rstrip("\n") + "\n")


def child() -> None:
  """Runs `one` in a process: FOLDER SYSTEM SEED SETTINGS (as JSON)."""

  def work() -> None:
    watch_parent()
    logging.set_verbosity(logging.WARNING)
    set_up_jax()
    folder, system, seed, scoring = sys.argv[1:]
    settings = from_config(
      Settings, json.loads(scoring), ConfigPath("settings"), CHECKPOINT_MODE
    )
    one(folder, system, int(seed), settings)

  exits.guarded(work)


def _command(job: planned_jobs.TrainingJob, settings: Settings) -> list[str]:
  scoring = json.dumps(dataclasses.asdict(settings))
  return [
    *(sys.executable, "-c", _CHILD),
    *(str(job.folder), job.system.name, str(job.seed), scoring),
  ]


def _translate(session: Session, split: str, path: pathlib.Path) -> None:
  """A test split as it was prepared: its own trees, or those of a control."""
  config = session.run.config
  records = Dataset(config.data.directory).split(split)
  examples = iterate_translations(records, config.data, config.seed)
  group_size = BUFFER * len(session.devices)
  bar = Bar(
    f"translating {split}",
    total=len(records),
    unit="sentence",
    note=session.note,
  )
  with contextlib.closing(bar), text.writer(path) as write:
    while chunk := list(itertools.islice(examples, group_size)):
      for best in session.search(chunk, on_progress=bar.advance):
        write(best[0].text if best else "")


def _likelihoods(session: Session, split: str) -> Measured:
  """Log-likelihoods of the references, read with the trees of the run."""
  config = session.run.config
  records = Dataset(config.data.directory).split(split)
  examples = list(iterate_translations(records, config.data, config.seed))
  # Without EOS, which is added.
  targets = [example["target_id"][:-1].tolist() for example in examples]
  bar = Bar(
    f"scoring references of {split}", total=len(examples), unit="sentence"
  )
  with contextlib.closing(bar):
    log_p = session.force_examples(examples, targets, bar.advance)
  sum_B = np.array([one.sum(dtype=np.float64) for one in log_p])
  # Half the bytes in the result; the error is below 1e-7 of a sum.
  sum_B = sum_B.astype(np.float32).astype(np.float64)
  return of_likelihoods(sum_B, np.array([len(one) for one in log_p], float))


def _sample_attention(
  session: Session, data: Data, folder: pathlib.Path
) -> None:
  """Pictures of a few sentences of the first test split."""
  sentences = attention_samples.sample(data.directory, data.test[0])
  try:
    seen = attention_of(session, sentences) if sentences else []
  except InputError as error:  # its scores are worth having without pictures
    print(f"no pictures: {error}", flush=True)
    seen = []
  attention_samples.write(seen, folder)


def _checked(config: Any) -> Config:
  return config if isinstance(config, Config) else read_config(config)


def _main(values: flags.FlagValues) -> None:
  if not values.workdir:
    raise InputError("--workdir is missing: name a folder for all runs.")
  exits.check_target(values.workdir, "--workdir", folder=True)
  if values.results:
    _report_on(values)
    return
  logging.set_verbosity(logging.WARNING)
  systems, ablation = named_systems.read(values)
  origin = results.Origin(
    addresses.displayed(cli.address_of(values)),
    tuple(f"{name}={value}" for name, value in cli.overrides(values).items()),
    ablation,
  )
  compared = run(
    systems,
    values.workdir,
    values.seeds,
    settings=of_flags(values),
    inference=_inference(values),
    origin=origin,
    processes=values.processes,
    devices=values.devices,
  )
  if compared.results is None:
    words = shlex.join(sys.argv[1:])
    print(f"stopped ({compared.signal}). What is trained is kept.")
    print(f"To go on: {commands.again('compare')} {words}")
    return
  print(report.as_text(compared.results))
  if failed := compared.results.failed:
    raise InputError(
      f"{len(failed)} runs did not come to their end: "
      + "; ".join(f"{f.system} seed {f.seed} ({f.message})" for f in failed)
      + ". The tables are of the others; the same command tries them again."
    )


def _inference(values: flags.FlagValues) -> Inference:
  return Inference(
    family=read_family(values.family),
    variance=values.variance,
    margins=read_margins(values.margin, values.metrics),
  )


def _report_on(values: flags.FlagValues) -> None:
  """The command with --results."""
  for name in ("config", "tokenizer", "lowercase"):
    if values[name].present:
      raise InputError(
        f"--{name} does nothing with --results, which have been trained and "
        "measured. Leave one out."
      )
  comparison = report_on(
    values.results,
    values.workdir,
    named_systems.split(values.systems),
    settings=of_flags(values),
    inference=_inference(values),
  )
  print(report.as_text(comparison))
  print(f"wrote {values.workdir}/report.html, and .json, .md, .tex")


def define_flags() -> None:
  """Those of the command."""
  cli.config_flag()
  list_flag(
    "results",
    [],
    "Results of finished runs instead of --config: files result.json, or "
    "folders that are searched for them. Nothing is trained; the report in "
    "--workdir is computed from these files alone. Several follow each other: "
    "--results runs/a runs/b. The baseline is the first of --systems, or "
    "transformer.",
  )
  named_systems.define_flags()
  number_flag(
    "seeds",
    3,
    Range(1, 1000),
    "Runs of each system, with config.seed = 0, 1, ... More may be added later.",
  )
  flags.DEFINE_string("workdir", None, "Folder of the comparison.")
  settings_flags(Settings(), without=["seed"])
  list_flag(
    "family",
    [],
    "Pairs of systems whose tests are Holm-corrected together, as in "
    "pascal:transformer,pascal:pascal_random_tree, under the first metric on the "
    "mean of the test sets. Unless given: each system with the baseline and "
    "with its controls.",
  )
  flags.DEFINE_enum(
    "variance",
    Inference.variance,
    [POOLED, SEPARATE],
    "Variance between seeds: from one linear model of all systems, which needs "
    "fewer seeds and assumes that all systems vary equally; or estimated for "
    "each pair of systems.",
  )
  list_flag(
    "margin",
    [],
    "Margin of equivalence in points: of the first metric, or by metric, as in "
    "bleu=0.5,chrf=0.5. Systems are called equivalent where two one-sided tests "
    "find their difference within it. Unless given, equivalence is not tested.",
  )
  number_flag(
    "processes",
    1,
    Range(1, 1000),
    "Runs at a time on the same devices; more than 1 where one leaves them "
    "idle.",
  )
  list_flag(
    "devices",
    [],
    "GPUs by number, as in 0,1,2,3: --processes runs at a time on each.",
  )


if __name__ == "__main__":
  define_flags()
  cli.main(_main, multiple=True, word="results")
