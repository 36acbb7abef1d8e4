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

import ml_collections
from absl import flags, logging

from jaxsyn import addresses, cli, commands, exits, train, variants
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
from jaxsyn.errors import InputError, did_you_mean
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
  check_trees([asked.check(system, folder) for system in systems])
  each = [{"CUDA_VISIBLE_DEVICES": device} for device in devices] or [{}]
  with lock.alone(folder):
    asked.begin(folder, systems)
    jobs = asked.jobs(folder, systems, range(seeds))
    board = progress.Board(folder)
    try:
      worked = Runner(jobs, _command, board, each * processes).work()
      if worked.signal:
        return Compared(worked.signal, None)
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


def _asked(
  values: flags.FlagValues,
) -> tuple[list[asked.System], results.Ablation | None]:
  """The systems of the command line, with all overrides, and their table."""
  address = cli.address_of(values)
  overrides = cli.overrides(values)
  if cli.names_system(address):
    raise InputError(
      f"--config {addresses.told(address)} names a system; --systems or --table do that here."
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
      own = _field(config, path)
      if own not in (_field(plain, path), value):
        raise InputError(
          f"--config.{path}={value}: {name} is {name} because it has "
          f"config.{path}={own!r}. Leave the option or the system out."
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
  systems = map(asked.System, names, map(read_config, configs))
  return list(systems), None


def _rows(
  values: flags.FlagValues, address: str, overrides: dict[str, Any]
) -> tuple[list[asked.System], results.Ablation]:
  """The rows of an ablation table on the data of a config, and the table."""
  file, name, table = _table(values)
  own = file.samefile(address.partition(":")[0])
  configs = []
  for row in table.rows:
    if both := sorted(set(row.overrides) & set(overrides)):
      raise InputError(
        f"--config.{both[0]} is what the table varies ({row.name} has "
        f"{row.overrides[both[0]]!r}). Leave the option or the table out."
      )
    # On its own paper's task a row has what that paper sets for its system.
    config = cli.load(f"{address}:{name}/{row.name}" if own else address)
    config.update_from_flattened_dict(overrides)
    configs.append(config if own else row.on(config))
  cli.check_chosen(configs, overrides)
  systems = [
    asked.System(row.name, read_config(config), dict(row.published or {}))
    for row, config in zip(table.rows, configs)
  ]
  return systems, results.Ablation(table.source, table.question)


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
    found = [f for place in places if (f := place / f"{paper}.py").is_file()]
    if not found:
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
    file = found[0]
  tables = getattr(cli.module_of(str(file)), "TABLES", {})
  if name not in tables:
    raise InputError(
      f"{addresses.told(str(file))} has no table {name!r}. {did_you_mean(name, tables)}"
    )
  return file, name, tables[name]


def _field(config: ml_collections.ConfigDict, path: str) -> Any:
  for name in path.split("."):
    config = config[name]
  return config


def _main(values: flags.FlagValues) -> None:
  if not values.workdir:
    raise InputError("--workdir is missing: name a folder for all runs.")
  exits.check_target(values.workdir, "--workdir", folder=True)
  if bool(values.systems) == bool(values.table):
    raise InputError("give --systems, or --table, and not both.")
  if values.variant and values.table:
    raise InputError("--variant goes with --systems, not with --table.")
  logging.set_verbosity(logging.WARNING)
  systems, ablation = _asked(values)
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
