"""The real command on the small corpus: processes, kills, resumes."""

import base64
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import time

import pytest

from jaxsyn import cli, compare
from jaxsyn.comparison import planned_jobs, results, run_result
from jaxsyn.comparison.inference import Inference
from jaxsyn.config import read_config
from jaxsyn.configs import quickstart
from jaxsyn.data.loader.transforms import iterate_translations
from jaxsyn.data.store.dataset import Dataset
from jaxsyn.errors import InputError
from jaxsyn.scoring.settings import Settings
from jaxsyn.session import Session
from jaxsyn.session import workdir as run_folders
from jaxsyn.storage import lock

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
SIZES = {
  "model.transformer.encoder_layers": 1,
  "model.transformer.decoder_layers": 1,
  "model.width": 32,
  "model.transformer.feed_forward": 32,
  "batch.tokens": 1024,
  "batch.shapes": 1,
  "decode.beam": 2,
  "decode.max_length_factor": 0.0,  # few programs
  "decode.max_length_offset": 15,
  "train.minutes": 0.0,
  "train.steps": 60,
  "train.evaluate_every": 30,
  "train.validation_sentences": 1,
  "train.save_every": 10,
  "train.log_every": 10,
}


@pytest.fixture(scope="module")
def command(prepared):
  def make(workdir, *more):
    return [
      *(sys.executable, "-m", "jaxsyn.compare", "--samples", "40"),
      *("--config", "configs/quickstart.py", "--workdir", str(workdir)),
      f"--config.data.directory={prepared}",
      *(f"--config.{name}={value}" for name, value in SIZES.items()),
      *more,
    ]

  return make


@pytest.fixture(scope="module")
def straight(command, environment, tmp_path_factory):
  """Two systems, two seeds, and nothing that disturbs.

  They differ in their trees alone, so that both are one program to compile.
  """
  workdir = tmp_path_factory.mktemp("compared") / "straight"
  done = subprocess.run(
    command(
      workdir,
      "--systems=pascal,pascal_random_tree",
      "--seeds=2",
      "--processes=2",
    ),
    env=environment,
    cwd=ROOT,
    capture_output=True,
    text=True,
  )
  assert done.returncode == 0, done.stderr
  return workdir, done.stdout


@pytest.fixture
def configs_of(prepared):
  """A function system, overrides -> the config of those runs."""

  def make(system, **changes):
    config = quickstart.get_config(system)
    config.data.directory = str(prepared)
    config.update_from_flattened_dict(SIZES | changes)
    return config

  return make


def read(workdir):
  return results.from_json((workdir / results.FILE).read_text())


def without_times(content):
  """report.json without times, and the commit, which may change meanwhile."""
  if isinstance(content, list):
    return [without_times(one) for one in content]
  if not isinstance(content, dict):
    return content
  times = ("made", "minutes", "tokens_per_s", "commit")
  return {k: without_times(v) for k, v in content.items() if k not in times}


def wait_for(condition, process, timeout=180):
  deadline = time.monotonic() + timeout
  while not condition():
    assert process.poll() is None, process.communicate()
    assert time.monotonic() < deadline, "the condition never came"
    time.sleep(0.005)


def test_results_contain_scores_and_facts(straight, prepared):
  result = read(straight[0])
  assert [(r.system, r.seed) for r in result.runs] == [
    *(
      ("pascal", 0),
      ("pascal_random_tree", 0),
      ("pascal", 1),
      ("pascal_random_tree", 1),
    )
  ]
  manifest = json.loads((prepared / "manifest.json").read_text())
  (split,) = result.splits
  assert split.sentences == manifest["splits"]["test"]["examples"]
  for run in result.runs:
    path = straight[0] / run.folder / "test" / "test.txt"
    lines = path.read_text().splitlines()
    assert len(lines) == split.sentences
    assert [point.step for point in run.curve] == [30, 60]
    assert run.curve[1].minutes <= run.facts.minutes
    assert {s.metric for s in run.scores["test"]} == {"BLEU", "chrF"}
    assert run.facts.parameters > 10_000 and run.facts.tokens_per_s > 0
    assert "jax" in run.facts.machine.packages
  for system in result.systems:
    expected = manifest["splits"]["test"]["records_sha256"]
    assert system.data.hashes["records"]["test"] == expected
    assert system.config["train"]["steps"] == 60
  # A summary is of the runs' own scores, a difference of both systems'.
  values = {(r.system, r.seed): r.scores["test"][0].value for r in result.runs}
  for summary in split.scores:
    if summary.metric == "BLEU":
      single = (values[summary.system, 0], values[summary.system, 1])
      assert summary.values == single
      assert summary.mean == pytest.approx(sum(single) / 2)
  over = next(d for d in split.over_seeds if d.metric == "BLEU")
  assert over.by_seed == pytest.approx(
    [values["pascal_random_tree", k] - values["pascal", k] for k in (0, 1)]
  )
  assert over.low <= over.value <= over.high and 0 < over.p <= 1
  assert [one.seed for one in split.over_sentences] == [0, 0, 1, 1]
  for by in {bucket.by for bucket in split.buckets}:
    counts = [b.count for b in split.buckets if b.by == by]
    assert sum(counts) == split.sentences
  assert {"tree depth", "clauses"} <= {b.by for b in split.buckets}


def test_systems_of_one_seed_see_the_same_batches(straight):
  """Padding and tokens tell the batches of the steps between two lines."""

  def batches(system, seed):
    log = straight[0] / system / f"seed_{seed}" / "log.jsonl"
    records = [json.loads(line) for line in log.read_text().splitlines()]
    return [(r["step"], r["padding"]) for r in records if r["kind"] == "train"]

  for seed in (0, 1):
    assert batches("pascal", seed) == batches("pascal_random_tree", seed)
  assert batches("pascal_random_tree", 0) != batches("pascal_random_tree", 1)
  tokens = {(r.system, r.seed): r.facts.tokens for r in read(straight[0]).runs}
  assert tokens["pascal", 0] == tokens["pascal_random_tree", 0]


def test_tables_contain_the_scores(straight):
  result, output = read(straight[0]), straight[1]
  for summary in result.splits[0].scores:
    cell = f"{summary.mean:.2f} ± {summary.sd:.2f}"
    assert cell in (straight[0] / "report.md").read_text()
    assert cell in output
  assert r"\toprule" in (straight[0] / "report.tex").read_text()


def looked_at(workdir):
  """The files of what the first seeds looked at: name -> content."""
  return {
    str(path.relative_to(workdir)): path.read_bytes()
    for path in sorted(workdir.glob("*/seed_*/look/*"))
  }


def test_first_seeds_have_attention_samples(straight):
  result = looked_at(straight[0])
  kinds = ("json", "tree.svg", "attention.svg")
  expected = {f"pascal/seed_0/look/{n}.{k}" for n in (1, 2, 3) for k in kinds}
  expected |= {
    f"pascal_random_tree/seed_0/look/{n}.{k}"
    for n in (1, 2, 3)
    for k in (*kinds, "tree_read.svg")
  }
  assert set(result) == expected
  content = (straight[0] / "report.html").read_text()
  for name, file in result.items():
    if name.endswith(("attention.svg", "tree_read.svg")):
      assert base64.b64encode(file).decode() in content, name


def test_resumes_a_comparison_after_a_kill_and_a_stop(
  straight, command, environment, tmp_path
):
  workdir = tmp_path / "killed"

  def start(*more):
    return subprocess.Popen(
      command(workdir, *more),
      env=environment,
      cwd=ROOT,
      stdout=subprocess.PIPE,
      stderr=subprocess.PIPE,
      text=True,
    )

  def saved(system, seed):
    return (workdir / system / f"seed_{seed}" / "checkpoints" / "10").is_dir

  # All but one run are finished; its training is killed, then stopped.
  shutil.copytree(straight[0], workdir)
  shutil.rmtree(workdir / "pascal_random_tree" / "seed_1")
  # A run that is trained, and was killed before it had drawn.
  shutil.rmtree(workdir / "pascal" / "seed_0" / "look")
  # Its translations, whose checksum is not stored yet, are made again.
  lines = workdir / "pascal" / "seed_0" / "test" / "test.txt"
  lines.write_text(lines.read_text().swapcase())
  (workdir / results.FILE).unlink()
  both = ("--systems=pascal,pascal_random_tree", "--seeds=2")
  process = start(*both)
  wait_for(saved("pascal_random_tree", 1), process)
  message = f"in use by process {process.pid}"
  with pytest.raises(InputError, match=message), lock.exclusive_lock(workdir):
    pass
  run = workdir / "pascal_random_tree" / "seed_1"
  child = int((run / lock.FILE).read_text().split()[1])  # "process 17 on ..."
  os.kill(child, signal.SIGKILL)
  again = "pascal_random_tree seed 1: goes on from"
  wait_for(lambda: again in (workdir / "log.txt").read_text(), process)
  process.send_signal(signal.SIGINT)
  output, error = process.communicate(timeout=120)
  assert process.returncode == 0, error
  assert "stopped (SIGINT)" in output
  assert "To go on: python -m jaxsyn.compare --samples 40" in output
  assert not (workdir / results.FILE).exists()
  process = start(*both)
  _, error = process.communicate(timeout=300)
  assert process.returncode == 0, error
  log = (workdir / "log.txt").read_text()
  assert "its process was killed (SIGKILL); it goes on" in log
  assert log.count(f"{again} about step") == 2
  texts = [(w / results.FILE).read_text() for w in (straight[0], workdir)]
  one, other = (without_times(json.loads(text)) for text in texts)
  assert one == other
  assert looked_at(workdir) == looked_at(straight[0])


def test_finished_runs_are_not_repeated(straight, configs_of, monkeypatch):
  before = (straight[0] / "log.txt").read_text()
  original = (straight[0] / results.FILE).read_text()
  inputs = {name: configs_of(name) for name in ("pascal", "pascal_random_tree")}
  settings = Settings(samples=40)
  outcome = compare.run(inputs, straight[0], 2, settings=settings)
  after = (straight[0] / "log.txt").read_text()[len(before) :]
  assert "4 of 4 runs are finished already" in after
  assert "begins" not in after and "goes on" not in after
  assert results.to_json(outcome.results) == original.rstrip("\n")


def without_text(content):
  """report.json without the examples, which need the text of the test set."""
  for split in content["splits"]:
    split.update(example_metric="", examples=[])
  return content


def test_results_alone_give_the_same_report(straight, environment, tmp_path):
  """Byte for byte, from copies of result.json, without data and checkpoints."""
  runs = tmp_path / "runs"
  for file in straight[0].glob("*/seed_*/result.json"):
    copy = runs / f"{file.parts[-3]}.{file.parts[-2]}.json"
    copy.parent.mkdir(exist_ok=True)
    shutil.copyfile(file, copy)
  first, *rest = sorted(runs.iterdir())
  done = subprocess.run(
    [
      *(sys.executable, "-m", "jaxsyn.compare", "--samples", "40"),
      *("--systems=pascal,pascal_random_tree", "--workdir", tmp_path / "out"),
      *("--results", first, *rest),
    ],
    env=environment,
    cwd=tmp_path,
    capture_output=True,
    text=True,
  )
  assert done.returncode == 0, done.stderr
  expected = without_text(json.loads((straight[0] / "report.json").read_text()))
  expected = json.dumps(expected, indent=1, ensure_ascii=False) + "\n"
  assert (tmp_path / "out" / "report.json").read_text() == expected
  assert straight[1].split("\n\n")[-1] in done.stdout  # the conclusions
  content = (tmp_path / "out" / "report.html").read_text()
  assert 'id="scores"' in content and 'id="examples"' not in content


@pytest.mark.parametrize(
  ("systems", "options", "message"),
  [
    (
      (),
      {},
      "no result of transformer. Name the baseline first in --systems; the",
    ),
    (
      ("pascal", "paskal"),
      {},
      "no result of 'paskal'. Did you mean 'pascal'",
    ),
    (
      ("pascal",),
      {"settings": Settings(("ter",))},
      "no statistics of 'ter' on test",
    ),
    (
      ("pascal",),
      {"inference": Inference((("pascal", "x"),))},
      "'x' is not compared",
    ),
  ],
)
def test_rejects_settings_that_do_not_fit_results(
  straight, tmp_path, systems, options, message
):
  with pytest.raises(InputError, match=message):
    compare.report_on([straight[0]], tmp_path / "out", systems, **options)


def test_rejects_flags_that_do_nothing_with_results(straight, environment):
  done = subprocess.run(
    [
      *(sys.executable, "-m", "jaxsyn.compare", "--systems=pascal"),
      *("--tokenizer=intl", "--results", straight[0], "--workdir=/tmp/out"),
    ],
    env=environment,
    cwd=ROOT,
    capture_output=True,
    text=True,
  )
  assert done.returncode == 2
  assert "--tokenizer does nothing with" in done.stderr
  assert "Traceback" not in done.stderr


def test_references_are_scored_with_the_trees_of_the_run(straight, prepared):
  """Forced decoding by a session that is opened for it gives the same sums."""
  for system in ("pascal", "pascal_random_tree"):
    run = straight[0] / system / "seed_1"
    test = run_result.read(run / "result.json").tests["test"]
    result = test.measured("log_likelihood")
    config = run_folders.open_run(run).config
    records = Dataset(str(prepared)).split("test")
    session = Session(run)
    for row, example in enumerate(
      iterate_translations(records, config.data, 1)
    ):
      (log_p,) = session.force_examples(
        [example], [example["target_id"][:-1].tolist()]
      )
      total, count = result.statistic_BI[row]
      assert count == len(log_p) == len(example["target_id"])
      assert total == pytest.approx(log_p.sum(dtype="float64"), rel=1e-5)
    sums = result.statistic_BI.sum(axis=0)
    assert result.value == sums[0] / sums[1] < 0
  # Their trees differ, and so do their likelihoods.
  values = {
    system: run_result.read(straight[0] / system / "seed_1" / "result.json")
    .tests["test"]
    .measured("log_likelihood")
    .value
    for system in ("pascal", "pascal_random_tree")
  }
  assert len(set(values.values())) == 2


def test_another_metric_is_added_to_results(straight, configs_of, tmp_path):
  workdir = tmp_path / "more"
  shutil.copytree(straight[0], workdir)
  settings = Settings(("log_likelihood", "ter"), samples=40)
  inputs = {name: configs_of(name) for name in ("pascal", "pascal_random_tree")}
  result = compare.run(inputs, workdir, 2, settings=settings).results
  assert result.metrics == ("log-likelihood", "TER")
  stored = run_result.read(workdir / "pascal" / "seed_0" / "result.json")
  assert set(stored.tests["test"].metrics) == {
    *("bleu", "chrf", "ter", "log_likelihood"),
  }
  values = {s.metric: s.values for s in result.splits[0].scores}
  assert all(value < 0 for value in values["log-likelihood"])
  text = (workdir / "report.md").read_text()
  assert f"{values['log-likelihood'][0]:.4f}" in text


def test_translations_that_changed_are_named(straight, configs_of, tmp_path):
  """By their sums, for a changed line is no other number of lines."""
  workdir = tmp_path / "cut"
  shutil.copytree(straight[0], workdir)
  path = workdir / "pascal" / "seed_1" / "test" / "test.txt"
  lines = path.read_text().splitlines(keepends=True)
  lines[3] = lines[3].swapcase()
  path.write_text("".join(lines))
  with pytest.raises(InputError, match=r"seed_1/test/test\.txt has another"):
    compare.run({"pascal": configs_of("pascal")}, workdir, 2)


@pytest.mark.parametrize(
  ("changes", "message"),
  [
    (
      {"model.width": 64},
      r"compares pascal_random_tree with another config: config\.model\.width "
      "was 32 and is now 64",
    ),
    ({"train.steps": 61}, r"config\.train\.steps was 60 and is now 61"),
    ({"decode.beam": 3}, r"config\.decode\.beam was 2 and is now 3"),
    ({"data.test": ()}, r"config\.data\.test names no split"),
    ({"data.test": ("tset",)}, r"no split 'tset'. Did you mean 'test'"),
    (
      {"parts.encoder.parent_scaled.layers": (3,)},
      r"parent_scaled\.layers",
    ),
  ],
)
def test_another_config_is_refused_by_name(
  straight, configs_of, changes, message
):
  inputs = {"pascal_random_tree": configs_of("pascal_random_tree", **changes)}
  with pytest.raises(InputError, match=message):
    compare.run(inputs, straight[0], 2)


@pytest.mark.parametrize(
  ("changes", "message"),
  [
    ({"metrics": ("blue",)}, "no metric 'blue'. Did you mean 'bleu'"),
    ({"tokenizer": "13b"}, "no tokenizer '13b'"),
    ({"edges": (5, 3)}, "edges"),
  ],
)
def test_checks_scoring_options_before_training(
  configs_of, tmp_path, changes, message
):
  inputs = {"pascal": configs_of("pascal")}
  with pytest.raises(InputError, match=message):
    settings = Settings(**changes)
    compare.run(inputs, tmp_path / "new", 1, settings=settings)
  assert not (tmp_path / "new").exists()


def test_checks_the_teacher_before_training(straight, configs_of, tmp_path):
  """But one of the comparison's own runs, which may be trained there first."""
  name = "losses.distillation.teacher"
  for run, message in (
    ("", "names nobody"),
    ("gone", "not the folder of a run"),
  ):
    systems = {
      "transformer": configs_of("transformer"),
      "distilled": configs_of(
        "distilled", **{name: run and str(tmp_path / run)}
      ),
    }
    with pytest.raises(InputError, match=rf"distilled: .*{message}"):
      compare.run(systems, tmp_path / "cmp", seeds=1)
  assert not (tmp_path / "cmp" / "transformer").exists()
  config = configs_of(
    "distilled", **{name: str(tmp_path / "cmp/pascal/seed_0")}
  )
  system = planned_jobs.System("distilled", read_config(config))
  assert planned_jobs.check(system, tmp_path / "cmp")
  with pytest.raises(InputError, match="not the folder of a run"):
    planned_jobs.check(system, tmp_path / "other")


def test_rejects_other_folders(straight, configs_of, tmp_path):
  inputs = {"pascal": configs_of("pascal")}
  (tmp_path / "file").write_text("")
  with pytest.raises(InputError, match="file is a file, or below one; name a"):
    compare.run(inputs, tmp_path / "file", 1)
  run = tmp_path / "run"
  shutil.copytree(straight[0] / "pascal" / "seed_0", run)
  with pytest.raises(InputError, match="is the folder of a single run"):
    compare.run(inputs, run, 1)


def test_lists_runs_left_out_of_the_report(straight, configs_of, tmp_path):
  workdir = tmp_path / "less"
  shutil.copytree(straight[0], workdir)
  settings = Settings(samples=40)
  compare.run({"pascal": configs_of("pascal")}, workdir, 1, settings=settings)
  assert (
    "not in this report: pascal seed 1, pascal_random_tree seed 0, "
    "pascal_random_tree seed 1"
  ) in (workdir / "log.txt").read_text()


def test_options_without_effect_on_results_may_change(straight, configs_of):
  config = compare._checked(
    configs_of("pascal_random_tree", **{"train.log_every": 3})
  )
  planned_jobs.start_experiment(
    straight[0], [planned_jobs.System("pascal_random_tree", config)]
  )
  again = planned_jobs.job(straight[0], "pascal_random_tree", 1)
  assert (again.config.train.log_every, again.config.seed) == (3, 1)


def test_the_error_says_how_to_set_an_option_of_one_system():
  config, path = quickstart.get_config(), "parts.encoder.dasa.strength"
  message = (
    f'not all systems have; set it for one: --systems "NAME=SYSTEM,{path}='
  )
  with pytest.raises(InputError, match=re.escape(message)):
    cli.check_option(config, path, multiple=True)
  with pytest.raises(InputError, match="after ':' in --config"):
    cli.check_option(config, path)
