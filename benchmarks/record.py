"""Records results of all systems and commands to compare two versions.

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

import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from typing import Any

from absl import flags
from ml_collections import ConfigDict

from benchmarks import shards
from jaxsyn import cli, train
from jaxsyn.configs import enja, multi30k_en_de, quickstart, systems
from jaxsyn.errors import InputError
from jaxsyn.options.flags import list_flag
from jaxsyn.preprocess import build
from jaxsyn.preprocess import quickstart as generator
from jaxsyn.preprocess.toy.corpus import Sizes
from jaxsyn.session import Session

STEPS = 20
KILLED_AT = (6, 13)  # log lines after which the resumed training is killed
PAIRS = 2000  # of Multi30k
# Values that differ from run to run, in log lines and reports.
CLOCKS = {
  "time", "seconds", "minutes", "tokens_per_s", "waiting", "eta_minutes",
  "flops", "peak_memory",
}  # fmt: skip
Record = dict[str, Any]


def record(work: pathlib.Path, sections: list[str], only: list[str]) -> Record:
  """Runs the chosen sections and returns their results as a record.

  Args:
    work: Folder for data and runs.
    sections: Names of `SECTIONS`.
    only: Systems of the section "systems"; empty: all.
  """
  _prepare_generated(work)
  result: Record = {}
  for name in sections:
    started = time.monotonic()
    result[name] = SECTIONS[name](work, only)
    print(f"{name}: {time.monotonic() - started:.0f} s", file=sys.stderr)
  return result


def _prepare_generated(work: pathlib.Path) -> None:
  """Generates and prepares the corpus for training the models."""
  if (work / "data").exists():
    return
  raw = work / "raw"
  sizes = Sizes(train=600, validation=48, test=24, parser=150)
  generator.run(raw, sizes=sizes)
  build.run(_config("pascal", work), str(raw))


def _config(system: str, work: pathlib.Path) -> ConfigDict:
  """Returns the config of a system as a tiny model on the generated corpus."""
  config = quickstart.get_config(system)
  config.data.directory = str(work / "data")
  config.prepare.parse.source.udpipe.model = str(
    work / "raw" / generator.PARSER
  )
  config.prepare.vocabulary.size = 300
  config.prepare.workers = 1
  config.model.width = 32
  config.model.transformer.update(
    encoder_layers=2, decoder_layers=2, feed_forward=48, heads=4
  )
  config.batch.update(tokens=1024, shapes=1)
  config.train.update(
    steps=STEPS, evaluate_every=10, save_every=20, log_every=1, minutes=0.0
  )
  config.train.selection = "log_likelihood"
  config.optimiser.inverse_sqrt.warmup = 5  # so that 20 steps change much
  config.decode.update(beam=4, max_length_factor=1.0, max_length_offset=4)
  for loss in ("distillation", "word_distillation"):
    if "distilled" in system and loss in config.losses:
      teacher = work / "runs" / "pascal"
      config.losses[loss].teacher = str(teacher)
  return config


def _systems(work: pathlib.Path, only: list[str]) -> Record:
  result: Record = {}
  sentences = _lines(work / "raw" / "test.en", 4)
  # The teacher of the distilled systems is the run of pascal.
  names = sorted(systems.SYSTEMS, key=lambda name: name != "pascal")
  for name in only or names:
    run = work / "runs" / name
    shutil.rmtree(run, ignore_errors=True)
    try:
      train.run(_config(name, work), run)
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
      _train_until(run, work, lines)
    log = {(one["kind"], one["step"]): one for one in _log(run)}
    result[name] = {
      "log": list(log.values()),
      "arrays": _array_hashes(run),
    }
  result["are equal"] = result["uninterrupted"] == result["killed"]
  return result


def _train_until(
  run: pathlib.Path, work: pathlib.Path, lines: int | None
) -> None:
  """Trains in a process that is killed once its log has enough lines."""
  code = (
    "import pathlib, sys; from benchmarks import record; from jaxsyn import train;"
    "work = pathlib.Path(sys.argv[1]); config = record._config('pascal', work);"
    "config.train.save_every = 3; train.run(config, sys.argv[2])"
  )
  process = subprocess.Popen([sys.executable, "-c", code, str(work), str(run)])
  log = run / "log.jsonl"
  while lines is not None and process.poll() is None:
    if log.exists() and log.read_bytes().count(b"\n") >= lines:
      process.send_signal(signal.SIGKILL)
      break
    time.sleep(0.01)
  process.wait()


def _array_hashes(run: pathlib.Path) -> dict[str, str]:
  """Returns a digest of each parameter in the last checkpoint."""
  import jax
  import numpy as np

  leaves = jax.tree_util.tree_leaves_with_path(
    Session(run, checkpoint="last").params
  )
  return {
    jax.tree_util.keystr(path): shards.sha256(np.asarray(leaf).tobytes())
    for path, leaf in leaves
  }


def _records(work: pathlib.Path, _: list[str]) -> Record:
  result = {"generated": shards.digests(work / "data")}
  data = pathlib.Path(os.environ.get("JAXSYN_DATA", "../shared/data"))
  if not data.is_dir():
    print(f"  {data} is missing: real text is omitted", file=sys.stderr)
    return result
  for name, make, parser in (
    ("multi30k", _multi30k, "german"),
    ("japanese", _japanese, "japanese"),
  ):
    config, parsers = make(data), data / "udpipe"
    config.data.directory = str(work / name)
    parse = config.prepare.parse
    parse.source.udpipe.model = str(parsers / "english.udpipe")
    parse.target.udpipe.model = str(parsers / f"{parser}.udpipe")
    parse.sides = ("source", "target")
    shutil.rmtree(work / name, ignore_errors=True)
    build.run(config)
    result[name] = shards.digests(work / name)
  return result


def _multi30k(data: pathlib.Path) -> ConfigDict:
  config = multi30k_en_de.get_config("sisa")
  config.prepare.raw_dir = str(data / "multi30k")
  config.prepare.subset.pairs = PAIRS
  config.prepare.vocabulary.size = 2000
  return config


def _japanese(data: pathlib.Path) -> ConfigDict:
  config = enja.get_config("pascal")
  config.prepare.raw_dir = str(data / "enja")
  raw = ("train.en.gz", "train.ja.gz")
  config.prepare.splits.train = (*raw, "1-500")
  config.prepare.splits.validation = (*raw, "501-550")
  config.prepare.vocabulary.size = 1500
  return config


def _commands(work: pathlib.Path, _: list[str]) -> Record:
  """Runs every command on a small run and records what it prints or writes."""
  run, raw, out = work / "runs" / "pascal", work / "raw", work / "commands"
  if not run.exists():
    _systems(work, ["pascal"])
  shutil.rmtree(out, ignore_errors=True)
  out.mkdir()
  source, reference, other = (
    _first_lines(raw / name, out)
    for name in ("test.en", "test.qaa", "validation.qaa")
  )
  translate = f"translate --workdir {run} --input {source}"
  score = f"score --reference {reference} --hypothesis {other}"
  lines = {
    "version": "--version",
    "help": "--help",
    "translate": translate,
    "n-best with scores": f"{translate} --nbest 3 --scores",
    "sampling": f"{translate} --search sample --nbest 2 --seed 3 --scores",
    "diverse": f"{translate} --search diverse --groups 2 --nbest 2 --scores",
    "MBR": f"{translate} --mbr 8 --seed 1",
    "alignments": f"{translate} --alignments --replace_unknowns",
    "prefix": f"{translate} --prefix {out}/prefix.txt",
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
    "compare": f"compare --config {out}/config.py --systems transformer,pascal "
    f"--seeds 2 --workdir {out}/compare",
    "no such option": f"train --config quickstart --workdir {out}/x "
    "--config.train.stepps=3",
    "no such run": f"translate --workdir {out}/nowhere --input {source}",
  }
  (out / "prefix.txt").write_text("na\n" * 8)
  (out / "config.py").write_text(_CONFIG_FILE.format(work=str(work)))
  result: Record = {}
  for name, line in lines.items():
    done = subprocess.run(
      [sys.executable, "-m", "jaxsyn", *line.split()],
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


_CONFIG_FILE = """
import pathlib
from benchmarks import record

def get_config(system="transformer"):
  config = record._config(system, pathlib.Path({work!r}))
  config.train.steps = 6
  config.train.evaluate_every = 3
  return config
"""


def _files(folder: pathlib.Path) -> dict[str, str]:
  """Maps file names in a folder to digests ("" for files without arrays)."""
  return {
    str(path.relative_to(folder)): shards.sha256(path.read_bytes())
    if path.suffix in (".safetensors", ".npz", ".model")
    else ""
    for path in sorted(folder.rglob("*"))
    if path.is_file() and not path.name.startswith("events.")
  }


def _first_lines(path: pathlib.Path, folder: pathlib.Path) -> pathlib.Path:
  """Writes the first eight lines of a file to a folder; returns the path."""
  target = folder / path.name
  target.write_text("".join(f"{line}\n" for line in _lines(path, 8)))
  return target


def _lines(path: pathlib.Path, count: int) -> list[str]:
  return path.read_text().splitlines()[:count]


SECTIONS: dict[str, Callable[[pathlib.Path, list[str]], Record]] = {
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


def _compare(before: pathlib.Path, after: pathlib.Path) -> int:
  old, new = (json.loads(path.read_text()) for path in (before, after))
  result = list(differences(old, new))
  print("\n".join(result) or "no differences")
  return 1 if result else 0


def _main(values: flags.FlagValues) -> int | None:
  if values.compare:
    if len(values.compare) != 2:
      raise InputError(
        "--compare takes two files, as in before.json,after.json."
      )
    return _compare(*map(pathlib.Path, values.compare))
  if not values.output:
    raise InputError("--output is missing: name the file of the record.")
  for name in values.sections:
    if name not in SECTIONS:
      raise InputError(f"no section {name!r}; there are {', '.join(SECTIONS)}.")
  with tempfile.TemporaryDirectory() as temporary:
    work = pathlib.Path(values.work or temporary).absolute()
    made = record(work, values.sections, values.only)
  pathlib.Path(values.output).write_text(json.dumps(made, indent=1) + "\n")
  return None


if __name__ == "__main__":
  flags.DEFINE_string("output", "", "File of the record.")
  flags.DEFINE_string("work", "", "Folder for data and runs; a temporary one.")
  list_flag("sections", list(SECTIONS), "Sections to record.")
  list_flag("only", [], "Systems to record; all.")
  list_flag("compare", [], "Two records to compare instead.")
  cli.main(_main)
