"""TensorBoard and Weights & Biases files, read back."""

import dataclasses
import sys
import types

import numpy as np
import pytest
from matplotlib.figure import Figure

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
  assert (image.width, image.height) == (20, 20)
  plugins = {v.metadata.plugin_data.plugin_name for _, v in result}
  assert "hparams" in plugins


def test_writes_only_to_enabled_writers(config, tmp_path):
  write(tmp_path, config(tensorboard=False), 0, (1,))
  assert [path.name for path in tmp_path.iterdir()] == [log.FILE]


class FakeWandb(types.ModuleType):
  """A module with the functions of wandb that the writer uses."""

  Error, Settings = RuntimeError, staticmethod(lambda **_: None)
  Html = Image = staticmethod(lambda content: content)

  def __init__(self):
    super().__init__("wandb")
    self.runs, self.rows, self.is_finished = [], [], False

  def init(self, **options):
    self.runs.append(options)
    return self

  def define_metric(self, *_, **__):
    pass

  def log(self, row):
    self.rows.append(row)

  def finish(self):
    self.is_finished = True


def test_a_resumed_run_continues_in_wandb(config, tmp_path, monkeypatch):
  wandb = FakeWandb()
  monkeypatch.setitem(sys.modules, "wandb", wandb)
  config = config(tensorboard=False, wandb="trees")
  for start, steps in ((0, (1, 2)), (2, (4,))):
    write(tmp_path, config, start, steps)
    assert wandb.is_finished
  first, second = wandb.runs
  assert first["project"] == "trees" and first["name"] == tmp_path.name
  assert first["id"] == second["id"] and second["resume"] == "allow"
  losses = [
    (r["step"], r["train/loss"]) for r in wandb.rows if "train/loss" in r
  ]
  assert losses == [(1, 1.0), (2, 0.5), (4, 0.25)]
  (text, *_) = [row["samples"] for row in wandb.rows if "samples" in row]
  assert "a &lt;b&gt; c" in text
  write(tmp_path, config, 0, (1,))  # the run restarts
  assert wandb.runs[-1]["id"] != first["id"]


def test_reports_a_package_to_install(config, tmp_path, monkeypatch):
  monkeypatch.setitem(sys.modules, "wandb", None)
  with pytest.raises(InputError, match=r"pip install -e '\.\[wandb\]'"):
    log.Log(tmp_path, config(wandb="x"), 0)


def test_figures_become_pixels():
  pixels = log._pixels(figure())
  assert pixels.shape == (20, 20, 3) and pixels.dtype == np.uint8
  assert (pixels == (255, 0, 0)).all()
