"""The folder of a run: begun late, one at a time, whole or named."""

import json
import shutil

import pytest

from jaxsyn import train
from jaxsyn.config import read_config
from jaxsyn.configs import base
from jaxsyn.data.store import manifests
from jaxsyn.data.store.tfrecord import records_sha256
from jaxsyn.errors import InputError
from jaxsyn.session import Session, workdir
from jaxsyn.storage import checksums
from jaxsyn.training import log


@pytest.mark.parametrize(
  "section, field, value, message",
  [
    ("batch", "tokens", 4, "config.batch.tokens"),
    ("data", "train", "trian", "no split 'trian'"),
    ("data", "validation", "dev", "no split 'dev'"),
    ("data", "directory", "/nowhere", "/nowhere is missing"),
    ("model", "heads", 3, "config.model has no option 'heads'"),
    ("optimiser", "name", "sdg", "did you mean|Did you mean|Known"),
  ],
)
def test_a_refused_first_run_leaves_nothing(
  tiny, tmp_path, section, field, value, message
):
  config = tiny()
  config[section][field] = value
  with pytest.raises(InputError, match=message):
    train.run(config, tmp_path / "runs" / "new")
  assert list(tmp_path.iterdir()) == []


def created(config, folder):
  return workdir.create(folder, read_config(config))


def test_the_config_may_change_until_there_is_a_checkpoint(tiny, tmp_path):
  config = tiny()
  created(config, tmp_path)
  config.model.width = 64
  created(config, tmp_path)
  assert workdir.open_run(tmp_path).config.model.width == 64
  (tmp_path / "checkpoints" / "2").mkdir(parents=True)
  created(config, tmp_path)
  config.model.width = 32
  with pytest.raises(InputError, match=r"config\.model\.width was 64 and is"):
    created(config, tmp_path)
  (tmp_path / "checkpoints" / "2").rmdir()
  (tmp_path / "best" / "2").mkdir(parents=True)  # would be another model's
  with pytest.raises(InputError, match=r"config\.model\.width was 64 and is"):
    created(config, tmp_path)


def test_a_run_on_a_mixture_goes_on_with_the_same_corpora(
  tiny, prepared, tmp_path
):
  other = tmp_path / "other"
  shutil.copytree(prepared, other, ignore=shutil.ignore_patterns("work"))
  config = tiny("transformer")
  config.data.mixture.update(folders=(str(other),), tags=True)
  config.train.update(steps=3, evaluate_every=3, save_every=3, log_every=3)
  config.train.selection = "log_likelihood"
  run = tmp_path / "run"
  assert train.run(config, run).step == 3
  records, _ = log.records(run)
  counts = records[0]["examples/tiny"], records[0]["examples/other"]
  assert min(counts) > 0
  assert train.run(config, run).step == 3
  translated = Session(run)(["the dog sees a cat ."])
  assert len(translated) == 1
  manifest = manifests.read(other)
  original = (run / workdir.MIXTURE).read_bytes()
  (run / workdir.MIXTURE).write_bytes(original[:-5])
  with pytest.raises(InputError, match=r"mixture.json is corrupt"):
    train.run(config, run)
  (run / workdir.MIXTURE).write_bytes(original)
  # As if it had been prepared again.
  edited = manifest["splits"]["train"]["shards"][0]
  edited["sha256"] = "7" * 64
  hashes = [s["sha256"] for s in manifest["splits"]["train"]["shards"]]
  manifest["splits"]["train"]["records_sha256"] = records_sha256(hashes)
  manifests.write(other, manifest)
  with pytest.raises(InputError, match=r"other data than .*other, of config"):
    train.run(config, run)


@pytest.mark.parametrize("name", ["vocabulary.model", "parser.source.udpipe"])
def test_a_damaged_copy_is_made_again(tiny, tmp_path, name):
  run = tmp_path / "run"
  created(tiny(), run)
  path = run / name
  content = path.read_bytes()
  for other in (content[:-9] + b"x" * 9, content[:9], b"", None):
    path.unlink() if other is None else path.write_bytes(other)
    created(tiny(), run)
    assert path.read_bytes() == content
  # And where the data is corrupt, what the run has is whole still.
  data = tmp_path / "data"
  shutil.copytree(tiny().data.directory, data, symlinks=True)
  (data / name).write_bytes(b"damaged")
  config = tiny()
  config.data.directory = str(data)
  created(config, run)
  assert path.read_bytes() == content
  path.unlink()
  with pytest.raises(InputError, match=rf"data/{name} is missing or not what"):
    created(config, run)


@pytest.fixture
def run(tiny, tmp_path):
  created(tiny(), tmp_path / "run")
  return tmp_path / "run"


def test_any_other_config_is_one_message_with_its_file(run):
  path = run / "config.json"
  text = path.read_text()
  complete = checksums.verify_checksum(json.loads(text))

  def sealed():
    return json.dumps(checksums.add_checksum(complete))

  pages = ["", "{", "[]", "null", "7", '"x"', "[" * 100_000, "1" * 10_000]
  pages += [text[: len(text) // 2], "{}"]

  def others(value, where):
    """The config with each of its values once of each wrong kind."""
    items = list(value.items()) if isinstance(value, dict) else ()
    for name, old in items:
      for new in (None, [None], {"x": 1}, "\0", 1.5):
        if type(new) is type(old) or (old is None):
          continue
        value[name] = new
        yield sealed(), (*where, name), new
        value[name] = old
      del value[name]
      yield sealed(), (*where, name), "missing"
      value[name] = old
      yield from others(value[name], (*where, name))

  def refused(document):
    path.write_text(document)
    try:
      workdir.open_run(run)
    except InputError as error:
      assert str(error).startswith(str(path)), error
      return True
    return False

  assert all(map(refused, pages))
  assert '"alpha": 1.0' in text and refused(text.replace('ha": 1', 'ha": 5'))
  path.write_bytes(b"\xff\xfe" + text.encode())
  with pytest.raises(InputError, match=r"config\.json is corrupt"):
    workdir.open_run(run)
  tried = [
    (where, new, refused(page)) for page, where, new in others(complete, ())
  ]
  # Free text takes any string; options of parts may be left out.
  chosen = [(where, new) for where, new, no in tried if not no]
  free = ("parts", "losses")
  assert len(tried) > 400
  assert [t for t in chosen if t[0][0] not in free and t[1] != "missing"] == []


def lines(folder):
  return (folder / log.FILE).read_text(encoding="utf-8").splitlines()


def test_a_log_that_a_kill_cut_is_gone_on_with(tmp_path, caplog):
  written = log.Log(tmp_path, read_config(base.get_config()), 0)
  for step in (1, 2, 3, 4):
    written.record("train", step, {"loss": 1 / step, "minutes": 0.5})
  written.close()
  before = lines(tmp_path)
  with (tmp_path / log.FILE).open("a") as file:
    file.write(before[3][:20])
  log.Log(tmp_path, read_config(base.get_config()), 3).close()
  assert lines(tmp_path) == before[:3]  # to the byte
  assert caplog.text == ""


def test_flipped_bytes_of_a_log_are_reported(tmp_path, caplog):
  good = '{"kind": "train", "step": %d, "minutes": 0.5, "loss": 2.0}'
  bad = [
    good.replace("train", "tr\x00in"),
    good.replace("step", "stfp"),
    "7",
    "[1]",
    "null",
    good.replace("0.5", '"0.5"'),
    good.replace("%d", '"a"'),
    good.replace("2.0", "{}"),
    "[" * 100_000,
    "1" * 10_000,
    good[9:],
  ]
  path = tmp_path / log.FILE
  path.write_bytes(
    b"\n".join([(good % 1).encode(), b"\xff\xfe{", *map(str.encode, bad)])
    + f"\n{good % 2}\n".encode()
  )
  result, corrupt = log.records(tmp_path)
  assert [record["step"] for record in result] == [1, 2]
  assert corrupt == list(range(2, 3 + len(bad)))
  log.Log(tmp_path, read_config(base.get_config()), 1).close()
  assert lines(tmp_path) == [good % 1]
  assert "dropped corrupt lines: 2, 3, 4" in caplog.text


def test_an_option_that_a_recorded_config_lacks_has_its_default(tiny, tmp_path):
  created(tiny(), tmp_path)
  document = checksums.verify_checksum(
    json.loads((tmp_path / workdir.CONFIG).read_text())
  )
  del document["prepare"]["alignments"]
  (tmp_path / workdir.CONFIG).write_text(
    json.dumps(checksums.add_checksum(document))
  )
  (tmp_path / "checkpoints" / "2").mkdir(parents=True)
  assert workdir.open_run(tmp_path).config.prepare.alignments == {}
  created(tiny(), tmp_path)
  assert read_config(document).prepare.alignments == {}
