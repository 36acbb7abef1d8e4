"""Writes a config for your parallel text, as the first step for a new corpus.

  jaxsyn new mine --source text/train.en --target text/train.fr
  jaxsyn new mine --source text/pairs.en-fr.tsv

Line N of one file is the translation of line N of the other file. Files are UTF-8,
plain text, .gz or .zst; or one .tsv of two columns. Without --dev_source or
--test_source the first lines are held out for validation and for testing. All
settings and their reasons are printed and written to FOLDER/NAME.py, a Python file
that you can edit.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import os
import pathlib
import re
import shlex
import textwrap
from collections.abc import Mapping, Sequence

from absl import flags

from jaxsyn import cli, commands, exits
from jaxsyn import corpus as corpora
from jaxsyn.corpus import CorpusStats, Files
from jaxsyn.data import schema
from jaxsyn.data.sentence.parsers.udpipe import UDPipe, UDPipeSpec
from jaxsyn.errors import InputError
from jaxsyn.options import ROOT
from jaxsyn.preprocess import options
from jaxsyn.scoring import tokenizers
from jaxsyn.storage import checksums, files

_CHECKSUM = "\n\n# Not edited, so that `jaxsyn new` may replace this file: "
AUTO, NONE = "auto", "none"  # values of --source_parser
_TEMPLATE = '''"""{title}

Written by `jaxsyn new`; change what you like.

{commands}
"""

import pathlib

from jaxsyn.configs import base, systems
{imports}
HERE = pathlib.Path(__file__).resolve().parent


def get_config(system="transformer"):
  config = base.data_set({names})
  config.data.directory = str(HERE / "{data}")

{splits}

{parsers}

{reason}
  config.prepare.vocabulary.size = {vocabulary}
  config.prepare.vocabulary.character_coverage = {coverage}

{training}
  return systems.apply(config, system)
'''
_TINY = """
# Transformer-Tiny, batches of 2,048 subwords, Muon: for some ten thousand pairs.
base.small_corpus(config)
{reason}
config.train.update(steps={updates}, patience=10)
config.train.update(evaluate_every={interval}, save_every={interval})
"""
_BASE = """
# The base Transformer, published by Bugliarello & Okazaki 2020 for a GPU; not
# measured by jaxsyn.
paper.base_transformer(config, dropout={dropout})
config.batch.update(tokens=32_768, length_multiple=4)
config.optimiser.learning_rate = 1e-3
config.optimiser.inverse_sqrt.warmup = 8000
config.train.steps = {updates}
"""


@dataclasses.dataclass(frozen=True)
class NewConfig:
  """Config file that `jaxsyn new` has written, with messages for the user.

  Attributes:
    path: Config file.
    messages: Corpus statistics, settings and their reasons, line by line.
    commands: Shell commands to run next, in the present folder.
    replaces: Whether it replaced a config that had not been edited.
  """

  path: pathlib.Path
  messages: tuple[str, ...]
  commands: tuple[str, ...]
  replaces: bool


def run(
  folder: str | os.PathLike[str],
  train: Files,
  *,
  dev: Files | None = None,
  test: Files | None = None,
  languages: tuple[str, str] = ("", ""),
  parsers: tuple[str, str] = (AUTO, NONE),
  name: str = "",
) -> NewConfig:
  """Writes the config FOLDER/NAME.py for a corpus.

  A config of the same corpus that has not been edited is replaced, so that a
  parser can be added later.

  Args:
    folder: Folder of the config, the data and the runs; made if necessary.
    train, dev, test: Files of the splits; None: held out from the training files.
    languages: Language codes of both sides; "": detected from the file names, or
      else from the text.
    parsers: Parsers of both sides: "auto", "none", or a UDPipe file.
    name: Name of the dataset; "": that of the folder.
  """
  exits.check_target(os.fspath(folder), "FOLDER", folder=True)
  folder = pathlib.Path(folder)
  default_name, name = _name("", folder), _name(name, folder)
  path = folder / f"{name}.py"
  replaces = path.exists()
  if replaces:
    _check_unedited(path)
  splits = {"train": train, "validation": dev, "test": test}
  stats = {
    s: corpora.corpus_stats(files) for s, files in splits.items() if files
  }
  seen, lacking = stats["train"], [s for s in splits if s not in stats]
  held_out = corpora.count_held_out(seen) if lacking else 0
  pairs = seen.count - held_out * len(lacking)
  languages, messages = corpora.languages(seen, languages)
  messages += corpora.findings(stats, held_out, lacking)
  # Each config has its own data directory, so that none replaces another's.
  data = "data" if name == default_name else f"data_{name}"
  models = {
    side: _parser(side, code, parser, folder / data / "raw")
    for side, code, parser in zip(schema.SIDES, languages, parsers)
  }
  vocabulary, vocabulary_reason, coverage = corpora.vocabulary_size(pairs, seen)
  size = corpora.size_of(pairs)
  updates, reason = size.updates, size.published
  if not updates:
    updates, reason = corpora.training_steps(pairs, seen)
  training = (_BASE if size.updates else _TINY).format(
    reason="\n".join(_comment(f"{reason}; fewer with early stopping.")),
    updates=updates,
    interval=max(100, updates // 20),
    dropout=size.dropout,
  )
  system = "" if models["source"][0] is None else "pascal"
  next_commands = _commands(path, system, stats)
  corpus_lines = _indented(_split_lines(splits, folder, held_out))
  if replaces:
    _check_unedited(path, corpus_lines)
  content = _TEMPLATE.format(
    title=f"{languages[0]} to {languages[1]}: {pairs:,} pairs to train on.",
    commands=textwrap.indent(
      "\n".join(next_commands).replace("\\", r"\\").replace('"', r"\""), "  "
    ),
    imports="from jaxsyn.configs.papers import paper\n" if size.updates else "",
    names=_quoted(name, *languages),
    data=data,
    splits=corpus_lines,
    parsers=_indented(_parser_lines(models)),
    reason=_indented(_comment(f"{vocabulary_reason}.")),
    vocabulary=vocabulary,
    coverage=coverage,
    training=textwrap.indent(training.strip(), "  "),
  )
  content += f"{_CHECKSUM}{checksums.crc32c(content.encode())}\n"
  files.write_text(path, content)
  model = "the base Transformer" if size.updates else "Transformer-Tiny"
  messages += [
    "",
    f"training pairs: {pairs:,}",
    f"vocabulary: {vocabulary:,} subwords ({vocabulary_reason})",
    f"model: {model}, {updates:,} updates ({reason})",
    *(reason for _, reason in models.values()),
    f"BLEU of {languages[1]}: {tokenizers.summary(languages[1])}",
  ]
  return NewConfig(path, tuple(messages), next_commands, replaces)


def _check_unedited(path: pathlib.Path, corpus_lines: str = "") -> None:
  """Raises InputError unless a config is as `jaxsyn new` has written it.

  Args:
    path: Config file.
    corpus_lines: Lines that the file must have, to be for the same corpus.
  """
  content, mark, crc = path.read_text("utf-8", "replace").rpartition(_CHECKSUM)
  is_unedited = mark and crc == f"{checksums.crc32c(content.encode())}\n"
  if not is_unedited or corpus_lines not in content:
    raise InputError(
      f"{path} exists. Choose another --name, or remove it first. To add trees "
      'to an edited config, add "source" to config.prepare.parse.sides in it and '
      "name a UDPipe model in config.prepare.parse.source.udpipe.model."
    )


def _name(name: str, folder: pathlib.Path) -> str:
  """Returns the given or default dataset name; raises InputError if invalid."""
  if not name:
    default = folder.absolute().resolve().name.lower()
    name = re.sub("[^a-z0-9]+", "_", default).strip("_")[:80] or "corpus"
    if name in options.RESERVED_NAMES or not name[0].isalpha():
      name = f"corpus_{name}"
  valid = re.fullmatch("[a-z][a-z0-9_]{0,99}", name)
  if not valid or name in options.RESERVED_NAMES:
    raise InputError(
      f"--name {name}: lower case letters, digits and underscores, a letter "
      f"first, and none of {', '.join(options.RESERVED_NAMES)}."
    )
  return name


def _parser(
  side: str, code: str, requested: str, downloads: pathlib.Path
) -> tuple[str | None, str]:
  """Returns the UDPipe model that parses a side, and the reason as a sentence.

  The model is a file or a name, "" for that of the language, None for no trees.
  The model of a language is downloaded immediately.
  """
  if requested not in (AUTO, NONE):
    if not os.path.isfile(requested):
      raise InputError(f"--{side}_parser {requested}: there is no such file.")
    UDPipe(requested)  # raises an error for a file of another kind
    model, name = os.path.abspath(requested), os.path.basename(requested)
    return model, f"The {side} is parsed by {name}."
  reason = f"The {side} is not parsed."
  name = parser_name(code) if requested == AUTO else ""
  if name:
    path = ROOT / "prepare" / "parse" / side / UDPipeSpec.kind
    try:
      model = UDPipeSpec().resolve(path, name, downloads, {}).model
      stem = pathlib.Path(model).stem
      reason = f"The {side} is parsed by UDPipe's {stem}."
      return "" if name == code else name, reason
    except InputError:
      reason += f" UDPipe's model of {code} could not be downloaded."
  elif requested == AUTO:
    reason += f" UDPipe has no model of {code}."
  elif side == "target":
    return None, f"{reason} Few systems learn from its trees."
  return None, (
    f"{reason} For trees, remove this file and run the same command with "
    f'--{side}_parser FILE, a UDPipe model. Or add "{side}" to '
    "config.prepare.parse.sides, set config.prepare.parse."
    f"{side}.udpipe.model, and prepare again."
  )


def parser_name(language: str) -> str:
  """Returns the name of a language's model in spacy-udpipe, or ""."""
  from spacy_udpipe import utils

  first = language.replace("_", "-").partition("-")[0].lower()
  return next((n for n in (language, first) if n in utils.LANGUAGES), "")


def _split_lines(
  splits: Mapping[str, Files | None], folder: pathlib.Path, held_out: int
) -> list[str]:
  """Returns the config lines that set the raw folder and the splits."""
  paths = {s: [*map(os.path.abspath, f.names)] for s, f in splits.items() if f}
  folders = map(os.path.dirname, itertools.chain(*paths.values()))
  raw_dir, here = os.path.commonpath([*folders]), os.path.abspath(folder)
  ranges, first = dict[str, list[str]](), 1
  for split in splits:
    if split not in paths:
      ranges[split] = [f"{first}-{first + held_out - 1}"]
      first += held_out
  lines = []
  if ranges:
    ranges["train"] = [f"{first}-"]
    lines += _comment(
      "Held out: a tenth of the pairs, at most 1,000, or 2,000 of a million; the "
      "first lines. A third entry takes lines, from 1."
    )
  raw_text = "str(HERE)" if raw_dir == here else _quoted(raw_dir)
  lines.append(f"config.prepare.raw_dir = {raw_text}")
  for split in splits:
    given = paths.get(split, paths["train"])
    entry = [os.path.relpath(path, raw_dir) for path in given]
    entry += ranges.get(split, [])
    lines.append(f"config.prepare.splits.{split} = {_tuple(entry)}")
  return lines


def _parser_lines(parsers: Mapping[str, tuple[str | None, str]]) -> list[str]:
  """Returns the config lines that set the parsers, from models and reasons."""
  lines = list[str]()
  for _, reason in parsers.values():
    lines += _comment(reason)
  sides = [side for side, (model, _) in parsers.items() if model is not None]
  lines.append(f"config.prepare.parse.sides = {_tuple(sides)}")
  for side, (model, _) in parsers.items():
    if model:
      option = f"config.prepare.parse.{side}.udpipe.model"
      lines.append(f"{option} = {_quoted(model)}")
  return lines


def _indented(lines: list[str]) -> str:
  return textwrap.indent("\n".join(lines), "  ")


def _comment(text: str) -> list[str]:
  text = text[:1].upper() + text[1:]
  lines = textwrap.wrap(text, 76, break_long_words=False)
  return [f"# {line}" for line in lines]


def _quoted(*texts: str) -> str:
  return ", ".join(json.dumps(text, ensure_ascii=False) for text in texts)


def _tuple(texts: Sequence[str]) -> str:
  return f"({_quoted(*texts)}{',' * (len(texts) == 1)})"


def _commands(
  path: pathlib.Path, system: str, stats: Mapping[str, CorpusStats]
) -> tuple[str, ...]:
  """Returns shell commands that prepare data, train, and translate a text."""
  run_folder = path.parent / "runs" / (system or "transformer")
  config, workdir = shlex.quote(str(path)), shlex.quote(str(run_folder))
  trained = shlex.quote(f"{path}:{system}") if system else config
  # Sentences that a shell's echo prints unchanged.
  lines = map(str.strip, list(stats.values())[-1].source.sample)
  plain = (x for x in lines if x.isprintable() and not set(x) & {*"\\-'\""})
  sentence = next((x for x in plain if 8 < len(x) < 80), "Hello.")
  return (
    f"{commands.again('prepare')} --config {config}",
    f"{commands.again('train')} --config {trained} --workdir {workdir}",
    f"echo {shlex.quote(sentence)} | {commands.again('translate')} --workdir "
    f"{workdir}",
  )


def _main(values: flags.FlagValues) -> None:
  train = _split(values, "")
  if not values.folder or train is None:
    raise InputError(
      "name a folder and files: jaxsyn new FOLDER --source FILE --target FILE."
    )
  print(f"reading {train}", flush=True)
  new = run(
    values.folder,
    train,
    dev=_split(values, "dev_"),
    test=_split(values, "test_"),
    languages=(values.source_language, values.target_language),
    parsers=(values.source_parser, values.target_parser),
    name=values.name,
  )
  wrote = f"wrote {new.path}"
  if new.replaces:
    wrote = f"replaced {new.path}, which was not edited"
  steps = [f"  {command}" for command in new.commands]
  print("\n".join([*new.messages, "", f"{wrote}. Next:", "", *steps]))


def _split(values: flags.FlagValues, prefix: str) -> Files | None:
  """Returns the files that the flags give for a split; None for no files."""
  source = str(values[f"{prefix}source"].value)
  target = str(values[f"{prefix}target"].value)
  if target and not source:
    raise InputError(f"--{prefix}target needs --{prefix}source.")
  return Files(source, target) if source else None


def define_flags() -> None:
  """Defines the command-line flags of `jaxsyn new`."""
  detected = "; default: from the file's name or the text."
  held_out = "; default: the first training lines."
  parser = ": a UDPipe file; auto: the UDPipe model of the language, if it can "
  parser += "be downloaded; none."
  define = flags.DEFINE_string
  define("folder", "", "Folder of the config, the data and the runs.")
  define("name", "", "Name of the dataset; default: that of the folder.")
  define("source", "", "Source text for training, or a .tsv of both sides.")
  define("target", "", "Target text for training.")
  define("dev_source", "", f"Source text for validation{held_out}")
  define("dev_target", "", "Target text for validation.")
  define("test_source", "", f"Source text for testing{held_out}")
  define("test_target", "", "Target text for testing.")
  define("source_language", "", f"Language code of the source{detected}")
  define("target_language", "", f"Language code of the target{detected}")
  define("source_parser", AUTO, f"Parser of the source{parser}")
  define("target_parser", NONE, f"Parser of the target{parser}")


if __name__ == "__main__":
  define_flags()
  cli.main(_main, word="folder")
