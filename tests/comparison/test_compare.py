"""The command on the small corpus: training, kills, resumes, reports."""

import base64
import gzip
import itertools
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
from command_flags import parsed

from jaxsyn import compare
from jaxsyn.comparison import measure, planned_jobs, results, run_result
from jaxsyn.comparison.inference import Inference
from jaxsyn.config import read_config
from jaxsyn.configs import quickstart
from jaxsyn.configs.papers import pascal
from jaxsyn.data.loader.transforms import iterate_translations
from jaxsyn.data.store import manifests
from jaxsyn.data.store.dataset import Dataset
from jaxsyn.errors import InputError
from jaxsyn.scoring.settings import Settings
from jaxsyn.session import Session
from jaxsyn.storage import lock

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
NAMES = ("pascal", "pascal_random_tree")
SETTINGS = Settings(samples=40)
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
  "train.steps": 40,
  "train.evaluate_every": 20,
  "train.validation_sentences": 1,
  "train.save_every": 10,
  "train.log_every": 10,
  "data.test": ("test", "late"),  # "late" has no files
}


@pytest.fixture(scope="module")
def command(environment, data):
  """A function that starts a comparison of two systems with two seeds."""
  options = [f"--config.{name}={value}" for name, value in SIZES.items()]

  def start(workdir, *arguments):
    program = [sys.executable, "-m", "jaxsyn.compare", "--samples", "40"]
    program += ["--config=configs/quickstart.py", *options, *arguments]
    program += [f"--config.data.directory={data}", f"--workdir={workdir}"]
    return subprocess.Popen(
      [*program, f"--systems={','.join(NAMES)}", "--seeds=2"],
      env=environment,
      cwd=ROOT,
      stdout=subprocess.PIPE,
      stderr=subprocess.PIPE,
      text=True,
    )

  return start


@pytest.fixture(scope="module")
def data(prepared, tmp_path_factory):
  """The prepared corpus with an optional test split, "late", without files."""
  folder = tmp_path_factory.mktemp("data") / "late"
  shutil.copytree(prepared, folder)
  manifest = manifests.read(folder)
  manifests.write(folder, manifest | {"left_out": {"late": "no late.en"}})
  return folder


@pytest.fixture(scope="module")
def complete(command, tmp_path_factory):
  """A comparison without interruption, and its output.

  The systems differ in their trees only, so that they share compiled programs.
  """
  workdir = tmp_path_factory.mktemp("compared") / "complete"
  process = command(workdir, "--processes=2")
  output, error = process.communicate()
  assert process.returncode == 0, error
  return workdir, output


@pytest.fixture
def copied(complete, tmp_path):
  """A copy of the comparison."""
  return shutil.copytree(complete[0], tmp_path / "copied")


@pytest.fixture
def config_of(data):
  """A function: system, options -> config."""

  def make(system, **options):
    config = quickstart.get_config(system)
    config.data.directory = str(data)
    config.update_from_flattened_dict(SIZES | options)
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


def attention_of(workdir):
  """The files of attention samples: name -> content."""
  return {
    str(path.relative_to(workdir)): path.read_bytes()
    for path in sorted(workdir.glob("*/seed_*/look/*"))
  }


def test_results_have_scores_and_facts(complete, data):
  workdir, output = complete
  result = read(workdir)
  names = [(r.system, r.seed) for r in result.runs]
  assert names == [(name, seed) for seed in (0, 1) for name in NAMES]
  prepared = manifests.read(data)["splits"]["test"]
  (split,) = result.splits
  assert split.sentences == prepared["examples"]
  for run in result.runs:
    (path,) = (workdir / run.folder / "test").iterdir()
    assert len(path.read_text().splitlines()) == split.sentences
    assert [point.step for point in run.curve] == [20, 40]
    assert run.curve[1].minutes <= run.facts.minutes
    assert {s.metric for s in run.scores["test"]} == {"BLEU", "chrF"}
    assert run.facts.parameters > 10_000 and run.facts.tokens_per_s > 0
    assert "jax" in run.facts.machine.packages
  for system in result.systems:
    hashes = system.data.hashes["records"]
    assert hashes["test"] == prepared["records_sha256"]
    assert system.data.left_out == ("late",)
  markdown = (workdir / "report.md").read_text()
  assert "test splits without files: late" in output
  assert "Test sets without files: late" in markdown
  assert r"\toprule" in (workdir / "report.tex").read_text()
  values = {(r.system, r.seed): r.scores["test"][0].value for r in result.runs}
  for summary in split.scores:
    if summary.metric == "BLEU":
      single = (values[summary.system, 0], values[summary.system, 1])
      assert summary.values == single
    cell = f"{summary.mean:.2f} ± {summary.sd:.2f}"
    assert cell in output and cell in markdown
  over = next(d for d in split.over_seeds if d.metric == "BLEU")
  assert over.by_seed == pytest.approx(
    [values["pascal_random_tree", k] - values["pascal", k] for k in (0, 1)]
  )
  assert over.low <= over.value <= over.high and 0 < over.p <= 1
  assert [one.seed for one in split.over_sentences] == [0, 0, 1, 1]
  by_fact = {bucket.by for bucket in split.buckets}
  assert {"tree depth", "clauses"} <= by_fact
  for by in by_fact:
    counts = [b.count for b in split.buckets if b.by == by]
    assert sum(counts) == split.sentences


def test_systems_of_one_seed_see_the_same_batches(complete):
  """The padding between two log lines identifies the batches."""

  def batches(system, seed):
    log = complete[0] / system / f"seed_{seed}" / "log.jsonl"
    records = [json.loads(line) for line in log.read_text().splitlines()]
    return [(r["step"], r["padding"]) for r in records if r["kind"] == "train"]

  for seed in (0, 1):
    assert batches("pascal", seed) == batches("pascal_random_tree", seed)
  assert batches("pascal_random_tree", 0) != batches("pascal_random_tree", 1)
  tokens = {(r.system, r.seed): r.facts.tokens for r in read(complete[0]).runs}
  assert tokens["pascal", 0] == tokens["pascal_random_tree", 0]


def test_first_seeds_have_attention_samples(complete):
  result = attention_of(complete[0])
  kinds = {"pascal": ("json", "tree.svg", "attention.encoder_0.png")}
  kinds["pascal_random_tree"] = (*kinds["pascal"], "tree_read.svg")
  expected = set()
  for name in NAMES:
    for kind in kinds[name]:
      for n in (1, 2, 3):
        expected.add(f"{name}/seed_0/look/sentence_000{n}.{kind}")
  assert set(result) == expected
  content = (complete[0] / "report.html").read_text()
  for name, file in result.items():
    if name.endswith((".png", "tree_read.svg")):
      assert base64.b64encode(file).decode() in content, name


def test_resumes_after_a_kill_and_a_stop(complete, copied, command):
  workdir = copied
  # The training of the only unfinished run is killed, then stopped.
  run = workdir / "pascal_random_tree" / "seed_1"
  shutil.rmtree(run)
  # A trained run that was killed before it had drawn.
  shutil.rmtree(workdir / "pascal" / "seed_0" / "look")
  # Its translations, whose checksum is not stored yet, are made again.
  lines = workdir / "pascal" / "seed_0" / "test" / "test.txt"
  lines.write_text(lines.read_text().swapcase())
  (workdir / results.FILE).unlink()
  process = command(workdir)
  wait_for((run / "checkpoints" / "10").is_dir, process)
  message = f"in use by process {process.pid}"
  with pytest.raises(InputError, match=message), lock.exclusive_lock(workdir):
    pass
  child = int((run / lock.FILE).read_text().split()[1])  # "process 17 on ..."
  os.kill(child, signal.SIGKILL)
  resumed = "pascal_random_tree seed 1: resumes from about step"
  wait_for(lambda: resumed in (workdir / "log.txt").read_text(), process)
  process.send_signal(signal.SIGINT)
  output, error = process.communicate(timeout=120)
  assert process.returncode == 0, error
  assert "stopped (SIGINT)" in output
  assert "To resume: python -m jaxsyn.compare --samples 40" in output
  assert not (workdir / results.FILE).exists()
  process = command(workdir)
  _, error = process.communicate(timeout=300)
  assert process.returncode == 0, error
  log = (workdir / "log.txt").read_text()
  assert "its process was killed (SIGKILL); it is restarted" in log
  assert log.count(resumed) == 2
  texts = [(w / results.FILE).read_text() for w in (complete[0], workdir)]
  one, other = (without_times(json.loads(text)) for text in texts)
  assert one == other
  assert attention_of(workdir) == attention_of(complete[0])


def test_finished_runs_are_not_repeated(copied, config_of):
  before = (copied / "log.txt").read_text()
  original = (copied / results.FILE).read_text()
  inputs = {name: config_of(name) for name in NAMES}
  outcome = compare.run(inputs, copied, 2, settings=SETTINGS)
  after = (copied / "log.txt").read_text()[len(before) :]
  assert "4 of 4 runs are finished already" in after
  assert "starts" not in after and "resumes" not in after
  assert results.to_json(outcome.results) == original.rstrip("\n")
  inputs = {"pascal": config_of("pascal")}
  compare.run(inputs, copied, 1, settings=SETTINGS)
  assert (
    "not in this report: pascal seed 1, pascal_random_tree seed 0, "
    "pascal_random_tree seed 1"
  ) in (copied / "log.txt").read_text()


def test_results_alone_give_the_same_report(complete, tmp_path, capsys):
  """Byte for byte, from copies of result.json, without data and checkpoints."""
  workdir, output = complete
  (tmp_path / "runs").mkdir()
  copies = []
  for file in sorted(workdir.glob("*/seed_*/result.json")):
    copies.append(tmp_path / "runs" / f"{file.parts[-3]}.{file.parts[-2]}.json")
    shutil.copyfile(file, copies[-1])
  words = ["--results", ",".join(map(str, copies)), "--samples=40"]
  words += [f"--workdir={tmp_path / 'out'}", f"--systems={','.join(NAMES)}"]
  with parsed(compare, *words, word="results") as values:
    compare._main(values)
  expected = json.loads((workdir / "report.json").read_text())
  for split in expected["splits"]:  # examples need the text
    split.update(example_metric="", examples=[])
  expected = json.dumps(expected, indent=1, ensure_ascii=False) + "\n"
  assert (tmp_path / "out" / "report.json").read_text() == expected
  conclusions = output.split("\n\n")[-1]
  assert conclusions in capsys.readouterr().out
  content = (tmp_path / "out" / "report.html").read_text()
  assert 'id="scores"' in content and 'id="examples"' not in content
  words.append("--tokenizer=intl")
  with (
    parsed(compare, *words, word="results") as values,
    pytest.raises(InputError, match="--tokenizer has no effect with --res"),
  ):
    compare._main(values)


@pytest.mark.parametrize(
  ("systems", "options", "message"),
  [
    ((), {}, "no result of transformer. Name the baseline first in --systems"),
    (("pascal", "paskal"), {}, "no result of 'paskal'. Did you mean 'pascal'"),
    (("pascal",), {"settings": Settings(("ter",))}, "no statistics of 'ter'"),
    (
      ("pascal",),
      {"inference": Inference((("pascal", "x"),))},
      "'x' is not compared",
    ),
  ],
)
def test_rejects_settings_that_do_not_fit_results(
  complete, tmp_path, systems, options, message
):
  with pytest.raises(InputError, match=message):
    compare.report_on([complete[0]], tmp_path / "out", systems, **options)


def test_references_are_scored_with_the_trees_of_the_run(complete, data):
  """A new session gives the same log-likelihoods, one sentence at a time."""
  values = set()
  for system in NAMES:
    run = complete[0] / system / "seed_1"
    test = run_result.read(run / "result.json").tests["test"]
    result = test.measured("log_likelihood")
    session = Session(run)
    records = Dataset(str(data)).split("test")
    examples = iterate_translations(records, session.run.config.data, 1)
    for row, example in enumerate(itertools.islice(examples, 5)):
      targets = [example["target_id"][:-1].tolist()]
      (log_p,) = session.force_examples([(example,)], targets)
      total, count = result.statistic_BI[row]
      assert count == len(log_p) == len(example["target_id"])
      assert total == pytest.approx(log_p.sum(dtype="float64"), rel=1e-5)
    values.add(result.value)
  assert len(values) == 2  # their trees differ


def test_adds_another_metric_to_results(copied, config_of):
  settings = Settings(("log_likelihood", "ter"), samples=40)
  inputs = {name: config_of(name) for name in NAMES}
  result = compare.run(inputs, copied, 2, settings=settings).results
  assert result.metrics == ("log-likelihood", "TER")
  stored = run_result.read(copied / "pascal" / "seed_0" / "result.json")
  metrics = {"bleu", "chrf", "ter", "log_likelihood"}
  assert set(stored.tests["test"].metrics) == metrics
  values = {s.metric: s.values for s in result.splits[0].scores}
  assert all(value < 0 for value in values["log-likelihood"])
  text = (copied / "report.md").read_text()
  assert f"{values['log-likelihood'][0]:.4f}" in text
  # Metrics with other settings are measured again.
  settings = Settings(("chrf",), lowercase=True, samples=40)
  (split,) = compare.run(inputs, copied, 2, settings=settings).results.splits
  assert "case:lc" in split.signatures["chrF"]


def test_rejects_changed_translations(copied, config_of):
  path = copied / "pascal" / "seed_1" / "test" / "test.txt"
  lines = path.read_text().splitlines(keepends=True)
  lines[3] = lines[3].swapcase()  # the number of lines is the same
  path.write_text("".join(lines))
  with pytest.raises(InputError, match=r"seed_1/test/test\.txt has another"):
    compare.run({"pascal": config_of("pascal")}, copied, 2)


@pytest.mark.parametrize(
  ("kind", "side"),
  [("text", "source"), ("text", "target"), ("conllu", "source")],
)
def test_rejects_a_corrupt_test_set(data, config_of, tmp_path, kind, side):
  folder = shutil.copytree(data, tmp_path / "copy")
  options = {"data.directory": str(folder), "data.test": ("test",)}
  config = read_config(config_of("pascal", **options))
  system = planned_jobs.System("pascal", config)
  job = planned_jobs.TrainingJob(tmp_path, system, 0)
  job.hypotheses("test").parent.mkdir(parents=True)
  job.hypotheses("test").write_text("a\n" * 24)
  settings = SETTINGS.with_defaults("en")
  assert measure.Measurer(settings)(job, {})["test"].sentences == 24
  file = manifests.sentence_file(folder, kind, "test", side)
  edited = gzip.decompress(file.read_bytes()).decode().replace("a", "e")
  file.write_bytes(gzip.compress(edited.replace("\t0\t", "\t1\t").encode()))
  with pytest.raises(InputError, match=rf"{file} has .* Prepare the data"):
    measure.Measurer(settings)(job, {})


@pytest.mark.parametrize(
  ("options", "message"),
  [
    (
      {"model.width": 64},
      r"has runs of pascal_random_tree with another config: config\.model\.width"
      " was 32 and is now 64",
    ),
    ({"data.test": ()}, r"config\.data\.test names no split"),
    ({"data.test": ("late",)}, r"all splits of config\.data\.test"),
    ({"data.test": ("tset",)}, r"no split 'tset'. Did you mean 'test'"),
    (
      {"parts.encoder.parent_scaled.layers": (3,)},
      r"parent_scaled\.layers",
    ),
  ],
)
def test_rejects_another_config(complete, config_of, options, message):
  inputs = {"pascal_random_tree": config_of("pascal_random_tree", **options)}
  with pytest.raises(InputError, match=message):
    compare.run(inputs, complete[0], 2)


@pytest.mark.parametrize(
  ("changes", "message"),
  [
    ({"tokenizer": "13b"}, "no tokenizer '13b'"),
    ({"edges": (5, 3)}, "edges"),
  ],
)
def test_checks_scoring_options_before_training(
  config_of, tmp_path, changes, message
):
  inputs = {"pascal": config_of("pascal")}
  with pytest.raises(InputError, match=message):
    compare.run(inputs, tmp_path / "new", settings=Settings(**changes))
  assert not (tmp_path / "new").exists()


@pytest.mark.parametrize(
  ("names", "message", "invalid"),
  [
    (
      ("transformer", "multitask"),
      r"^multitask: config\.data\.second\.task='parse' needs constituency"
      r" trees .*config\.prepare\.parse\.source_brackets",
      [],
    ),
    (
      ("transformer", "layer_1", "layer_5", "layer_6", "multitask"),
      r"^3 of 5 systems cannot",
      ["layer_5", "layer_6", "multitask"],
    ),
  ],
)
def test_names_all_systems_that_cannot_be_trained(
  tiny, tmp_path, names, message, invalid
):
  """The prepared data has no constituency trees; the models have two layers."""
  systems = []
  for name in names:
    table = pascal.TABLES["layers" if "layer_" in name else "results"]
    config = read_config(table.row(name).on(tiny("transformer")))
    systems.append(planned_jobs.System(name, config))
  with pytest.raises(InputError, match=message) as error:
    compare.run(systems, tmp_path / "compared", 1)
  lines = re.findall(r"^  (\w+): ", str(error.value), re.MULTILINE)
  assert lines == invalid
  assert not (tmp_path / "compared").exists()


def test_checks_the_teacher_before_training(config_of, tmp_path):
  """Except a run of the comparison, which may be trained first."""
  option = "losses.distillation.teacher"

  def distilled(run):
    return config_of("distilled", **{option: run, "data.test": ("test",)})

  for run, message in (
    ("", "names no run"),
    (str(tmp_path / "gone"), "not the folder of a run"),
  ):
    systems = {"transformer": config_of("transformer"), "d": distilled(run)}
    with pytest.raises(InputError, match=rf"d: .*{message}"):
      compare.run(systems, tmp_path / "cmp", seeds=1)
  assert not (tmp_path / "cmp" / "transformer").exists()
  config = read_config(distilled(str(tmp_path / "cmp/pascal/seed_0")))
  system = planned_jobs.System("distilled", config)
  assert planned_jobs.check(system, tmp_path / "cmp")
  with pytest.raises(InputError, match="not the folder of a run"):
    planned_jobs.check(system, tmp_path / "other")


def test_rejects_other_folders(complete, config_of, tmp_path):
  inputs = {"pascal": config_of("pascal")}
  (tmp_path / "file").write_text("")
  with pytest.raises(InputError, match="file is a file, or below one; name a"):
    compare.run(inputs, tmp_path / "file", 1)
  run = shutil.copytree(complete[0] / "pascal" / "seed_0", tmp_path / "run")
  with pytest.raises(InputError, match="is the folder of a single run"):
    compare.run(inputs, run, 1)


def test_neutral_options_may_change(copied, config_of):
  name = "pascal_random_tree"
  options = {"train.log_every": 3, "data.test": ("test",)}
  config = read_config(config_of(name, **options))
  planned_jobs.record_systems(copied, [planned_jobs.System(name, config)])
  again = planned_jobs.job(copied, name, 1)
  assert (again.config.train.log_every, again.config.seed) == (3, 1)
