"""Trains systems with several seeds on the same batches, and compares them.

jaxsyn compare --config multi30k_en_de \\
  --systems transformer,pascal,deps_san --seeds 3 --workdir runs/cmp

The first system is the baseline. Run k of every system has config.seed = k and so
the same batches in the same order. The same command goes on after an interruption,
adds --systems and --seeds to what is there, and otherwise writes the report again:
report.html, and the same as .json, .md and .tex, in --workdir. All the files:
`jaxsyn.comparison.asked`. Each run is tested against the baseline's run of the same
seed over sentences (--significance), and systems over seeds and sentences:
`jaxsyn.comparison.hierarchical`.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import pathlib
import shlex
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from absl import flags, logging

from jaxsyn import addresses, cli, commands, exits, named_systems, train
from jaxsyn.comparison import (
  analysis,
  asked,
  facts,
  looks,
  page,
  progress,
  report,
  results,
)
from jaxsyn.comparison.runner import Runner, watch_parent
from jaxsyn.config import Config, read_config
from jaxsyn.data.loader.examples import Examples
from jaxsyn.data.options import Data
from jaxsyn.data.sentence import text
from jaxsyn.data.store.prepared import PreparedSplit
from jaxsyn.errors import InputError
from jaxsyn.inspection.inspector import look
from jaxsyn.options import Range
from jaxsyn.options.flags import list_flag, number_flag
from jaxsyn.plan import check_trees
from jaxsyn.progress import Bar
from jaxsyn.scoring.settings import Settings, of_flags, settings_flags
from jaxsyn.session import Session
from jaxsyn.storage import files, lock
from jaxsyn.training.mesh import set_up_jax

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
  systems: Sequence[asked.System] | Mapping[str, Any],
  folder: str | pathlib.Path,
  seeds: int = 3,
  *,
  settings: Settings | None = None,
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
    origin: for the results, where the systems came from; None: from Python.
    processes: runs at a time on the same devices.
    devices: GPUs, as CUDA_VISIBLE_DEVICES names them: so many runs on each.

  Raises:
    InputError: what was given does not fit; the message says what to do.
  """
  if isinstance(systems, Mapping):
    systems = [asked.System(n, _checked(c)) for n, c in systems.items()]
  if not systems or seeds < 1 or processes < 1:
    raise InputError("give at least one system, one seed and one process.")
  # What would be found out after days of training is found out here.
  language = systems[0].config.data.target_language
  settings = (settings or Settings()).settled(language)
  folder = pathlib.Path(folder)
  systems = [asked.on_prepared(system) for system in systems]
  check_trees(asked.check_all(systems, folder))
  each = [{"CUDA_VISIBLE_DEVICES": device} for device in devices] or [{}]
  with lock.alone(folder):
    asked.begin(folder, systems)
    jobs = asked.jobs(folder, systems, range(seeds))
    board = progress.Board(folder)
    try:
      worked = Runner(jobs, _command, board, each * processes).work()
      if worked.signal:
        return Compared(worked.signal, None)
      if left_out := systems[0].manifest.get("left_out"):
        board.say(f"test splits without files: {', '.join(left_out)}")
      board.say("scoring")
      scores = analysis.analyse(
        jobs, worked.failed, settings, origin or results.Origin()
      )
      _write(folder, scores)
      if left_out := asked.others(folder, jobs):
        board.say(f"not in this report: {', '.join(left_out)}")
      board.say(f"wrote {folder / 'report.html'}, and .json, .md, .tex")
    finally:
      board.close()
  return Compared("", scores)


def one(folder: str | pathlib.Path, system: str, seed: int) -> None:
  """Trains and translates with one run of a comparison that was begun."""
  job = asked.job(pathlib.Path(folder), system, seed)
  # The process of a comparison that was killed may be saving still.
  with lock.alone(job.run, wait=True):
    if job.finished:
      return
    outcome = train.run(job.config, job.run)
    if outcome.reason.startswith("SIG"):
      print(f"stopped at step {outcome.step} ({outcome.reason})", flush=True)
      return
    session = Session(job.run)
    for split in job.config.data.test:
      if not job.hypotheses(split).is_file():
        _translate(session, split, job.hypotheses(split))
    if job.look:
      _look(session, job.config.data, job.look)
    job.finish(facts.of_run(job, outcome, session.params, session.notes))


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
  """`one` as a process of its own: FOLDER SYSTEM SEED."""

  def work() -> None:
    watch_parent()
    logging.set_verbosity(logging.WARNING)
    set_up_jax()
    folder, system, seed = sys.argv[1:]
    one(folder, system, int(seed))

  exits.guarded(work)


def _command(job: asked.Job) -> list[str]:
  return [
    *(sys.executable, "-c", _CHILD),
    *(str(job.folder), job.system.name, str(job.seed)),
  ]


def _translate(session: Session, split: str, path: pathlib.Path) -> None:
  """A test split as it was prepared: its own trees, or those of a control."""
  config = session.run.config
  records = PreparedSplit(config.data.directory, split)
  examples = iter(Examples(records, config.data, config.seed))
  together = BUFFER * len(session.devices)
  bar = Bar(
    f"translating {split}",
    total=len(records),
    unit="sentence",
    note=session.note,
  )
  with contextlib.closing(bar), text.writer(path) as write:
    while chunk := list(itertools.islice(examples, together)):
      for best in session.search(chunk, tell=bar.advance):
        write(best[0].text if best else "")


def _look(session: Session, data: Data, folder: pathlib.Path) -> None:
  """Pictures of a few sentences of the first test split."""
  sentences = looks.sample(data.directory, data.test[0])
  try:
    seen = look(session, sentences) if sentences else []
  except InputError as error:  # its scores are worth having without pictures
    print(f"no pictures: {error}", flush=True)
    seen = []
  looks.write(seen, folder)


def _checked(config: Any) -> Config:
  return config if isinstance(config, Config) else read_config(config)


def _main(values: flags.FlagValues) -> None:
  if not values.workdir:
    raise InputError("--workdir is missing: name a folder for all runs.")
  exits.check_target(values.workdir, "--workdir", folder=True)
  logging.set_verbosity(logging.WARNING)
  systems, ablation = named_systems.read(values)
  origin = results.Origin(
    addresses.told(cli.address_of(values)),
    tuple(f"{name}={value}" for name, value in cli.overrides(values).items()),
    ablation,
  )
  compared = run(
    systems,
    values.workdir,
    values.seeds,
    settings=of_flags(values),
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


def define_flags() -> None:
  """Those of the command."""
  cli.config_flag()
  named_systems.define_flags()
  number_flag(
    "seeds",
    3,
    Range(1, 1000),
    "Runs of each system, with config.seed = 0, 1, ... More may be added later.",
  )
  flags.DEFINE_string("workdir", None, "Folder of the comparison.")
  settings_flags(Settings(), without=["seed"])
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
  cli.main(_main, several=True)
