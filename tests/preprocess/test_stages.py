"""Stages of preparation: equal files for any chunks, processes and machines.

The corpus has repeated and long lines, all optional features and a random subset.
"""

import dataclasses
import functools
import gzip
import os
import pathlib
import pickle
import shutil
import signal
import subprocess
import threading
import time
from concurrent import futures

import loaded_modules
import numpy as np
import object_store
import pytest
import stage_runs
from raw_corpora import (
  bracketed,
  chain,
  check_rejected,
  command,
  corpus,
  lines_of,
  raw_of,
  records_of,
  write_lines,
)

from jaxsyn.config import read_config
from jaxsyn.data.options import DataConfig, Subset
from jaxsyn.data.store import manifests
from jaxsyn.data.store.dataset import Dataset
from jaxsyn.errors import InputError
from jaxsyn.preprocess import (
  build,
  inputs,
  job,
  runners,
  selection,
  stages,
  verify,
  vocabulary,
)
from jaxsyn.preprocess.toy import corpus as toy_corpus
from jaxsyn.preprocess.toy import parser
from jaxsyn.storage import files, remote

ROOT = pathlib.Path(__file__).resolve().parents[2]
LINES, PAIRS = 1200, 400  # of the training split, and of its subset
OPTIONAL = {"source_head", "source_other_head", "source_brackets", "links"}


def large(tmp_path):
  """A corpus of several chunks and shards, with everything that a line can have."""
  config = corpus(tmp_path, train=LINES, test=40)
  raw, source = raw_of(config), lines_of(config, "train.en")
  links = (" ".join(f"{i}-{i}" for i in range(len(x.split()))) for x in source)
  others = (chain(line).replace("dep", "obj") for line in source)
  (raw / "train.other").write_text("".join(others))
  write_lines(raw / "train.brackets", map(bracketed, source))
  write_lines(raw / "train.align", links)
  config.prepare.parse.source_alternatives = {"train": ("train.other",)}
  config.prepare.parse.source_brackets = {"train": "train.brackets"}
  config.prepare.alignments = {"train": ("train.align",)}
  for split in ("train", "test"):
    config.prepare.parse.source_conllu[split] = f"{split}.conllu"
  config.prepare.clean.update(duplicates=True, max_words=7)
  config.prepare.subset.update(pairs=PAIRS, seed=5)
  config.prepare.update(shard_mib=0.05, workers=1)
  return config


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
  """A config, the folder that it prepares, and the bytes of that."""
  config = large(tmp_path_factory.mktemp("whole"))
  folder = build.run(config)
  return config, folder, records_of(folder)


def again(whole, tmp_path, copy_raw=False):
  """The same input, or its copy, for another folder."""
  config = whole[0].copy_and_resolve_references()
  config.data.directory = str(tmp_path / "out")
  if copy_raw:
    shutil.copytree(config.prepare.raw_dir, tmp_path / "raw")
    config.prepare.raw_dir = str(tmp_path / "raw")
  return config


def test_shards_are_full_and_hold_the_same_examples(whole):
  manifest = manifests.read(whole[1])
  train = manifest["splits"]["train"]
  assert len(train["shards"]) > 3
  # Each but the last is full, and would not be without its last record.
  limit = 0.05 * (1 << 20)
  sizes = [shard["bytes"] for shard in train["shards"]]
  assert all(limit <= size < limit + 2000 for size in sizes[:-1])
  for side in ("source", "target"):
    paths = manifests.sentence_files(whole[1], manifest, "text", "train", side)
    counts = [gzip.decompress(p.read_bytes()).count(b"\n") for p in paths]
    assert counts == [shard["examples"] for shard in train["shards"]]


def test_draws_clean_lines(whole):
  config, folder, _ = whole
  manifest = manifests.read(folder)
  train = manifest["splits"]["train"]
  numbers = [int(example["line"]) for example in Dataset(folder).split("train")]
  assert numbers == sorted(set(numbers))
  assert len(numbers) == PAIRS == train["examples"]
  dropped = train["dropped"]
  assert train["lines"] == PAIRS + sum(dropped.values()) == LINES
  clean_pairs = LINES - dropped["duplicates"] - dropped["max_words"]
  assert train["subset"] == {"pairs": PAIRS, "of": clean_pairs, "seed": 5}
  report = (folder / "report.txt").read_text()
  assert f"subset     {PAIRS} of {clean_pairs:,} clean pairs" in report
  # None is a line that cleaning would drop.
  texts = [lines_of(config, "train.en")[number - 1] for number in numbers]
  assert len(set(texts)) == PAIRS
  assert max(len(text.split()) for text in texts) == 7
  assert min(dropped["duplicates"], dropped["max_words"]) > 20


def test_equals_preparing_a_file_with_exactly_these_lines(whole, tmp_path):
  """Vocabulary, trees, alternatives, brackets, links: all but the numbers."""
  folder = whole[1]
  train = [*Dataset(folder).split("train")]
  chosen = [int(example["line"]) - 1 for example in train]
  config = again(whole, tmp_path, copy_raw=True)
  for path in raw_of(config).glob("train.*"):
    packed, data = path.suffix == ".gz", path.read_bytes()
    end = b"\n\n" if path.suffix in (".conllu", ".other") else b"\n"
    rows = (gzip.decompress(data) if packed else data).split(end)
    data = b"".join(rows[i] + end for i in chosen)
    path.write_bytes(gzip.compress(data) if packed else data)
  config.prepare.subset.pairs = 0
  other = build.run(config)
  for name in ("vocabulary.model", "text/test.source.gz"):
    assert (folder / name).read_bytes() == (other / name).read_bytes()
  for split in ("train", "test"):
    mine, theirs = (Dataset(path).split(split) for path in (folder, other))
    for number, (one, two) in enumerate(zip(mine, theirs, strict=True), 1):
      assert two["line"] == number
      assert set(one) == set(two) > OPTIONAL
      for name in set(one) - {"line"}:
        np.testing.assert_array_equal(one[name], two[name], name)
  assert all(len(example[name]) for example in train for name in OPTIONAL)


def two_processes(config, monkeypatch):
  config.prepare.workers = 2


def small_chunks(config, monkeypatch):
  monkeypatch.setattr(job, "MIN_LINES", 64)
  monkeypatch.setattr(job, "MAX_LINES", 64)
  monkeypatch.setattr(selection, "_PARTITION_PAIRS", 500)


@pytest.mark.parametrize("change", [two_processes, small_chunks])
def test_files_depend_on_neither_chunks_nor_processes(
  whole, tmp_path, monkeypatch, change
):
  config = again(whole, tmp_path)
  change(config, monkeypatch)
  assert records_of(build.run(config)) == whole[2]


def test_the_first_of_several_errors_is_reported(whole, tmp_path):
  config = again(whole, tmp_path, copy_raw=True)
  config.prepare.workers = 2
  path = raw_of(config) / "train.conllu"
  blocks = path.read_text().split("\n\n")
  for index in (1100, 500):
    blocks[index] = blocks[index].replace("\t_\t", "\t", 1)
  path.write_text("\n\n".join(blocks))
  line = 1 + "\n\n".join(blocks[:500]).count("\n") + 2
  message = rf"train\.conllu:{line}: 9 columns"
  check_rejected(config, message, nothing_made=True)


def interrupted(config, monkeypatch):
  """Prepares all but the publication; returns outputs of tasks, and new files."""

  def stop(*_):
    raise KeyboardInterrupt

  with monkeypatch.context() as patch:
    patch.setattr(build.publish, "publish", stop)
    with pytest.raises(KeyboardInterrupt):
      build.run(config)
  folder = pathlib.Path(config.data.directory)
  (outputs,), (new,) = folder.glob("work/stages-*"), folder.glob(".new-*")
  return outputs, new


def flip(path, place):
  data = bytearray(path.read_bytes())
  data[place] ^= 1
  path.write_bytes(data)


def test_rebuilds_corrupt_outputs_of_an_interrupted_run(
  whole, tmp_path, monkeypatch
):
  config = again(whole, tmp_path)
  outputs, new = interrupted(config, monkeypatch)
  for piece in ("read/0", "duplicates/0", "encode/1"):
    flip(outputs / piece, 100)
    for later in ("trees", "shards"):
      shutil.rmtree(outputs / later)
    (new / "text" / ".train.source.gz.0123.partial").write_bytes(b"half")
    with pytest.raises(InputError, match=rf"{piece} changed while .* again"):
      build.run(config)
    assert interrupted(config, monkeypatch) == (outputs, new)
    assert records_of(new) == whole[2]
  flip(min(new.glob("toy/*/*tfrecord*")), 500)
  interrupted(config, monkeypatch)
  assert records_of(new) == whole[2]
  # Outputs of another version of jaxsyn are removed.
  older = outputs.rename(outputs.with_name(outputs.name.rpartition("-")[0]))
  assert records_of(build.run(config)) == whole[2]
  assert not older.exists()


def test_trains_the_vocabulary_on_a_sample(tmp_path, monkeypatch):
  """The sample has about the right size and does not depend on the order."""
  monkeypatch.setattr(vocabulary, "_SAMPLE", 100)
  pairs = [(f"{i} a", f"{i} b") for i in range(400)]
  samples = []
  for name, ordered in (("one", pairs), ("two", pairs[::-1])):
    prepare_job = stage_runs.job_of(
      tmp_path / name, {"train": [*zip(*ordered)]}
    )
    stage_runs.run(prepare_job)
    samples.append(set(vocabulary.sampled_pairs(prepare_job)))
  assert samples[0] == samples[1] and 70 < len(samples[0]) < 130


def rows_of_subset(prepare_job, size, seed):
  """Returns the drawn rows of cleaned lines, which are in one chunk."""
  prepare = dataclasses.replace(
    prepare_job.config.prepare, subset=Subset(size, seed)
  )
  config = dataclasses.replace(prepare_job.config, prepare=prepare)
  other = dataclasses.replace(prepare_job, config=config)
  stages.combine(other, "duplicates", [])
  return selection.kept_rows(other, 0)


def test_random_subsets(tmp_path):
  """Smaller subsets are in larger ones, and lines are drawn equally often."""
  text = [*(f"line {index}" for index in range(60)), ""]
  prepare_job = stage_runs.job_of(tmp_path, {"train": (text, text)})
  stage_runs.run(prepare_job, ("read", "clean"))
  subsets = [set(rows_of_subset(prepare_job, n, 5)) for n in (1, 20, 59, 60)]
  assert [*map(len, subsets)] == [1, 20, 59, 60]
  assert subsets[0] < subsets[1] < subsets[2] < subsets[3]
  message = (
    r"subset\.pairs is 61, but .* has 60 clean pairs, of 61\. .* most 60"
  )
  with pytest.raises(InputError, match=message):
    rows_of_subset(prepare_job, 61, 5)
  # Chi-square over 300 seeds: 20 of 60 lines.
  counts = np.zeros(60)
  for seed in range(300):
    rows = rows_of_subset(prepare_job, 20, seed)
    assert len(rows) == 20 and rows == sorted(rows)
    counts[rows] += 1
  # Of a count the variance is 300 (1/3) (2/3); 59 degrees of freedom.
  chi = ((counts - 300 / 3) ** 2).sum() / (300 * 2 / 9) * 59 / 60
  assert 35 < chi < 90


def test_a_subset_is_drawn_before_subwords_are_counted(tmp_path):
  config = corpus(tmp_path)
  config.prepare.subset.update(pairs=40, seed=1)
  config.prepare.max_subwords = 10
  folder = build.run(config)
  train = manifests.read(folder)["splits"]["train"]
  assert train["dropped"]["max_subwords"] > 0
  assert train["examples"] == 40 - train["dropped"]["max_subwords"]
  verify.run(folder)
  config.prepare.subset.pairs = 0
  assert "subset" not in manifests.read(build.run(config))["splits"]["train"]


def test_worker_processes_load_neither_jax_nor_tensorflow(whole, tmp_path):
  config = read_config(again(whole, tmp_path))
  sections = DataConfig(config.data, config.prepare)
  prepare_job = inputs.read_inputs(sections)
  with runners.start_workers(prepare_job, 2) as workers:
    run_tasks = functools.partial(runners.run_on_workers, workers)
    stages.run(prepare_job, run_tasks)
    found = [workers.submit(loaded_modules.heavy).result() for _ in range(4)]
  assert found == [[]] * 4
  assert stages.results(prepare_job, "shards")


def test_a_worker_of_beam_loads_a_parser_once_in_each_thread(whole):
  config = read_config(whole[0])
  loaded = inputs.read_inputs(config)
  loaded.__dict__["parsers"] = lambda: None  # which cannot be pickled
  pickled = pickle.dumps(loaded)
  first = runners.job_of(pickled)
  assert runners.job_of(bytes(bytearray(pickled))) is first
  with futures.ThreadPoolExecutor(1) as pool:
    assert pool.submit(runners.job_of, pickled).result() is not first


def test_reports_missing_beam_and_unknown_options():
  with pytest.raises(InputError, match=r"--beam=--a 'b: No closing quotation"):
    runners.beam("--a 'b")
  try:
    import apache_beam  # noqa: F401
  except ImportError:
    message = r"pip install -e '\.\[beam\]'"
  else:
    message = "has an option --runnner=DirectRunner"
  with pytest.raises(InputError, match=message):
    runners.beam("--runnner=DirectRunner")


IN_MEMORY = "--direct_running_mode=in_memory"


@pytest.fixture(scope="module")
def beam():
  """Returns a function from options of Beam to a runner."""
  pytest.importorskip("apache_beam", reason="Apache Beam is an extra")
  return runners.beam


def test_runs_on_beam_in_this_process(whole, tmp_path, beam):
  config = again(whole, tmp_path, copy_raw=True)
  runner = beam(f"--runner=DirectRunner {IN_MEMORY}")
  assert records_of(build.run(config, runner=runner)) == whole[2]
  path = raw_of(config) / "test.conllu"
  path.write_bytes(path.read_bytes().replace(b"\t_\t", b"\t", 1))
  check_rejected(config, r"^\S*test\.conllu:1: 9 columns", runner=runner)


def block_folder(prepare_job, raw):
  prepare_job.outputs.folder.mkdir(parents=True)
  (prepare_job.outputs.folder / "read").write_text("")  # where a folder must be


def hide_text(prepare_job, raw):
  (raw / "train.en").unlink()


@pytest.mark.parametrize(
  ("change", "message"),
  [
    (block_folder, r"'read' has failed: \w+Error.* All machines"),
    (hide_text, r"train\.en is missing or is not a file\. All mac"),
  ],
)
def test_beam_reports_why_it_failed(whole, tmp_path, beam, change, message):
  config = again(whole, tmp_path, copy_raw=True)

  def runner(prepare_job):
    change(prepare_job, tmp_path / "raw")
    return beam(IN_MEMORY)(prepare_job)

  check_rejected(config, message, runner=runner)


def test_runs_on_beam_with_two_processes(whole, tmp_path, beam):
  config = again(whole, tmp_path)
  options = "--runner=DirectRunner --direct_num_workers=2"
  options += " --direct_running_mode multi_processing"
  words = command(config, "--beam", options)
  done = subprocess.run(words, cwd=ROOT, capture_output=True, check=False)
  assert done.returncode == 0, done.stderr
  assert records_of(config.data.directory) == whole[2]


def test_runs_on_dask_with_an_object_store_and_a_killed_worker(tmp_path, beam):
  distributed = pytest.importorskip("distributed", reason="not installed")
  config = corpus(tmp_path, train=1500, test=40)  # three chunks
  config.prepare.shard_mib = 1.0
  config.prepare.workers = 1
  config.prepare.parse.source_conllu = {}
  model = tmp_path / "toy.udpipe"
  model.write_bytes(parser.train_parser(toy_corpus.pairs(40, seed=1)))
  config.prepare.parse.source.udpipe.model = str(model)
  due = records_of(build.run(config))
  raw, killed = raw_of(config), []
  port = object_store.free_port()
  with object_store.running(object_store.moto(port), port):
    bucket = object_store.BUCKET
    remote.filesystem(bucket).mkdir(bucket)
    remote.upload(raw, f"{bucket}/raw", files.names(raw))
    raw.rename(tmp_path / "elsewhere")
    config.prepare.raw_dir = f"{bucket}/raw"
    config.data.directory = f"{bucket}/data"
    with distributed.LocalCluster(
      n_workers=2, threads_per_worker=1, dashboard_address=None
    ) as cluster:

      def kill():
        while not files.names(f"{bucket}/data/work/parse"):
          time.sleep(0.02)
        killed.append(next(iter(cluster.workers.values())).pid)
        os.kill(killed[0], signal.SIGKILL)

      threading.Thread(target=kill, daemon=True).start()
      address = f"--dask_client_address={cluster.scheduler_address}"
      dask = "apache_beam.runners.dask.dask_runner.DaskRunner"
      options = f"--runner={dask} {address} --dask_partition_size=1"
      build.run(config, runner=beam(options))
    assert killed
    names = set(files.names(f"{bucket}/data"))
    names = {x for x in names if not x.startswith(("work/", "manifest.json"))}
    found = {name: files.read_bytes(f"{bucket}/data/{name}") for name in names}
    assert found == due
