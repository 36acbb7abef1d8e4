"""A tiny corpus to prepare in tests: raw files, their trees, a config."""

from __future__ import annotations

import gzip
import pathlib
import sys

import numpy as np

from jaxsyn.configs import base

WORDS = ("the", "old", "man", "saw", "a", "small", "dog", "near", "house")


def sentences(count, seed):
  random = np.random.default_rng(seed)
  return [
    " ".join(random.choice(WORDS, random.integers(2, 9))) for _ in range(count)
  ]


def chain(line):
  """CoNLL-U of a line in which each word depends on the one before it."""
  rows = [
    f"{i}\t{w}\t_\t_\t_\t_\t{i - 1}\t{'dep' if i > 1 else 'root'}\t_\t_\n"
    for i, w in enumerate(line.split(), 1)
  ]
  return "".join(rows) + "\n" if rows else ""


def corpus(tmp_path, train=60, test=7):
  """Raw files, their CoNLL-U, and a config that prepares them."""
  folder = tmp_path / "raw"
  folder.mkdir(parents=True)
  config = base.get_config()
  config.data.name = "toy"
  config.data.directory = str(tmp_path / "out")
  config.data.validation = "test"
  config.prepare.raw_dir = str(folder)
  config.prepare.vocabulary.size = 60
  config.prepare.shard_mib = 0.016  # two of the training split
  for split, count in (("train", train), ("test", test)):
    source = sentences(count, seed=count)
    target = [line.upper() for line in source]
    (folder / f"{split}.en").write_text("".join(f"{x}\n" for x in source))
    packed = gzip.compress("".join(f"{x}\n" for x in target).encode(), mtime=0)
    (folder / f"{split}.de.gz").write_bytes(packed)
    (folder / f"{split}.conllu").write_text("".join(map(chain, source)))
    config.prepare.splits[split] = (f"{split}.en", f"{split}.de.gz")
    config.prepare.parse.source_conllu[split] = str(folder / f"{split}.conllu")
  return config


def command(config, *flags):
  """Words of a command that prepares a config, from the root of a checkout."""
  path = pathlib.Path(f"{config.data.directory}.py")
  path.write_text(
    "from jaxsyn.configs import base\n"
    "def get_config():\n"
    "  config = base.get_config()\n"
    f"  config.update({config.to_dict()!r})\n"
    "  return config\n"
  )
  named = f"--config={path}"
  return [sys.executable, "-m", "preprocess.build", named, *flags]


def lines_of(config, name):
  return (
    (pathlib.Path(config.prepare.raw_dir) / name).read_text().split("\n")[:-1]
  )


def records_of(folder):
  """Name -> bytes of all that is prepared, but for the times."""
  by_name = {}
  for path in sorted(pathlib.Path(folder).rglob("*")):
    name = str(path.relative_to(folder))
    if (
      path.is_file()
      and not name.startswith("work")
      and name not in ("manifest.json", "lock")
    ):
      by_name[name] = path.read_bytes()
  assert any("tfrecord" in name for name in by_name)
  return by_name


def nothing_made(config):
  """Whether the prepared folder has nothing but what is used again."""
  folder = pathlib.Path(config.data.directory)
  return {path.name for path in folder.glob("*")} <= {"work", "lock"}
