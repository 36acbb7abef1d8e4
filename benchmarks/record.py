"""Records results of all systems and commands, to compare code versions.

  python -m benchmarks.record --output before.json
  python -m benchmarks.record --output after.json
  python -m benchmarks.record --compare before.json,after.json

The sections of a record, each of which --sections selects:

  records   SHA-256 of the prepared shards and of each feature in them, for a
            generated corpus with trees and alignments on both sides, and for
            Multi30k and English-Japanese text where $JAXSYN_DATA has them
  systems   losses and gradient norms of 20 steps of every system, validation,
            and the 3-best translations of its last checkpoint
  resume    arrays and log of a training killed twice, and of one never killed
  commands  standard output, or the files, of every command

All models are tiny. Values are compared for equality: floats are recorded as
Python prints them, which is exact.
"""

from __future__ import annotations

import hashlib
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from typing import Any

import jax
import numpy as np
from absl import flags
from ml_collections import ConfigDict

from jaxsyn import cli, train
from jaxsyn.configs import enja, multi30k_en_de, quickstart, systems
from jaxsyn.errors import InputError
from jaxsyn.options.flags import list_flag
from jaxsyn.preprocess import build
from jaxsyn.preprocess import quickstart as generator
from jaxsyn.preprocess.toy.corpus import Sizes
from jaxsyn.session import Session

KILLED_AT = (6, 13)  # log lines after which the resumed training is killed
# Values that differ from run to run, in log lines and reports.
CLOCKS = {
  "time", "seconds", "minutes", "tokens_per_s", "waiting", "eta_minutes",
  "flops", "peak_memory",
}  # fmt: skip
Record = dict[str, Any]
JAXSYN = (sys.executable, "-m", "jaxsyn")


def tiny_config(system: str, work: pathlib.Path) -> ConfigDict:
  """Returns the config of a system as a tiny model on the generated corpus."""
  config = quickstart.get_config(system)
  config.data.directory = str(work / "data")
  udpipe = config.prepare.parse.source.udpipe
  udpipe.model = str(work / "raw" / generator.PARSER)
  config.prepare.vocabulary.size = 300
  config.prepare.workers = 1
  config.model.width = 32
  config.model.transformer.update(
    encoder_layers=2, decoder_layers=2, feed_forward=48, heads=4
  )
  config.batch.update(tokens=1024, shapes=1)
  config.train.update(
    steps=20, evaluate_every=10, save_every=20, log_every=1, minutes=0.0
  )
  config.train.selection = "log_likelihood"
  config.optimiser.inverse_sqrt.warmup = 5  # so that 20 steps change much
  config.decode.update(beam=4, max_length_factor=1.0, max_length_offset=4)
  for loss in ("distillation", "word_distillation"):
    if "distilled" in system and loss in config.losses:
      config.losses[loss].teacher = str(work / "runs" / "pascal")
  return config


def _prepare_generated(work: pathlib.Path) -> None:
  """Generates and prepares the corpus for training the models."""
  (work / "config.py").write_text(
    "import pathlib\n"
    "from benchmarks import record\n"
    'def get_config(system="transformer"):\n'
    f"  return record.tiny_config(system, pathlib.Path({str(work)!r}))\n"
  )
  if not (work / "data").exists():
    sizes = Sizes(train=600, validation=48, test=24, parser=150)
    generator.run(work / "raw", sizes=sizes)
    build.run(tiny_config("pascal", work), str(work / "raw"))


def _records(work: pathlib.Path, _: list[str]) -> Record:
  result = {"generated": digests(work / "data")}
  data = pathlib.Path(os.environ.get("JAXSYN_DATA", "../shared/data"))
  if not data.is_dir():
    print(f"  {data} is missing: real text is omitted", file=sys.stderr)
    return result
  english_german = multi30k_en_de.get_config("sisa")
  english_german.prepare.raw_dir = str(data / "multi30k")
  english_german.prepare.subset.pairs = 2000
  english_german.prepare.vocabulary.size = 2000
  japanese = enja.get_config("pascal")
  japanese.prepare.raw_dir = str(data / "enja")
  raw = ("train.en.gz", "train.ja.gz")
  japanese.prepare.splits.train = (*raw, "1-500")
  japanese.prepare.splits.validation = (*raw, "501-550")
  japanese.prepare.vocabulary.size = 1500
  for name, config, parser in (
    ("multi30k", english_german, "german"),
    ("japanese", japanese, "japanese"),
  ):
    config.data.directory = str(work / name)
    parse = config.prepare.parse
    parse.source.udpipe.model = str(data / "udpipe" / "english.udpipe")
    parse.target.udpipe.model = str(data / "udpipe" / f"{parser}.udpipe")
    parse.sides = ("source", "target")
    shutil.rmtree(work / name, ignore_errors=True)
    build.run(config)
    result[name] = digests(work / name)
  return result


def digests(folder: pathlib.Path) -> dict[str, Any]:
  """Returns digests of a dataset's shards, features and vocabulary."""
  shards: dict[str, str] = {}
  hashes: dict[str, Any] = {}  # hash objects
  for path in sorted(folder.rglob("*.tfrecord-*")):
    if path.suffix.startswith(".tfrecord") and path.is_file():
      data = path.read_bytes()
      shards[path.name] = _sha256(data)
      split = path.name.split(".")[0].split("-")[-1]
      for name, value in features(data):
        hashes.setdefault(f"{split}/{name}", hashlib.sha256()).update(value)
  if not shards:
    raise InputError(f"no TFRecord shards below {folder}.")
  return {
    "shards": shards,
    "features": {name: one.hexdigest() for name, one in hashes.items()},
    "vocabulary": _sha256((folder / "vocabulary.model").read_bytes()),
  }


def features(shard: bytes) -> Iterator[tuple[str, bytes]]:
  """Yields (name, serialized value) for every feature in a shard's records.

  It reads the wire format itself, so that it does not depend on the reader that
  it is to check. A record is length (8 bytes), CRC (4), tf.train.Example, CRC (4).
  """
  start = 0
  while start < len(shard):
    length = int.from_bytes(shard[start : start + 8], "little")
    example = shard[start + 12 : start + 12 + length]
    for features in _fields(example):
      for entry in _fields(features):
        name, value = _fields(entry)
        yield name.decode(), value
    start += 16 + length


def _fields(message: bytes) -> Iterator[bytes]:
  """Yields the length-delimited fields in a protocol buffer message."""
  start = 0
  while start < len(message):
    start += 1  # the tag
    length = shift = 0
    while True:
      byte = message[start]
      start += 1
      length |= (byte & 0x7F) << shift
      shift += 7
      if byte < 0x80:
        break
    yield message[start : start + length]
    start += length


def _systems(work: pathlib.Path, only: list[str]) -> Record:
  result: Record = {}
  sentences = (work / "raw" / "test.en").read_text().splitlines()[:4]
  # The teacher of the distilled systems is the run of pascal.
  names = sorted(systems.SYSTEMS, key=lambda name: name != "pascal")
  for name in only or names:
    run = work / "runs" / name
    shutil.rmtree(run, ignore_errors=True)
    try:
      train.run(tiny_config(name, work), run)
      translations = Session(run, nbest=3)(sentences)
    except InputError as error:
      result[name] = {"error": str(error)}
      continue
    result[name] = {
      "log": _log(run),
      "translations": [
        [[one.text, float(one.log_p)] for one in best] for best in translations
      ],
    }
    print(f"  {name}", file=sys.stderr)
  return result


def _log(run: pathlib.Path) -> list[Record]:
  """Returns the log lines of a run without fields that depend on a clock."""
  lines = map(json.loads, (run / "log.jsonl").read_text().splitlines())
  return [{k: v for k, v in line.items() if k not in CLOCKS} for line in lines]


def _resume(work: pathlib.Path, _: list[str]) -> Record:
  """Compares a run that is killed twice with an uninterrupted run."""
  result: Record = {}
  for name, kills in (("uninterrupted", ()), ("killed", KILLED_AT)):
    run = work / "resume" / name
    shutil.rmtree(run, ignore_errors=True)
    for lines in (*kills, None):
      _train(run, work / "config.py", lines)
    log = {(one["kind"], one["step"]): one for one in _log(run)}
    result[name] = {"log": list(log.values()), "arrays": _array_hashes(run)}
  result["are equal"] = result["uninterrupted"] == result["killed"]
  return result


def _train(run: pathlib.Path, config: pathlib.Path, lines: int | None) -> None:
  """Trains in a process that is killed once its log has enough lines."""
  command = [*JAXSYN, "train", f"--config={config}:pascal", f"--workdir={run}"]
  command += ["--config.train.save_every=3"]
  process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
  log = run / "log.jsonl"
  while lines is not None and process.poll() is None:
    if log.exists() and log.read_bytes().count(b"\n") >= lines:
      process.kill()
      break
    time.sleep(0.01)
  process.wait()


def _array_hashes(run: pathlib.Path) -> dict[str, str]:
  """Returns a digest of each parameter in the last checkpoint."""
  (params,) = Session(run, checkpoint="last").params
  return {
    jax.tree_util.keystr(path): _sha256(np.asarray(leaf).tobytes())
    for path, leaf in jax.tree_util.tree_leaves_with_path(params)
  }


def _commands(work: pathlib.Path, _: list[str]) -> Record:
  """Executes every command on a small run; records what it prints or writes."""
  run, raw, out = work / "runs" / "pascal", work / "raw", work / "commands"
  if not run.exists():
    _systems(work, ["pascal"])
  shutil.rmtree(out, ignore_errors=True)
  out.mkdir()
  source, reference, other = (
    out / name for name in ("test.en", "test.qaa", "validation.qaa")
  )
  for path in (source, reference, other):
    lines = (raw / path.name).read_text().splitlines(keepends=True)
    path.write_text("".join(lines[:8]))
  requests = (
    json.dumps({"text": line, "target_prefix": "na"})
    for line in source.read_text().splitlines()
  )
  (out / "prefix.jsonl").write_text("\n".join(requests))
  translate = f"translate --workdir {run} --input {source}"
  score = f"score --reference {reference} --hypothesis {other}"
  commands = {
    "version": "--version",
    "help": "--help",
    "translate": translate,
    "n-best with scores": f"{translate} --nbest 3 --scores",
    "sampling": f"{translate} --search sample --nbest 2 --seed 3 --scores",
    "diverse": f"{translate} --search diverse --groups 2 --nbest 2 --scores",
    "MBR": f"{translate} --mbr 8 --seed 1",
    "alignments": f"{translate} --alignments --replace_unknowns",
    "prefix": f"translate --workdir {run} --input {out}/prefix.jsonl",
    "ensemble": f"{translate} --ensemble {run}@last --scores",
    "score": f"{score} --metrics bleu,chrf,ter,ribes,exact --significance all "
    f"--hypothesis {reference} --source {source}",
    "score as JSON": f"{score} --json",
    "forced scores": f"score --force --workdir {run} --source {source} "
    f"--hypothesis {reference}",
    "AER": f"score --aer --reference {raw}/test.align "
    f"--hypothesis {raw}/test.align",
    "inspect": f"inspect --workdir {run} --input {source} --limit 2 "
    f"--output {out}/inspect",
    "export": f"export --workdir {run} --output {out}/export",
    "compare": f"compare --config {work}/config.py "
    f"--systems transformer,pascal --seeds 2 --workdir {out}/compare "
    "--config.train.steps=6 --config.train.evaluate_every=3",
    "no such option": f"train --config quickstart --workdir {out}/x "
    "--config.train.stepps=3",
    "no such run": f"translate --workdir {out}/nowhere --input {source}",
  }
  result: Record = {}
  for name, command in commands.items():
    done = subprocess.run(
      [*JAXSYN, *command.split()],
      capture_output=True,
      text=True,
      env=os.environ | {"COLUMNS": "80"},
    )
    error = done.stderr if done.returncode else ""
    # The progress of `compare` has times; its scores are recorded below.
    output = "" if name == "compare" else done.stdout
    result[name] = {
      "status": done.returncode,
      "output": output.replace(str(work), "WORK"),
      "error": error.replace(str(work), "WORK").splitlines()[-1:],
    }
  for name in ("inspect", "export", "compare"):
    result[f"files of {name}"] = _files(out / name)
  report = json.loads((out / "compare" / "report.json").read_text())
  result["compare's scores"] = report["splits"]
  return result


def _files(folder: pathlib.Path) -> dict[str, str]:
  """Maps files in a folder to digests; "" unless they hold arrays or models."""
  return {
    str(path.relative_to(folder)): _sha256(path.read_bytes())
    if path.suffix in (".safetensors", ".npz", ".model")
    else ""
    for path in sorted(folder.rglob("*"))
    if path.is_file() and not path.name.startswith("events.")
  }


def _sha256(data: bytes) -> str:
  return hashlib.sha256(data).hexdigest()


SECTIONS = {
  "records": _records,
  "systems": _systems,
  "resume": _resume,
  "commands": _commands,
}


def differences(before: Any, after: Any, path: str = "") -> Iterator[str]:
  """Yields one line for each difference between two records."""
  if isinstance(before, dict) and isinstance(after, dict):
    for name in {**before, **after}:
      where = f"{path} / {name}" if path else name
      if name not in after or name not in before:
        yield f"{where}: only {'before' if name in before else 'after'}"
      else:
        yield from differences(before[name], after[name], where)
  elif isinstance(before, list) and isinstance(after, list):
    if len(before) != len(after):
      yield f"{path}: {len(before)} entries before, {len(after)} after"
    for i, (old, new) in enumerate(zip(before, after, strict=False)):
      yield from differences(old, new, f"{path}[{i}]")
  elif before != after:
    yield f"{path}: {before!r} before, {after!r} after"


def compare(before: str, after: str) -> int:
  """Prints the differences between two records; returns an exit status."""
  old, new = (
    json.loads(pathlib.Path(path).read_text()) for path in (before, after)
  )
  result = list(differences(old, new))
  print("\n".join(result) or "no differences")
  return 1 if result else 0


def _main(values: flags.FlagValues) -> int | None:
  if values.compare:
    if len(values.compare) != 2:
      raise InputError("--compare takes two files: before.json,after.json.")
    return compare(*values.compare)
  if not values.output:
    raise InputError("--output is missing: name the file of the record.")
  for name in values.sections:
    if name not in SECTIONS:
      raise InputError(f"no section {name!r}; there are {', '.join(SECTIONS)}.")
  result: Record = {}
  with tempfile.TemporaryDirectory() as temporary:
    work = pathlib.Path(values.work or temporary).absolute()
    work.mkdir(parents=True, exist_ok=True)
    _prepare_generated(work)
    for name in values.sections:
      started = time.monotonic()
      result[name] = SECTIONS[name](work, values.only)
      print(f"{name}: {time.monotonic() - started:.0f} s", file=sys.stderr)
  pathlib.Path(values.output).write_text(json.dumps(result, indent=1) + "\n")
  return None


if __name__ == "__main__":
  flags.DEFINE_string("output", "", "File of the record.")
  flags.DEFINE_string("work", "", "Folder for data and runs; empty: temporary.")
  list_flag("sections", list(SECTIONS), "Sections to record.")
  list_flag("only", [], "Systems to record; default: all.")
  list_flag("compare", [], "Two records to compare; nothing is recorded.")
  cli.main(_main)
