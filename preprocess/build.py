"""Prepares a dataset: turns raw parallel text into TFRecords and a report.

  jaxsyn prepare --config multi30k_en_de [--raw_dir DIR]

Writes CoNLL-U, vocabulary, TFRecords, indexes, manifest and report into
config.data.directory. A run reuses finished work, also after an interruption.
If no input changed and no file is corrupt, it does nothing; corrupt files are
rebuilt. --verify checks all files and changes none. The folder work/ stores
results for later runs; it may be deleted.

On a cluster whose machines all see the raw files and the dataset directory:

  jaxsyn prepare --config FILE --beam --runner=... [options of Beam]
"""

from __future__ import annotations

import errno
import functools
import importlib.metadata
import os
import pathlib
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from absl import flags

from jaxsyn import cli, exits
from jaxsyn.data import schema
from jaxsyn.data.options import DataConfig
from jaxsyn.data.sentence.parsers import Parser
from jaxsyn.data.store import layout, manifests
from jaxsyn.errors import InputError
from jaxsyn.options import as_dict
from jaxsyn.preprocess import (
  clean,
  extras,
  publish,
  report,
  runners,
  stages,
  subset,
  verify,
)
from jaxsyn.preprocess.corpus import JobContext, SplitInput
from jaxsyn.preprocess.inputs import Inputs, read_inputs
from jaxsyn.preprocess.outputs import FORMAT, Outputs
from jaxsyn.storage import checksums, files, lock

_PACKAGES = (
  "sentencepiece",
  "ufal.udpipe",
  "py3langid",
  "tensorflow-datasets",
  "numpy",
)

_DISK_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)

MakeRunner = Callable[[JobContext], stages.Runner]


def run(
  config: Any, raw_dir: str = "", runner: MakeRunner = runners.local
) -> pathlib.Path:
  """Prepares the dataset that a config describes.

  Args:
    config: Config, or ConfigDict from get_config.
    raw_dir: folder of the raw files, "" for config.prepare.raw_dir.
    runner: factory of the task runner, which uses processes or a cluster.

  Returns:
    Dataset directory, config.data.directory.

  Raises:
    InputError: the config or a file is invalid.
  """
  sections = _sections(config)
  directory = files.path_of(sections.data.directory)
  try:
    return _run(sections, raw_dir, directory, runner)
  except OSError as error:
    if error.errno not in _DISK_FULL or error.filename:
      raise
    # The system does not name the disk when a write fails.
    raise OSError(error.errno, error.strerror, str(directory)) from error


def _sections(config: Any) -> DataConfig:
  """Returns the two config sections that preparation reads, data and prepare.

  Worker processes unpickle them: a complete config would load JAX there.
  """
  if not isinstance(config, DataConfig):
    from jaxsyn.config import read_config  # it loads JAX

    config = read_config(config)
  return DataConfig(config.data, config.prepare)


def _run(
  config: DataConfig,
  raw_dir: str,
  directory: pathlib.Path,
  runner: MakeRunner,
) -> pathlib.Path:
  started = time.monotonic()
  # A prepared dataset may be on a read-only disk.
  if not files.is_file(directory / manifests.FILE):
    _check_writable(directory)
  inputs = read_inputs(config, raw_dir, directory / "raw", _splits(directory))
  if verify.corrupt_files(directory, inputs.key) == []:
    print(f"{directory} is prepared already, from the same input and options.")
    return directory
  _check_writable(directory)
  _check_name(directory, config.data.name)
  publish.check_no_user_files(directory, config.data.name, inputs.files)
  advice = (
    "Wait until it has ended, then run the same command again; or set "
    "config.data.directory to another folder."
  )
  with lock.exclusive_lock(directory, advice=advice):
    # Again, since another process may have made or repaired it meanwhile.
    corrupt = verify.corrupt_files(directory, inputs.key)
    if corrupt == []:
      print(f"{directory} was prepared meanwhile, by another process.")
      return directory
    for message in corrupt or []:
      print(f"corrupt: {message}", flush=True)
    if corrupt:
      print(f"{directory} is made again.", flush=True)
    _make(inputs, directory, started, runner)
  print(files.read_bytes(directory / "report.txt").decode())
  return directory


def _splits(directory: pathlib.Path) -> list[str]:
  """Returns the split names in a dataset directory, [] if not prepared."""
  try:
    return [*manifests.read(directory)["splits"]]
  except InputError:  # no manifest, or a corrupt one
    return []


def _check_writable(directory: pathlib.Path) -> None:
  flag = "config.data.directory"
  exits.check_target(str(directory), flag, folder=True, store=True)


def _check_name(directory: pathlib.Path, name: str) -> None:
  """Raises InputError if a directory has a dataset with another name."""
  try:
    other = manifests.read(directory)["name"]
  except InputError:  # no manifest, or a corrupt one
    return
  if other != name:
    raise InputError(
      f"{directory} holds the data set {other!r}, and config.data.name is "
      f"{name!r}: preparing would replace it. Give config.data.directory another "
      "folder, or remove this one."
    )


def _make(
  inputs: Inputs,
  directory: pathlib.Path,
  started: float,
  runner: MakeRunner,
) -> None:
  """Makes the dataset in a new folder, then moves it to its directory."""
  place = files.absolute(directory)  # workers may have another current folder
  work = place / "work"
  # Not in work/, which may be a link to another disk: moves must be atomic.
  new = place / f".new-{inputs.key[:16]}{files.PARTIAL}"
  outputs = Outputs(work / f"stages-{inputs.key[:16]}-{FORMAT}")
  _remove_unfinished(directory, new, outputs)
  context = JobContext(inputs.job(outputs, new, work))
  workers = runner(context)
  try:
    stages.run(context, workers)
  finally:
    workers.close()
  # Unfinished files of killed workers must not be published.
  for folder, _, _ in os.walk(new):  # on an object store they leave nothing
    files.remove_unfinished(folder)
  files.remove(new / manifests.FILE)  # of a run that was killed at the end
  manifest = _finish(inputs, context)
  manifest["seconds"] = round(time.monotonic() - started, 1)
  publish.publish(new, directory, manifest)
  files.remove_folder(new)
  files.remove_folder(outputs.folder)


def _remove_unfinished(
  directory: pathlib.Path, new: pathlib.Path, outputs: Outputs
) -> None:
  """Removes unfinished files and folders of runs with other input."""
  parent = outputs.folder.parent
  for folder in (directory, parent, parent / "parse"):
    files.remove_unfinished(folder, but=new.name)
  for folder in (
    *files.folders(parent, "stages-"),
    *files.folders(directory, ".new-"),
  ):
    if folder.name not in (outputs.folder.name, new.name):
      files.remove_folder(folder)


def _finish(inputs: Inputs, context: JobContext) -> dict[str, Any]:
  """Writes metadata, models and report of a dataset; returns its manifest."""
  from jaxsyn.data.store import tfds_metadata

  job, described = context.job, context.manifest
  data, prepare = inputs.config.data, inputs.config.prepare
  index = {
    split.name: result
    for split, result in zip(job.splits, stages.results(context, "index"))
  }
  sums: dict[str, Any] = {}
  for result in stages.results(context, "shards"):
    sums[result["file"]] = {name: result[name] for name in ("bytes", "crc32c")}
  for result in index.values():
    sums |= result.pop("files")
  encoded = stages.results(context, "encode")
  trees = stages.results(context, "trees")
  counts, splits = {}, {}
  for split in job.splits:
    of_split = [encoded[n] for n in context.chunks(split.name)]
    counts[split.name] = report.ReportCounts(described["sides"])
    for result in of_split:
      counts[split.name].merge(result["counts"])
    entry = _describe(inputs, context, split, counts[split.name])
    entry |= index[split.name]
    entry["doubts"] = context.outputs.summary("trees")["warnings"][split.name]
    if "brackets" in split.streams:
      entry["brackets"] = extras.bracket_counts(of_split)
    if any(split.alternatives(side) for side in schema.SIDES):
      tree_results = [trees[n] for n in context.chunks(split.name)]
      entry["alternatives"] = extras.alternative_counts(tree_results)
    if prepare.subset.pairs and split.name == data.train:
      entry["subset"] = _write_subset(context)
    if "alignments" in split.streams:
      entry["linked"] = sum(result["linked"] for result in of_split)
    splits[split.name] = entry
  models = _copy_models(inputs, context)
  title = _title(inputs, models["vocabulary"])
  with files.filled_folder(job.new) as temporary:
    tfds_metadata.write_metadata(
      layout.tfds_folder(temporary, described),
      name=described["name"],
      version=described["version"],
      features=schema.tfds_features(
        described["sides"],
        relations=described["relations"],
        brackets="brackets" in described,
        alignments="alignments" in described,
        alternatives=described.get("alternatives", ()),
        annotations=described.get("annotations", ()),
        labels=described.get("labels"),
      ),
      splits=index,
      title=title,
      citation=data.citation,
      homepage=data.homepage,
    )
    report.write(
      temporary,
      title,
      splits,
      counts=counts,
      train=data.train,
      left_out=inputs.left_out,
    )
  names = files.names(job.new)
  missing = [name for name in names if name not in sums]
  sums |= checksums.file_checksums(job.new, missing)
  return {
    **described,
    "splits": splits,
    **models,
    "options": as_dict(prepare),
    "versions": {p: importlib.metadata.version(p) for p in _PACKAGES},
    "key": inputs.key,
    "files": {name: sums[name] for name in names},
    "downloads": inputs.downloads,
    **({"left_out": inputs.left_out} if inputs.left_out else {}),
  }


def _write_subset(context: JobContext) -> dict[str, Any]:
  """Writes the line numbers of the random subset of the training split.

  Returns: The entry of the subset in the manifest.
  """
  options, name = context.config.prepare.subset, context.config.data.train
  lines = [
    context.chunk(number).lines[row]
    for number in context.train_chunks
    for row in clean.kept_rows(context, number)
  ]
  subset.write(context.job.new, name, lines)
  return {
    "pairs": options.pairs,
    "of": options.pairs + context.dropped[name]["subset"],
    "seed": options.seed,
    "lines": subset.file_of(name),
  }


def _describe(
  inputs: Inputs,
  context: JobContext,
  split: SplitInput,
  counts: report.ReportCounts,
) -> dict[str, Any]:
  """Returns the origin and line counts of a split, for the manifest."""
  raw = inputs.splits[split.name]
  number = [one.name for one in context.job.splits].index(split.name)
  return {
    "lines": len(context.line_ranges[number]),
    "dropped": context.outputs.summary("trees")["dropped"][split.name],
    "unparsed": counts.unparsed,
    "blank": counts.blank,
    "files": raw.file_names,
    "raw_sha256": inputs.sha256(raw),
  }


def _title(inputs: Inputs, vocabulary: Mapping[str, Any]) -> str:
  """Returns a one-line description of the dataset."""
  data, tree_files = inputs.config.data, inputs.train.trees
  trees = " and ".join(
    f"{side} side ({_title_of(parser if side not in tree_files else None)})"
    for side, parser in inputs.parsers.items()
  )
  of_files = {
    recorded["file"]: recorded["size"] for recorded in vocabulary.values()
  }
  sizes = " and ".join(f"{size:,}" for size in of_files.values())
  return (
    f"{data.name}: {data.source_language} to {data.target_language}, vocabulary"
    f" of {sizes} subwords, {f'trees on the {trees}' if trees else 'no trees'}"
  )


def _title_of(parser: Parser | None) -> str:
  return parser.identity.title if parser else "CoNLL-U"


def _copy_models(inputs: Inputs, context: JobContext) -> dict[str, Any]:
  """Copies vocabularies and parsers; returns their manifest entries."""
  joint, new = inputs.config.prepare.vocabulary.joint, context.job.new
  recorded = {}
  for side, vocabulary in context.vocabularies.items():
    file = "vocabulary.model" if joint else f"{side}.model"
    files.copy(vocabulary.path, new / file)
    recorded[side] = {
      "file": file,
      "sha256": vocabulary.sha256,
      "size": vocabulary.size,
    }
  parsed = {}
  for side, parser in inputs.parsers.items():
    trees = "CoNLL-U" if side in inputs.train.trees else "parser"
    parsed[side] = {"file": "", "sha256": "", "name": "", "trees": trees}
    if parser:
      parsed[side] |= parser.identity.entry()
      if path := inputs.specs[side].file:
        parsed[side]["file"] = f"parser.{side}.{parser.identity.kind}"
        files.copy(path, new / parsed[side]["file"])
  return {"vocabulary": recorded, "parser": parsed}


def _main(values: flags.FlagValues, options: Sequence[str]) -> None:
  if values.raw_dir:  # in the config, since other options may refer to it
    values.config.prepare.raw_dir = values.raw_dir
  directory = _sections(values.config).data.directory
  if values.verify:
    verify.run(directory)
    return
  runner: MakeRunner = runners.local
  if values.beam:
    runners.check_beam_options(options)
    runner = functools.partial(runners.BeamRunner, options)
  try:
    run(values.config, values.raw_dir, runner)
  except KeyboardInterrupt:
    print("The same command continues: what is done stays.", file=sys.stderr)
    raise


def define_flags() -> None:
  """Defines the command-line flags of `jaxsyn prepare`."""
  cli.config_flag()
  flags.DEFINE_string(
    "raw_dir", "", "Folder of the raw files; else config.prepare.raw_dir."
  )
  flags.DEFINE_bool(
    "verify",
    False,
    "Read all of the prepared folder and report what is corrupt, without"
    " changing anything. Exit status 0: nothing is; 2: something is.",
  )
  flags.DEFINE_bool(
    "beam",
    False,
    "Run with Apache Beam; other flags on the command line are options of Beam,"
    " such as --runner. All machines must see the raw files and the prepared"
    " folder.",
  )


if __name__ == "__main__":
  define_flags()
  beam_options: list[str] = []
  if {"--beam", "-beam", "--beam=true"} & set(sys.argv):
    sys.argv, beam_options = runners.split_command_line(sys.argv, flags.FLAGS)
  cli.main(lambda values: _main(values, beam_options))
