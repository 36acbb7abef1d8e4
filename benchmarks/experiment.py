"""Trains the runs of docs/experiment.md and collects their results.

  python -m benchmarks.experiment --workdir DIR --raw_dir DIR [--blocks E0,E1a]
  python -m benchmarks.experiment --workdir DIR --status

It prepares the data of a block, trains what is missing, two runs at a time with one
core each at the lowest priority, and copies the result file of each finished run to
--results/BLOCK. Stop it at any time: the same command continues. Choices that the
design leaves to validation data (the recipe, T, L) are made from the result files.

--status prints, for each block, the finished runs, their minutes, the update from
which validation is flat, and standard deviations between seeds. It prints no means,
so that an interim look cannot show which system leads.
"""

from __future__ import annotations

import ast
import collections
import dataclasses
import functools
import json
import os
import pathlib
import statistics
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from absl import flags

from jaxsyn import cli, compare, variants
from jaxsyn.comparison import asked, progress, run_result
from jaxsyn.comparison.results import Point
from jaxsyn.comparison.run_result import RunResult
from jaxsyn.comparison.runner import Runner
from jaxsyn.config import read_config
from jaxsyn.data.store import manifests
from jaxsyn.errors import InputError, did_you_mean
from jaxsyn.options.flags import list_flag
from jaxsyn.preprocess import build, quickstart
from jaxsyn.scoring.settings import Settings
from jaxsyn.scoring.tables import aligned
from jaxsyn.storage import files, lock

METRICS = ("chrf", "bleu", "log_likelihood")  # the first is primary

TRIALS = {
  "default": "optimiser.learning_rate=0.01",
  "half_rate": "optimiser.learning_rate=0.005",
  "double_rate": "optimiser.learning_rate=0.02",
  "dropout_30": "model.transformer.dropout=0.3",
}
WITHOUT_TREES = ("linear_bias", "relative", "rotary")  # candidates for L
WITH_TREES = (  # candidates for T
  "pascal",
  "deps_san",
  "neighbour_heads",
  "dependency_relative_both",
)
FLAT = 0.005  # relative change of the validation log-likelihood

_CORE = "JAXSYN_EXPERIMENT_CORE"
_CHILD = "from benchmarks import experiment; experiment.child()"


@dataclasses.dataclass(frozen=True)
class Corpus:
  """A dataset of the experiment.

  Attributes:
    config: name of a file in configs/.
    raw: folder of its text below --raw_dir; "" where a program writes the text.
    options: options of the preparation, without "config.".
  """

  config: str
  raw: str
  options: Mapping[str, Any] = dataclasses.field(default_factory=dict)


CORPORA = {
  "en_de_10k": Corpus(
    "multi30k_en_de",
    "multi30k",
    {
      "prepare.subset.pairs": 10_000,
      # Systems of block E7 read these.
      "prepare.parse.sides": ("source", "target"),
      "prepare.parse.annotations": ("upos", "feats", "lemma"),
    },
  ),
  "en_de": Corpus("multi30k_en_de", "multi30k"),
  "en_cs_10k": Corpus(
    "multi30k_en_cs", "multi30k", {"prepare.subset.pairs": 10_000}
  ),
  "en_hau": Corpus("mafand_en_hau", "mafand"),
  "en_ibo": Corpus("mafand_en_ibo", "mafand"),
  "generated": Corpus("quickstart", ""),
}


@dataclasses.dataclass(frozen=True)
class Block:
  """A block of the experiment on one dataset.

  Attributes:
    corpus: name in CORPORA. Blocks with the same corpus and number of updates
      share their runs.
    updates: of each run.
    seeds: runs of each system.
    systems: names of configs/systems.py, or "NAME=SYSTEM,OPTION=VALUE,..." as
      in `jaxsyn compare --variant`. {T} and {L} are the best systems with and
      without trees.
  """

  corpus: str
  updates: int
  seeds: int
  systems: tuple[str, ...]


_RANDOM_T = "{T}_random_tree={T},data.tree=random"
_NEWS = ("transformer", "{L}", "{T}", _RANDOM_T, "pascal")
BLOCKS = {
  "E0": Block(
    "en_de_10k",
    2400,
    1,
    tuple(
      f"{system}_{name}={system},{option}"
      for system in ("transformer", "neighbour_heads")
      for name, option in TRIALS.items()
    ),
  ),
  "E1a": Block(
    "en_de_10k",
    2400,
    8,
    (
      *("transformer", "linear_bias"),
      *("pascal", "pascal_random_tree"),
      *("deps_san", "deps_san_random_tree"),
      *("neighbour_heads", "neighbour_heads_random_tree"),
    ),
  ),
  "E1b": Block(
    "en_de_10k",
    2400,
    8,
    (
      *("relative", "rotary", "dependency_relative_both"),
      "dependency_relative_both_random_tree=dependency_relative_both,"
      "data.tree=random",
    ),
  ),
  "E5_hau": Block("en_hau", 2400, 8, _NEWS),
  "E5_ibo": Block("en_ibo", 2400, 8, _NEWS),
  "E3": Block("en_cs_10k", 2400, 5, ("transformer", "{L}", "{T}", _RANDOM_T)),
  "E4": Block(
    "en_de_10k",
    2400,
    5,
    tuple(
      f"{{T}}_wrong_{percent}={{T}},data.tree=wrong_parents,"
      f"data.wrong_parents.rate={percent / 100}"
      for percent in (10, 30, 60)
    ),
  ),
  "E2": Block(
    "en_de", 4000, 5, ("transformer", "{L}", "pascal", "{T}", _RANDOM_T)
  ),
  "E6": Block("generated", 4000, 5, ("transformer", "{T}", _RANDOM_T)),
  "E7": Block(
    "en_de_10k",
    2400,
    3,
    (
      *("pascal_ignoring", "label_embedding", "sisa", "dbsa", "sync_attention"),
      *("dependency_relative", "localness_query", "context_deep_global"),
      *("deps_san_rs", "gru_global", "gru_syntax", "gru_double_syntax"),
      *("tree_bias_edges", "graph_block", "factors"),
    ),
  ),
}


@dataclasses.dataclass(frozen=True)
class Experiment:
  """Folders of the experiment.

  Attributes:
    work: data and runs.
    results: result files, a folder for each block.
    raw: text and parsers; None where everything is prepared.
  """

  work: pathlib.Path
  results: pathlib.Path
  raw: pathlib.Path | None = None

  def runs(self, name: str) -> pathlib.Path:
    """Folder of the runs of a block."""
    block = BLOCKS[name]
    tuning = "_tuning" if name == "E0" else ""
    return self.work / "runs" / f"{block.corpus}_{block.updates}{tuning}"

  def read_results(self, name: str) -> list[RunResult]:
    """Reads the collected results of a block."""
    folder = self.results / name
    return run_result.read_all([folder]) if any(folder.glob("*.json")) else []


def prepare(corpus: str, experiment: Experiment) -> None:
  """Prepares a dataset unless it exists.

  Raises:
    InputError: it does not exist and the folder of raw files is not given.
  """
  directory = experiment.work / "data" / corpus
  if files.is_file(directory / manifests.FILE):
    return
  if experiment.raw is None:
    raise InputError(
      f"{directory} is not prepared. Give --raw_dir, a folder with multi30k/, "
      "mafand/ and udpipe/."
    )
  spec = CORPORA[corpus]
  raw = experiment.raw / spec.raw
  if not spec.raw:
    raw = experiment.work / "data" / f"{corpus}_raw"
    quickstart.run(raw)
  config = cli.load(spec.config)
  config.update_from_flattened_dict(spec.options)
  config.data.directory = str(directory)
  if spec.raw:
    parse = config.prepare.parse
    parsers = experiment.raw / "udpipe"
    parse.source.udpipe.model = str(parsers / "english.udpipe")
    if "target" in parse.sides:
      parse.target.udpipe.model = str(parsers / "german.udpipe")
  config.prepare.raw_dir = str(raw)
  build.run(config, str(raw))


def systems_of(name: str, experiment: Experiment) -> list[asked.System]:
  """Returns the systems of a block with their configs.

  Raises:
    InputError: the block depends on results that do not exist yet.
  """
  block = BLOCKS[name]
  spec = CORPORA[block.corpus]
  chosen: dict[str, Any] = {}
  if name != "E0" and spec.raw:  # the generated corpus keeps its own recipe
    option, _, value = TRIALS[best_trial(experiment)].partition("=")
    chosen[option] = ast.literal_eval(value)
  systems = []
  for text in block.systems:
    if "{" in text:
      text = text.format(
        T=best_system(WITH_TREES, experiment),
        L=best_system(WITHOUT_TREES, experiment),
      )
    variant = variants.read(text) if "=" in text else None
    system = variant.system if variant else text
    config = cli.load(f"{spec.config}:{system}")
    config.update_from_flattened_dict({**spec.options, **chosen})
    config.data.directory = str(experiment.work / "data" / block.corpus)
    config.train.update(
      steps=block.updates,
      selection="log_likelihood",
      evaluate_every=200,
      save_every=400,
      keep=1,
    )
    config.train.writers.update(tensorboard=False, samples=0)
    if variant:
      variant.on(config)
    label = variant.name if variant else text
    systems.append(asked.System(label, read_config(config)))
  return systems


def best_trial(experiment: Experiment) -> str:
  """Returns the trial of E0 with the best sum over both systems.

  Raises:
    InputError: Block E0 is not complete.
  """
  scores = _validation_scores("E0", experiment)
  return max(
    TRIALS,
    key=lambda trial: sum(
      score for system, score in scores.items() if system.endswith(f"_{trial}")
    ),
  )


def best_system(candidates: Sequence[str], experiment: Experiment) -> str:
  """Returns the candidate with the best mean validation log-likelihood.

  Raises:
    InputError: Block E1a or E1b is not complete.
  """
  scores = {
    **_validation_scores("E1a", experiment),
    **_validation_scores("E1b", experiment),
  }
  return max(candidates, key=scores.__getitem__)


def _validation_scores(name: str, experiment: Experiment) -> dict[str, float]:
  """Mean best validation log-likelihood of each system of a complete block."""
  block, results = BLOCKS[name], experiment.read_results(name)
  expected = len(block.systems) * block.seeds
  if len(results) < expected:
    raise InputError(
      f"It needs block {name}, which has {len(results)} of {expected} results."
    )
  by_system = collections.defaultdict(list)
  for result in results:
    by_system[result.system].append(result.facts.best_score)
  return {system: statistics.fmean(s) for system, s in by_system.items()}


def run(name: str, experiment: Experiment) -> str:
  """Trains what is missing of a block and collects the results.

  Returns:
    Name of the signal that stopped it; "" when the block is complete.

  Raises:
    InputError: The block depends on results that do not exist yet, its data
      cannot be prepared, or runs failed.
  """
  systems = systems_of(name, experiment)
  prepare(BLOCKS[name].corpus, experiment)
  systems = [asked.on_prepared(system) for system in systems]
  folder = experiment.runs(name)
  asked.check_all(systems, folder)
  language = systems[0].config.data.target_language
  settings = Settings(metrics=METRICS).settled(language)
  places = [{_CORE: str(core)} for core in sorted(os.sched_getaffinity(0))]
  results = experiment.results / name
  with lock.alone(folder):
    asked.begin(folder, systems)
    # A collected result counts, also where the folder of its run is gone.
    jobs = [
      job
      for job in asked.jobs(folder, systems, range(BLOCKS[name].seeds))
      if not _result_file(job, results).exists()
    ]
    command = functools.partial(_command, settings=settings)
    board = progress.Board(folder)
    try:
      worked = Runner(jobs, command, board, places).work()
    finally:
      board.close()
      results.mkdir(parents=True, exist_ok=True)
      for job in jobs:
        if job.finished:
          files.copy(job.result_file, _result_file(job, results))
  if worked.failed and not worked.signal:
    failed = ", ".join(job.name for job in worked.failed)
    raise InputError(f"these runs failed: {failed}. See {folder}/log.txt.")
  return worked.signal


def _result_file(job: asked.Job, folder: pathlib.Path) -> pathlib.Path:
  return folder / f"{job.system.name}.seed_{job.seed}.json"


def _command(job: asked.Job, settings: Settings) -> list[str]:
  return [
    *(sys.executable, "-c", _CHILD, str(job.folder), job.system.name),
    *(str(job.seed), json.dumps(dataclasses.asdict(settings))),
  ]


def child() -> None:
  """Trains one run in a process of its own: see `compare.child`."""
  os.sched_setaffinity(0, {int(os.environ[_CORE])})
  os.nice(19)
  # Where Linux schedules by session, nice values count within a session only.
  group = pathlib.Path("/proc/self/autogroup")
  if group.exists():
    group.write_text("19")
  compare.child()


def status(experiment: Experiment) -> str:
  """Returns a table of the blocks, with spreads between seeds but no means."""
  rows = [["block", "runs", "minutes a run", "validation flat from update"]]
  rows[0] += [f"sd {metric}" for metric in METRICS]
  for name, block in BLOCKS.items():
    results = experiment.read_results(name)
    row = [name, f"{len(results)}/{len(block.systems) * block.seeds}"]
    if results:
      row.append(f"{statistics.fmean(r.facts.minutes for r in results):.1f}")
      row.append(", ".join(sorted({flat_from(r.curve) for r in results})))
      row += [spread(results, metric) for metric in METRICS]
    rows.append(row + [""] * (len(rows[0]) - len(row)))
  return aligned(rows)


def spread(results: Sequence[RunResult], metric: str) -> str:
  """Standard deviation between seeds, pooled over the systems of a block.

  Args:
    results: Results of the block.
    metric: Name of the metric; its mean over the test sets counts.
  """
  by_system = collections.defaultdict(list)
  for result in results:
    values = (test.measured(metric).value for test in result.tests.values())
    by_system[result.system].append(statistics.fmean(values))
  variances = [
    statistics.variance(values)
    for values in by_system.values()
    if len(values) > 2
  ]
  return f"{statistics.fmean(variances) ** 0.5:.3f}" if variances else ""


def flat_from(curve: Sequence[Point]) -> str:
  """Update from which the best validation so far improves by less than FLAT.

  Returns:
    "-" where it still improves by more in the last quarter of the run.
  """
  key = "log_likelihood"
  best = max(point.values[key] for point in curve)
  enough = best - FLAT * abs(best)
  first = next(point for point in curve if point.values[key] >= enough)
  return str(first.step) if first.step <= 0.75 * curve[-1].step else "-"


def _main(values: flags.FlagValues) -> None:
  if not values.workdir:
    raise InputError("--workdir is missing: name a folder for data and runs.")
  experiment = Experiment(
    pathlib.Path(values.workdir),
    pathlib.Path(values.results),
    pathlib.Path(values.raw_dir) if values.raw_dir else None,
  )
  if values.status:
    print(status(experiment))
    return
  for name in values.blocks:
    if name not in BLOCKS:
      raise InputError(f"no block {name!r}. {did_you_mean(name, BLOCKS)}")
  for name in values.blocks:
    print(f"block {name}", flush=True)
    if signal := run(name, experiment):
      print(f"stopped ({signal}); the same command continues.")
      return
  print(status(experiment))


if __name__ == "__main__":
  flags.DEFINE_string("workdir", None, "Folder for prepared data and runs.")
  flags.DEFINE_string("results", "results", "Folder for the result files.")
  flags.DEFINE_string(
    "raw_dir", "", "Folder with multi30k/, mafand/ and udpipe/."
  )
  list_flag("blocks", list(BLOCKS), "Blocks to run, in this order.")
  flags.DEFINE_bool("status", False, "Print what is done, and run nothing.")
  cli.main(_main)
