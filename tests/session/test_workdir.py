"""Run directories: creation, resuming, restored copies, corrupt configs."""

import json
import shutil

import pytest

from jaxsyn import train
from jaxsyn.config import read_config
from jaxsyn.data.store import manifests
from jaxsyn.data.store.tfrecord import records_sha256
from jaxsyn.errors import InputError
from jaxsyn.session import Session, workdir
from jaxsyn.storage import checksums, files
from jaxsyn.training import log


@pytest.mark.parametrize(
  "section, field, value, message",
  [
    ("batch", "tokens", 4, "config.batch.tokens"),
    ("data", "train", "trian", "no split 'trian'"),
    ("data", "validation", "dev", "no split 'dev'"),
    ("data", "directory", "/nowhere", "/nowhere is missing"),
    ("optimiser", "name", "sdg", "did you mean|Did you mean|Known"),
  ],
)
def test_a_rejected_config_leaves_no_directory(
  tiny, tmp_path, section, field, value, message
):
  config = tiny()
  config[section][field] = value
  with pytest.raises(InputError, match=message):
    train.run(config, tmp_path / "runs" / "new")
  assert list(tmp_path.iterdir()) == []


def create(config, folder):
  return workdir.create(folder, read_config(config))


@pytest.mark.parametrize("folder", ["checkpoints", "best"])
def test_the_config_may_change_until_the_first_checkpoint(
  tiny, tmp_path, folder
):
  config = tiny()
  create(config, tmp_path)
  config.model.width = 64
  create(config, tmp_path)
  assert workdir.open_run(tmp_path).config.model.width == 64
  (tmp_path / folder / "2").mkdir(parents=True)
  create(config, tmp_path)
  config.model.width = 32
  with pytest.raises(InputError, match=r"config\.model\.width was 64 and is"):
    create(config, tmp_path)


def test_a_run_on_a_mixture_resumes_with_the_same_corpora(
  tiny, prepared, tmp_path
):
  other = tmp_path / "other"
  shutil.copytree(prepared, other, ignore=shutil.ignore_patterns("work"))
  config = tiny("transformer")
  config.model.transformer.encoder_layers = config.batch.shapes = 1
  config.data.mixture.update(folders=(str(other),), tags=True)
  config.train.update(steps=3, evaluate_every=3, save_every=3, log_every=3)
  config.train.selection = "log_likelihood"
  run = tmp_path / "run"
  assert train.run(config, run).step == 3
  records, _ = log.records(run)
  counts = records[0]["examples/tiny"], records[0]["examples/other"]
  assert min(counts) > 0
  assert len(Session(run)(["the dog sees a cat ."])) == 1
  assert train.run(config, run).step == 3
  path = run / workdir.MIXTURE
  original = path.read_bytes()
  path.write_bytes(original[:-5])
  with pytest.raises(InputError, match=r"mixture.json is corrupt"):
    train.run(config, run)
  path.write_bytes(original)
  # The other dataset is prepared again.
  manifest = manifests.read(other)
  shards = manifest["splits"]["train"]["shards"]
  shards[0]["sha256"] = "7" * 64
  hashes = [shard["sha256"] for shard in shards]
  manifest["splits"]["train"]["records_sha256"] = records_sha256(hashes)
  manifests.write(other, manifest)
  with pytest.raises(InputError, match=r"other data than .*other, of config"):
    train.run(config, run)


def test_a_corrupt_copy_is_restored(tiny, tmp_path):
  run, config, name = tmp_path / "run", tiny(), "parser.source.udpipe"
  create(config, run)
  path = run / name
  content = path.read_bytes()
  unfinished = run / f".{name}.1234{files.PARTIAL}"  # left by a killed process
  unfinished.write_bytes(content[:9])
  for corrupt in (content[:-9] + b"x" * 9, b"", None):
    path.unlink() if corrupt is None else path.write_bytes(corrupt)
    create(config, run)
    assert path.read_bytes() == content
  assert not unfinished.exists()
  # An intact copy is kept if the dataset is corrupt.
  data = tmp_path / "data"
  shutil.copytree(config.data.directory, data, symlinks=True)
  (data / name).write_bytes(b"corrupt")
  config.data.directory = str(data)
  create(config, run)
  assert path.read_bytes() == content
  path.unlink()
  with pytest.raises(InputError, match=rf"data/{name} is missing or differs"):
    create(config, run)


def test_a_changed_number_in_a_config_is_rejected(tiny, tmp_path):
  """Other corruption of it: tests/faults."""
  create(tiny(), tmp_path)
  path = tmp_path / workdir.CONFIG
  path.write_text(path.read_text().replace('"alpha": 1.0', '"alpha": 5.0'))
  with pytest.raises(InputError, match=rf"^{path} is corrupt"):
    workdir.open_run(tmp_path)


def test_an_option_that_a_recorded_config_lacks_has_its_default(tiny, tmp_path):
  create(tiny(), tmp_path)
  path = tmp_path / workdir.CONFIG
  document = checksums.verify_checksum(json.loads(path.read_text()))
  del document["prepare"]["alignments"]
  path.write_text(json.dumps(checksums.add_checksum(document)))
  (tmp_path / "checkpoints" / "2").mkdir(parents=True)
  assert workdir.open_run(tmp_path).config.prepare.alignments == {}
  create(tiny(), tmp_path)
