"""Logs that were cut or corrupted; TensorBoard and Weights & Biases files."""

import dataclasses
import io
import json
import sys
import time

import pytest
from matplotlib.figure import Figure
from matplotlib.image import imread

from jaxsyn.config import read_config
from jaxsyn.configs import base
from jaxsyn.data.store import tfrecord
from jaxsyn.errors import InputError
from jaxsyn.training import log
from jaxsyn.training.options import Writers

SAMPLE = log.Sample("a <b> c", "x | y", "")


@pytest.fixture
def config():
  config = read_config(base.get_config())

  def make(**writers):
    train = dataclasses.replace(config.train, writers=Writers(**writers))
    return dataclasses.replace(config, train=train)

  return make


def figure():
  made = Figure((1, 1), dpi=20)
  made.patch.set_facecolor("#ff0000")
  return made


def write(folder, config, start, steps):
  """Logs records of some steps."""
  written = log.Log(folder, config, start)
  for step in steps:
    values = {"loss": 1.0 / step, "minutes": 0.5, "tokenizer": "13a"}
    written.record("train", step, values)
  written.record("validation", step, {"best_bleu": 12.5, "minutes": 0.5})
  written.samples(step, [SAMPLE])
  written.figures(step, [("attention/1", figure())])
  written.close()


def lines(folder):
  return (folder / log.FILE).read_text(encoding="utf-8").splitlines()


def test_a_log_that_was_cut_is_continued(config, tmp_path, caplog):
  config = config(tensorboard=False)
  write(tmp_path, config, 0, (1, 2, 3, 4))
  before = lines(tmp_path)
  with (tmp_path / log.FILE).open("a") as file:
    file.write(before[3][:20])
  log.Log(tmp_path, config, 3).close()
  assert lines(tmp_path) == before[:3]  # to the byte
  assert caplog.text == ""


def test_corrupt_lines_are_reported(config, tmp_path, caplog):
  good = '{"kind": "train", "step": 1, "minutes": 0.5, "loss": 2.0}'
  bad = [
    good.replace("train", "trian"),
    good.replace("step", "stfp"),
    "7",
    "[1]",
    "null",
    good.replace("0.5", '"0.5"'),
    good.replace("1", '"a"'),
    good.replace("2.0", "{}"),
    "[" * 100_000,
    "1" * 10_000,
    good[9:],
  ]
  content = [good.encode(), b"\xff\xfe{", *map(str.encode, bad)]
  content.append(good.replace("1", "2").encode())
  (tmp_path / log.FILE).write_bytes(b"".join(b"%s\n" % one for one in content))
  result, corrupt = log.records(tmp_path)
  assert [record["step"] for record in result] == [1, 2]
  assert corrupt == list(range(2, 3 + len(bad)))
  log.Log(tmp_path, config(tensorboard=False), 1).close()
  assert lines(tmp_path) == [good]
  assert "dropped corrupt lines: 2, 3, 4" in caplog.text


def events(folder):
  """Yields the values in all TensorBoard files of a folder."""
  from tensorboardX.proto.event_pb2 import Event

  for path in sorted(folder.glob("events.*")):
    for payload in tfrecord.scan(path):
      event = Event.FromString(payload)
      for value in event.summary.value:
        yield event.step, value


def test_tensorboard_files(config, tmp_path):
  write(tmp_path, config(), 0, (1, 2, 4))
  result = list(events(tmp_path))
  losses = {s: v.simple_value for s, v in result if v.tag == "train/loss"}
  assert losses == {1: 1.0, 2: 0.5, 4: 0.25}
  (best,) = [v for _, v in result if v.tag == "validation/best_bleu"]
  assert best.simple_value == 12.5
  (text,) = [v for _, v in result if v.tag.startswith("samples")]
  assert b"a <b> c" in text.tensor.string_val[0]
  (image,) = [v.image for _, v in result if v.tag == "attention/1"]
  pixels = imread(io.BytesIO(image.encoded_image_string))[:, :, :3]
  assert pixels.shape == (20, 20, 3) and (pixels == (1, 0, 0)).all()
  plugins = {v.metadata.plugin_data.plugin_name for _, v in result}
  assert "hparams" in plugins


def test_wandb_writes_without_a_network(config, tmp_path, monkeypatch):
  wandb = pytest.importorskip("wandb", reason="wandb is not installed")
  monkeypatch.setenv("WANDB_MODE", "offline")
  config = config(tensorboard=False, wandb="trees")
  write(tmp_path, config, 0, (1, 2))
  time.sleep(1.1)  # the name of a folder has the second
  write(tmp_path, config, 2, (4,))
  # The service process of W&B still writes after finish() returns.
  wandb.teardown()
  (name,) = json.loads((tmp_path / "tracked.json").read_text()).values()
  # Both parts belong to one run.
  parts = sorted(tmp_path.glob(f"wandb/offline-run-*-{name}/run-{name}.wandb"))
  assert len(parts) >= 1
  losses = [item for part in parts for item in wandb_items(part, "train/loss")]
  assert losses == [(1, 1.0), (2, 0.5), (4, 0.25)]


def wandb_items(path, key):
  """Yields (step, value) of a key in a file of wandb."""
  from wandb.proto import wandb_internal_pb2

  for data in leveldb_records(path.read_bytes()):
    record = wandb_internal_pb2.Record.FromString(data)
    items = {
      (item.key or "/".join(item.nested_key)): json.loads(item.value_json)
      for item in record.history.item
    }
    if key in items:
      yield items["step"], items[key]


def leveldb_records(data):
  """Yields the records of a LevelDB log, which begins after seven bytes."""
  at, complete = 7, b""
  while at + 7 <= len(data):
    if (left := 32768 - at % 32768) < 7:  # the rest of a block is too short
      at += left
      continue
    size, kind = int.from_bytes(data[at + 4 : at + 6], "little"), data[at + 6]
    complete += data[at + 7 : at + 7 + size]
    at += 7 + size
    if kind in (1, 4):  # a complete record, or its last part
      yield complete
      complete = b""


def test_reports_a_package_to_install(config, tmp_path, monkeypatch):
  monkeypatch.setitem(sys.modules, "wandb", None)
  with pytest.raises(InputError, match=r"pip install -e '\.\[wandb\]'"):
    log.Log(tmp_path, config(wandb="x"), 0)
