"""What is damaged: a corpus that was prepared and a run that was trained."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import pathlib

import ml_collections

SYSTEM = "pascal"


@dataclasses.dataclass(frozen=True)
class World:
  """Folders of the one or of a copy of it.

  Attributes:
    folder: of all.
  """

  folder: pathlib.Path

  @property
  def raw(self) -> pathlib.Path:
    return self.folder / "raw"

  @property
  def prepared(self) -> pathlib.Path:
    return self.folder / "prepared"

  @property
  def run(self) -> pathlib.Path:
    return self.folder / "run"

  def config(self, origin: World | None = None) -> ml_collections.ConfigDict:
    """The config of its data and its run.

    Args:
      origin: whose raw files to read; None: its own.
    """
    from jaxsyn.configs import quickstart

    raw = (origin or self).raw
    config = quickstart.get_config(SYSTEM)
    config.data.directory = str(self.prepared)
    config.prepare.raw_dir = str(raw)
    config.prepare.parse.source.udpipe.model = str(raw / "quickstart.udpipe")
    config.prepare.vocabulary.size = 300
    config.prepare.workers = 1
    config.model.update(width=32)
    config.model.transformer.update(
      encoder_layers=1, decoder_layers=1, feed_forward=32, heads=4
    )
    config.batch.update(tokens=1024, shapes=2)
    config.train.update(
      steps=9, evaluate_every=3, save_every=3, log_every=3, minutes=0.0, keep=3
    )
    config.decode.beam = 2
    return config


def make(folder: pathlib.Path) -> World:
  """Prepares and trains, where that was not done before."""
  from jaxsyn import train
  from jaxsyn.preprocess import build, quickstart
  from jaxsyn.preprocess.toy.corpus import Sizes

  world = World(folder)
  if (folder / "done").is_file():
    return world
  sizes = Sizes(train=300, validation=16, test=16, parser=150)
  quickstart.run(world.raw, sizes=sizes)
  with quiet():
    build.run(world.config(), str(world.raw))
    train.run(world.config(), world.run)
  (folder / "done").touch()
  return world


@contextlib.contextmanager
def quiet(said: pathlib.Path | str = os.devnull):
  """Sends what this process prints, libraries in C included, to a file."""
  with open(said, "ab") as file:
    kept = {number: os.dup(number) for number in (1, 2)}
    try:
      for number in kept:
        os.dup2(file.fileno(), number)
      yield
    finally:
      for number, old in kept.items():
        os.dup2(old, number)
        os.close(old)
