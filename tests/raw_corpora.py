"""A tiny corpus to prepare in tests: raw files, their trees, a config."""

from __future__ import annotations

import gzip
import pathlib
import sys

import numpy as np
import pytest

from jaxsyn.configs import base
from jaxsyn.errors import InputError
from jaxsyn.preprocess import build

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


def raw_of(config):
  return pathlib.Path(config.prepare.raw_dir)


def lines_of(config, name):
  return (raw_of(config) / name).read_text().split("\n")[:-1]


def write_lines(path, lines):
  """Writes lines, compressed if the name ends so."""
  data = "".join(f"{line}\n" for line in lines).encode()
  path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)


def bracketed(line):
  """Constituency tree of a line: a phrase of all its words."""
  return "(S (NP " + " ".join(f"(X {word})" for word in line.split()) + "))"


def set_options(config, options):
  """Sets options by their dotted names."""
  for option, value in options.items():
    *sections, field = option.split(".")
    section = config
    for name in sections:
      section = section[name]
    with section.unlocked():
      section[field] = value


def records_of(folder):
  """Name -> bytes of all that is prepared, but for the times."""
  folder, others = pathlib.Path(folder), ("manifest.json", "lock")
  paths = (path for path in sorted(folder.rglob("*")) if path.is_file())
  by_name = {str(p.relative_to(folder)): p.read_bytes() for p in paths}
  for name in [*by_name]:
    if name in others or name.startswith("work"):
      del by_name[name]
  assert any("tfrecord" in name for name in by_name)
  return by_name


def check_rejected(config, message, nothing_made=False, **runner):
  """Asserts that preparation fails with a message.

  Args:
    config: The config.
    message: Pattern of the message.
    nothing_made: Whether the folder may only have files that are used again.
    runner: Runner of preparation.
  """
  with pytest.raises(InputError, match=message):
    build.run(config, **runner)
  if nothing_made:
    folder = pathlib.Path(config.data.directory)
    assert {path.name for path in folder.glob("*")} <= {"work", "lock"}
