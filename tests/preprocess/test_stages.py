"""The same files are made by any number of chunks, processes and machines."""

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
import object_store
import pytest
import stage_runs
from raw_corpora import command, corpus, nothing_made, records_of

from jaxsyn.config import read_config
from jaxsyn.data.options import DataConfig
from jaxsyn.data.store import manifests
from jaxsyn.errors import InputError
from jaxsyn.preprocess import (
  build,
  clean,
  inputs,
  job,
  runners,
  stages,
  vocabulary,
)
from jaxsyn.preprocess.outputs import Outputs
from jaxsyn.preprocess.toy import corpus as toy_corpus
from jaxsyn.preprocess.toy import parser
from jaxsyn.storage import files, remote

ROOT = pathlib.Path(__file__).resolve().parents[2]


def large(tmp_path):
  """A corpus of several chunks and shards, of which cleaning drops some."""
  config = corpus(tmp_path, train=2500, test=40)
  config.prepare.shard_mib = 0.2
  config.prepare.clean.update(duplicates=True, max_words=7)
  config.prepare.workers = 1
  return config


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
  """A config, the folder that it prepares, and the bytes of that."""
  config = large(tmp_path_factory.mktemp("whole"))
  folder = build.run(config)
  return config, folder, records_of(folder)


def again(whole, tmp_path):
  """The same input for another folder."""
  config = whole[0].copy_and_resolve_references()
  config.data.directory = str(tmp_path / "out")
  return config


def test_trains_the_vocabulary_on_a_sample(tmp_path, monkeypatch):
  """The sample has about the right size and does not depend on the order."""
  monkeypatch.setattr(vocabulary, "_SAMPLE", 100)
  pairs = [(f"{i} a", f"{i} b") for i in range(400)]
  samples = []
  for name, ordered in (("one", pairs), ("two", pairs[::-1])):
    context = stage_runs.context_of(
      tmp_path / name, {"train": [*zip(*ordered)]}
    )
    stage_runs.run(context)
    samples.append(set(vocabulary.sampled_pairs(context)))
  assert samples[0] == samples[1] and 70 < len(samples[0]) < 130


def test_shards_are_full_and_hold_the_same_examples(whole):
  manifest = manifests.read(whole[1])
  train = manifest["splits"]["train"]
  assert len(train["shards"]) > 3
  assert train["lines"] == train["examples"] + sum(train["dropped"].values())
  assert train["dropped"]["duplicates"] > 50 < train["dropped"]["max_words"]
  # Each but the last is full, and would not be without its last record.
  limit = 0.2 * (1 << 20)
  sizes = [shard["bytes"] for shard in train["shards"]]
  assert all(limit <= size < limit + 2000 for size in sizes[:-1])
  for side in ("source", "target"):
    paths = manifests.sentence_files(whole[1], manifest, "text", "train", side)
    counts = [gzip.decompress(p.read_bytes()).count(b"\n") for p in paths]
    assert counts == [shard["examples"] for shard in train["shards"]]


def test_two_processes_give_the_same_files(whole, tmp_path):
  config = again(whole, tmp_path)
  config.prepare.workers = 2
  assert records_of(build.run(config)) == whole[2]


def test_the_first_of_several_errors_is_reported(whole, tmp_path):
  config = again(whole, tmp_path)
  config.prepare.workers = 2
  raw = tmp_path / "raw"
  shutil.copytree(config.prepare.raw_dir, raw)
  blocks = (raw / "train.conllu").read_text().split("\n\n")
  for index in (2300, 1500):
    blocks[index] = blocks[index].replace("\t_\t", "\t", 1)
  (raw / "train.conllu").write_text("\n\n".join(blocks))
  config.prepare.raw_dir = str(raw)
  config.prepare.parse.source_conllu.train = "train.conllu"
  line = 1 + "\n\n".join(blocks[:1500]).count("\n") + 2
  with pytest.raises(InputError, match=rf"train\.conllu:{line}: 9 columns"):
    build.run(config)
  assert nothing_made(config)


def test_records_do_not_depend_on_chunks(whole, tmp_path, monkeypatch):
  monkeypatch.setattr(job, "MIN_LINES", 64)
  monkeypatch.setattr(job, "MAX_LINES", 64)
  monkeypatch.setattr(clean, "_PARTITION_PAIRS", 900)
  assert records_of(build.run(again(whole, tmp_path))) == whole[2]


def test_several_files_per_side_make_the_same_records(whole, tmp_path):
  """Several files a side, by name or pattern; or two columns of one."""
  config = again(whole, tmp_path)
  raw = pathlib.Path(config.prepare.raw_dir)
  source = (raw / "train.en").read_bytes().splitlines(keepends=True)
  target = gzip.decompress((raw / "train.de.gz").read_bytes())
  target = target.splitlines(keepends=True)
  parts = tmp_path / "parts"
  parts.mkdir()
  for path in raw.iterdir():
    shutil.copy(path, parts)
  (parts / "a.en").write_bytes(b"".join(source[:700]))
  (parts / "b.en.gz").write_bytes(gzip.compress(b"".join(source[700:])))
  for i in range(3):
    part = b"".join(target[1000 * i : 1000 * (i + 1)])
    (parts / f"train-{i}.de").write_bytes(part)
  config.prepare.raw_dir = str(parts)
  config.prepare.splits.train = ("a.en,b.en.gz", "train-?.de")
  folder = build.run(config)
  assert records_of(folder) == whole[2]
  named = manifests.read(folder)["splits"]["train"]["files"]
  assert named == ["a.en", "b.en.gz", *(f"train-{i}.de" for i in range(3))]
  table = b"".join(
    a[:-1] + b"\t" + b for a, b in zip(source, target, strict=True)
  )
  (parts / "train.tsv.gz").write_bytes(gzip.compress(table))
  config.prepare.splits.train = ("train.tsv.gz",)
  assert records_of(build.run(config)) == whole[2]


def test_names_files_of_unequal_length(tmp_path):
  config = corpus(tmp_path)
  raw = pathlib.Path(config.prepare.raw_dir)
  for name, count in (("a.en", 3), ("b.en", 5), ("a.de", 3), ("b.de", 4)):
    (raw / name).write_text("x\n" * count)
  config.prepare.parse.sides = ()
  config.prepare.splits.train = ("a.en,b.en", "a.de,b.de")
  with pytest.raises(
    InputError, match=r"b\.en has 5 lines, but \S*b\.de has 4: .* line 5 of"
  ):
    build.run(config)


def test_reads_zstandard(whole, tmp_path):
  zstandard = pytest.importorskip("zstandard", reason="not installed")
  config = corpus(tmp_path)
  expected = records_of(build.run(config))
  raw = pathlib.Path(config.prepare.raw_dir)
  text = (raw / "train.en").read_bytes()
  cut = len(text) // 2
  pack = zstandard.ZstdCompressor().compress
  packed = pack(text[:cut]) + pack(text[cut:])  # of two frames
  (raw / "train.en.zst").write_bytes(packed)
  config.prepare.splits.train = ("train.en.zst", "train.de.gz")
  assert records_of(build.run(config)) == expected
  (raw / "train.en.zst").write_bytes(packed[:-5])
  with pytest.raises(InputError, match=r"train\.en\.zst cannot be unpacked"):
    build.run(config)


def interrupted(config, monkeypatch):
  """Prepares all but the publication; returns the folder of task outputs."""

  def stop(*_):
    raise KeyboardInterrupt

  with monkeypatch.context() as patch:
    patch.setattr(build.publish, "publish", stop)
    with pytest.raises(KeyboardInterrupt):
      build.run(config)
  (folder,) = pathlib.Path(config.data.directory).glob("work/stages-*")
  return folder


@pytest.mark.parametrize("piece", ["read/0", "duplicates/0", "encode/1"])
def test_rebuilds_corrupt_outputs(whole, tmp_path, monkeypatch, piece):
  config = again(whole, tmp_path)
  folder = interrupted(config, monkeypatch)
  data = (folder / piece).read_bytes()
  flipped = data[:100] + bytes([data[100] ^ 1]) + data[101:]
  (folder / piece).write_bytes(flipped)
  for later in ("trees", "shards"):
    shutil.rmtree(folder / later)
  (new,) = (tmp_path / "out").glob(".new-*")
  (new / "text" / ".train.source.gz.0123.partial").write_bytes(b"half")
  with pytest.raises(InputError, match=rf"{piece} changed while .* again"):
    build.run(config)
  assert records_of(build.run(config)) == whole[2]


def test_rebuilds_a_corrupt_shard_before_publication(
  whole, tmp_path, monkeypatch
):
  config = again(whole, tmp_path)
  interrupted(config, monkeypatch)
  shard = sorted((tmp_path / "out").glob(".new-*/toy/*/*tfrecord*"))[0]
  data = bytearray(shard.read_bytes())
  data[500] ^= 1
  shard.write_bytes(data)
  assert records_of(build.run(config)) == whole[2]


def test_repeats_unfinished_work_of_an_older_version(
  whole, tmp_path, monkeypatch
):
  config = again(whole, tmp_path)
  folder = interrupted(config, monkeypatch)
  older = folder.rename(folder.with_name(folder.name.rpartition("-")[0]))
  assert records_of(build.run(config)) == whole[2]
  assert not older.exists()


def test_runs_on_beam_in_this_process(whole, tmp_path):
  pytest.importorskip("apache_beam", reason="Apache Beam is an extra")
  config = again(whole, tmp_path)
  options = ["--runner=DirectRunner", "--direct_running_mode=in_memory"]
  runner = functools.partial(runners.beam, options)
  assert records_of(build.run(config, runner=runner)) == whole[2]
  path = pathlib.Path(config.prepare.raw_dir) / "test.conllu"
  raw = tmp_path / "raw"
  shutil.copytree(config.prepare.raw_dir, raw)
  config.prepare.raw_dir = str(raw)
  config.prepare.parse.source_conllu.test = str(raw / path.name)
  (raw / path.name).write_bytes(path.read_bytes().replace(b"\t_\t", b"\t", 1))
  with pytest.raises(InputError, match=r"^\S*test\.conllu:1: 9 columns"):
    build.run(config, runner=runner)


IN_MEMORY = ["--direct_running_mode=in_memory"]


def block_folder(context, raw):
  context.outputs.folder.mkdir(parents=True)
  (context.outputs.folder / "read").write_text("")  # where a folder must be


def hide_text(context, raw):
  (raw / "train.en").unlink()


@pytest.mark.parametrize(
  ("options", "change", "message"),
  [
    (IN_MEMORY, block_folder, r"'read' has failed: \w+Error.* All machines"),
    (
      IN_MEMORY,
      hide_text,
      r"train\.en is missing or is not a file\. All machines",
    ),
    (["--runner=DataflowRunner"], None, r"cannot read \S*/out/work/.*s3:"),
  ],
)
def test_beam_reports_why_it_failed(whole, tmp_path, options, change, message):
  pytest.importorskip("apache_beam", reason="Apache Beam is an extra")
  config = again(whole, tmp_path)
  raw = tmp_path / "raw"
  shutil.copytree(config.prepare.raw_dir, raw)
  config.prepare.raw_dir = str(raw)

  def runner(context):
    if change:
      change(context, raw)
    return runners.beam(options, context)

  with pytest.raises(InputError, match=message):
    build.run(config, runner=runner)


def test_runs_on_beam_with_two_processes(whole, tmp_path):
  pytest.importorskip("apache_beam", reason="Apache Beam is an extra")
  config = again(whole, tmp_path)
  flags = ["--beam", "--runner=DirectRunner", "--direct_num_workers=2"]
  flags += ["--direct_running_mode", "multi_processing"]
  words = command(config, *flags)
  done = subprocess.run(words, cwd=ROOT, capture_output=True, check=False)
  assert done.returncode == 0, done.stderr
  assert records_of(config.data.directory) == whole[2]


def test_runs_on_dask_with_an_object_store_and_a_killed_worker(
  tmp_path, monkeypatch
):
  pytest.importorskip("apache_beam", reason="Apache Beam is an extra")
  distributed = pytest.importorskip("distributed", reason="not installed")
  config = corpus(tmp_path, train=1500, test=40)  # three chunks
  config.prepare.shard_mib = 1.0
  config.prepare.workers = 1
  config.prepare.parse.source_conllu = {}
  model = tmp_path / "toy.udpipe"
  model.write_bytes(parser.train_parser(toy_corpus.pairs(40, seed=1)))
  config.prepare.parse.source.udpipe.model = str(model)
  due = records_of(build.run(config))
  raw, killed = pathlib.Path(config.prepare.raw_dir), []
  port = object_store.free_port()
  with object_store.running(object_store.moto(port), port):
    bucket, cache = object_store.BUCKET, tmp_path / "cache"
    remote.filesystem(bucket).mkdir(bucket)
    remote.upload(raw, f"{bucket}/raw", files.names(raw))
    raw.rename(tmp_path / "elsewhere")
    config.prepare.raw_dir = f"{bucket}/raw"
    config.data.directory = f"{bucket}/data"
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache))
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
      options = [f"--runner={dask}", address, "--dask_partition_size=1"]
      build.run(config, runner=functools.partial(runners.beam, options))
    assert killed
    names = files.names(f"{bucket}/data")
    assert {
      name: files.read_bytes(f"{bucket}/data/{name}")
      for name in names
      if not name.startswith(("work/", "manifest.json"))
    } == due
  (copy,) = (cache / "jaxsyn" / "files").glob("*/*")
  assert copy.read_bytes() == model.read_bytes()


def test_worker_processes_load_neither_jax_nor_tensorflow(whole, tmp_path):
  config = read_config(again(whole, tmp_path))
  sections = DataConfig(config.data, config.prepare)
  loaded = inputs.read_inputs(sections, "", tmp_path / "raw")
  outputs = Outputs(tmp_path / "stages")
  prepare_job = loaded.job(outputs, tmp_path / "new", tmp_path / "work")
  with runners.start_workers(prepare_job, 2) as workers:
    run_tasks = functools.partial(runners.run_on_workers, workers)
    stages.run(job.JobContext(prepare_job), run_tasks)
    found = [workers.submit(loaded_modules.heavy).result() for _ in range(4)]
  assert found == [[]] * 4
  assert stages.results(job.JobContext(prepare_job), "shards")


def test_a_worker_of_beam_loads_a_parser_once_in_each_thread(whole):
  config = read_config(whole[0])
  loaded = inputs.read_inputs(config, "", whole[1] / "raw")
  outputs = Outputs(whole[1] / "work" / "stages")
  pickled = pickle.dumps(
    loaded.job(outputs, whole[1] / "new", whole[1] / "work")
  )
  first = runners.context_of(pickled)
  assert runners.context_of(bytes(bytearray(pickled))) is first
  with futures.ThreadPoolExecutor(1) as pool:
    assert pool.submit(runners.context_of, pickled).result() is not first


def test_splits_the_command_line_for_beam():
  ours, theirs = runners.split_command_line(
    [
      "x",
      "--config",
      "a.py",
      "--runner=R",
      "--config.seed=1",
      "--project",
      "p",
    ],
    {"config", "raw_dir", "beam"},
  )
  assert ours == ["x", "--config", "a.py", "--config.seed=1"]
  assert theirs == ["--runner=R", "--project", "p"]


def test_reports_missing_beam_and_unknown_options(whole, tmp_path):
  flag = "--runnner=DirectRunner"
  words = command(again(whole, tmp_path), "--beam", flag)
  done = subprocess.run(
    words, cwd=ROOT, capture_output=True, text=True, check=False
  )
  assert done.returncode == 2 and "Traceback" not in done.stderr
  try:
    import apache_beam  # noqa: F401
  except ImportError:
    assert "pip install -e '.[beam]'" in done.stderr
  else:
    assert f"has an option {flag}" in done.stderr
