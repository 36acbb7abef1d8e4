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

import dataclasses
import os
import pathlib
import statistics
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from absl import flags, logging
from ml_collections import ConfigDict

from jaxsyn import cli, compare, exits, variants
from jaxsyn.comparison import asked, progress, records
from jaxsyn.comparison.runner import Runner, watch_parent
from jaxsyn.config import read_config
from jaxsyn.errors import InputError, did_you_mean
from jaxsyn.options.flags import list_flag, number_flag
from jaxsyn.options import Range
from jaxsyn.preprocess import build
from jaxsyn.storage import files, lock
from jaxsyn.training.mesh import set_up_jax

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
      for name, option in TRIALS.items()
      for system in ("transformer", "neighbour_heads")
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
      f"data.tree.wrong_parents.rate={percent / 100}"
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

  def result_files(self, names: Iterable[str]) -> list[pathlib.Path]:
    """Collected result files of the named blocks."""
    folders = (self.results / name for name in names)
    return sorted(path for f in folders for path in f.glob("*.json"))


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
    InputError: block E0 is not complete.
  """
  sums = dict.fromkeys(TRIALS, 0.0)
  results = _complete("E0", experiment)
  for result in results:
    trial = next(t for t in TRIALS if result.system.endswith(f"_{t}"))
    sums[trial] += result.facts.best_score
  return max(sums, key=sums.__getitem__)


def best_system(candidates: Sequence[str], experiment: Experiment) -> str:
  """Returns the candidate with the best mean validation log-likelihood.

  Raises:
    InputError: blocks E1a and E1b are not complete.
  """
  results = [
    *_complete("E1a", experiment),
    *_complete("E1b", experiment),
  ]
  scores = {
    name: statistics.fmean(
      r.facts.best_score for r in results if r.system == name
    )
    for name in candidates
  }
  return max(scores, key=scores.__getitem__)


def run(names: Sequence[str], experiment: Experiment) -> str:
  """Trains what is missing of the named blocks and collects the results.

  Returns:
    Name of the signal that stopped it; "" if it came to its end.
  """
  for name in names:
    block = BLOCKS[name]
    try:
      systems = systems_of(name, experiment)
    except InputError as error:
      print(f"{name}: not started. {error}", flush=True)
      continue
    print(f"{name}: preparing the data", flush=True)
    prepare(block.corpus, experiment)
    folder = experiment.runs(name)
    for system in systems:
      asked.check(system, folder)
    with lock.alone(folder):
      asked.begin(folder, systems)
      jobs = asked.jobs(folder, systems, range(block.seeds))
      board = progress.Board(folder)
      cores = sorted(os.sched_getaffinity(0))
      places = [{_CORE: str(core)} for core in cores]
      try:
        worked = Runner(jobs, _command, board, places).work()
      finally:
        board.close()
        collect(name, jobs, experiment)
    if worked.signal:
      return worked.signal
  return ""


def child() -> None:
  """Trains one run in a process of its own: FOLDER SYSTEM SEED."""

  def work() -> None:
    watch_parent()
    logging.set_verbosity(logging.WARNING)
    os.sched_setaffinity(0, {int(os.environ[_CORE])})
    _lower_priority()
    set_up_jax()
    folder, system, seed = sys.argv[1:]
    compare.one(folder, system, int(seed))

  exits.guarded(work)


def _lower_priority() -> None:
  """Gives way to all other processes."""
  os.nice(19)
  # Where Linux schedules by session, nice values count within a session only.
  group = pathlib.Path("/proc/self/autogroup")
  if group.exists():
    group.write_text("19")


def _command(job: asked.Job) -> list[str]:
  return [
    *(sys.executable, "-c", _CHILD),
    *(str(job.folder), job.system.name, str(job.seed)),
  ]
