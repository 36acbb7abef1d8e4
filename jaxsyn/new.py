"""Writes a config for your parallel text, as the first step for a new corpus.

  jaxsyn new mine --source text/train.en --target text/train.fr
  jaxsyn new mine --source text/pairs.en-fr.tsv

Line N of one file is the translation of line N of the other file. Files are UTF-8,
plain text, .gz or .zst; or one .tsv of two columns. Without --dev_source or
--test_source the first lines are held out. All settings and their reasons are printed
and written to FOLDER/NAME.py, a Python file that you can edit.
"""

from __future__ import annotations

import os
import pathlib
import re
import shlex
import textwrap
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from absl import flags

from jaxsyn import cli, commands
from jaxsyn.data import schema
from jaxsyn.data.loader.batch_sampler import BatchSampler
from jaxsyn.data.sentence.parsers.udpipe import UDPipe
from jaxsyn.data.store.rows import Lengths
from jaxsyn.errors import InputError
from jaxsyn.preprocess import corpus as corpora
from jaxsyn.preprocess import options
from jaxsyn.preprocess.corpus import CorpusStats, Files
from jaxsyn.scoring import tokenizers
from jaxsyn.storage import files
from jaxsyn.utils import exits

AUTO, NONE = "auto", "none"  # values of --source_parser
# On Multi30k, 29,000 pairs are 259 batches; the best checkpoint is after 32 epochs.
_BATCH, _EPOCHS = 2048, 27
ROWS = 8  # the default of config.batch.row_multiple
_LETTERS_PER_SUBWORD = 1.5  # where no spaces separate words; an estimate
_COVERAGE = 0.9995  # of characters, for languages with many of them

_TEMPLATE = '''"""Config written by `jaxsyn new`; edit it as needed."""
{comments}

import pathlib

from jaxsyn.configs import base, systems
{imports}
HERE = pathlib.Path(__file__).resolve().parent


def get_config(system="transformer"):
  config = base.data_set({name!r}, {source!r}, {target!r})
  config.data.directory = str(HERE / "data")

  # The third entry is a range of lines, counted from 1.
  config.prepare.raw_dir = str(HERE)
{splits}

{parsers}

  config.prepare.vocabulary.size = {vocabulary}
  config.prepare.vocabulary.character_coverage = {coverage}

{training}
  return systems.apply(config, system)
'''
_TINY = """
  # Transformer-Tiny, for tens of thousands of pairs: Muon, 2,048-subword batches.
  base.small_corpus(config)
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


class Size(NamedTuple):
  """Vocabulary size and training length that suit corpora of similar size.

  Attributes:
    vocabulary: Number of subwords; 0: 2 for 5 pairs.
    reason: Source of the sizes.
    updates: Number of training steps of a base Transformer; 0: a
      Transformer-Tiny, trained for a number of epochs.
    dropout: Dropout rate of the base Transformer.
  """

  vocabulary: int
  reason: str
  updates: int = 0
  dropout: float = 0.0


# Minimum number of pairs -> sizes; docs/own_data.md has the sources.
SIZES = {
  1_000_000: Size(32_000, "published for 4.3 million pairs", 100_000, 0.1),
  200_000: Size(16_000, "published for 230,000 pairs", 20_000, 0.3),
  20_000: Size(8000, "4,000 were worse on 29,000 pairs of Multi30k"),
  0: Size(0, "rule of thumb: 2 subwords per 5 pairs, at least 1,000"),
}


class NewConfig(NamedTuple):
  """Path of the config that `jaxsyn new` has written, and messages to print.

  Attributes:
    path: Config file.
    messages: Corpus statistics, settings and their reasons, line by line.
    commands: Shell commands to run next, in the present folder.
  """

  path: pathlib.Path
  messages: list[str]
  commands: list[str]


def run(
  folder: str | os.PathLike[str],
  train: Files,
  *,
  dev: Files | None = None,
  test: Files | None = None,
  languages: tuple[str, str] = ("", ""),
  parsers: tuple[str, str] = (AUTO, NONE),
) -> NewConfig:
  """Writes the config of a corpus to FOLDER, in a file named after FOLDER.

  Args:
    folder: Folder of the config, the data and the runs; made if necessary.
    train, dev, test: Files of the splits; None: held out from the training files.
    languages: Language codes of both sides; "": from the file names.
    parsers: Parsers of both sides: "auto", "none", or a UDPipe file.

  Raises:
    InputError: A config exists, or the files do not suit.
  """
  exits.check_target(os.fspath(folder), "FOLDER", folder=True)
  folder = pathlib.Path(folder)
  name = _dataset_name(folder)
  path = folder / f"{name}.py"
  if path.exists():
    raise InputError(f"{path} exists. Delete it, or choose another folder.")
  splits = {"train": train, "validation": dev, "test": test}
  stats = {s: corpora.corpus_stats(one) for s, one in splits.items() if one}
  seen, lacking = stats["train"], [s for s in splits if s not in stats]
  held_out = corpora.count_held_out(seen) if lacking else 0
  pairs = seen.count - held_out * len(lacking)
  languages, messages = corpora.languages(train, languages)
  messages += corpora.findings(stats, held_out, lacking)
  models: dict[str, str] = {}
  for side, code, parser in zip(schema.SIDES, languages, parsers):
    model, message = _parser(side, code, parser)
    messages.append(message)
    if model is not None:
      models[side] = model
  size = size_of(pairs)
  vocabulary, coverage, reason = vocabulary_size(pairs, seen)
  messages.append(f"vocabulary: {vocabulary:,} subwords ({reason})")
  updates, reason = size.updates, size.reason
  if not updates:
    updates, reason = training_steps(pairs, seen, vocabulary)
  architecture = "the base Transformer" if size.updates else "Transformer-Tiny"
  messages += [
    f"model: {architecture}, {updates:,} updates ({reason})",
    f"BLEU of {languages[1]}: {tokenizers.summary(languages[1])}",
  ]
  next_commands = _commands(path, "pascal" if "source" in models else "", stats)
  training = (_BASE if size.updates else _TINY).strip("\n")
  wrapped = (textwrap.fill(m, 76, subsequent_indent="  ") for m in messages)
  comments = "\n".join([*wrapped, *next_commands])
  content = _TEMPLATE.format(
    comments=textwrap.indent(comments, "# "),
    imports="from jaxsyn.configs.papers import paper\n" if size.updates else "",
    name=name,
    source=languages[0],
    target=languages[1],
    splits="\n".join(_split_lines(splits, folder, held_out)),
    parsers="\n".join(_parser_lines(models)),
    vocabulary=vocabulary,
    coverage=coverage,
    training=training.format(
      updates=updates, interval=max(100, updates // 20), dropout=size.dropout
    ),
  )
  files.write_text(path, content)
  return NewConfig(path, messages, next_commands)


def size_of(pairs: int) -> Size:
  """Returns the `Size` in SIZES for a corpus with a given number of pairs."""
  return next(size for minimum, size in SIZES.items() if pairs >= minimum)


def vocabulary_size(pairs: int, train: CorpusStats) -> tuple[int, float, str]:
  """Returns the joint vocabulary's size, character coverage and a reason."""
  usual = size_of(pairs)
  size = usual.vocabulary or max(1000, pairs * 2 // 500 * 100)
  characters = train.source.characters + train.target.characters
  coverage = _COVERAGE if 4 * len(characters) > size else 1.0
  counts = np.array([count for _, count in characters.most_common()])
  covered = np.cumsum(counts) / max(1, counts.sum())
  needed = 1 + int(np.sum(covered < coverage)) + len(schema.SPECIAL)
  if 2 * needed <= size:
    return size, coverage, usual.reason
  size = -(-2 * needed // 100) * 100
  part = f"{100 * coverage:g} % of the text"
  return size, coverage, f"twice the {needed:,} characters of {part}"


def training_steps(
  pairs: int, train: CorpusStats, vocabulary: int
) -> tuple[int, str]:
  """Returns the number of training steps for Transformer-Tiny, and a reason.

  Args:
    pairs: Number of training pairs.
    train: Statistics of the training files.
    vocabulary: Number of subwords.
  """
  subwords = max(
    side.words * _subwords_per_word(vocabulary)
    if side.has_blanks
    else side.letters / _LETTERS_PER_SUBWORD
    for side in (train.source, train.target)
  )
  # Lines vary in subwords as they vary in characters.
  length = np.array(train.lengths) * (subwords / max(1, sum(train.lengths)))
  length = np.clip(np.ceil(length).astype(int), 2, _BATCH // ROWS)
  none = np.zeros_like(length)
  sampler = BatchSampler(
    Lengths(length, length, none, none),
    tokens=_BATCH,
    shapes=0,
    seed=0,
    row_multiple=ROWS,
    length_multiple=1,
  )
  epoch = max(1.0, sampler.batches_per_epoch() * pairs / train.examined)
  count = int(min(max(round(_EPOCHS * epoch, -2), 2000), 20_000))
  return count, (
    f"about {count / epoch:,.0f} epochs, or fewer with early stopping; the best "
    "checkpoint on Multi30k came after 32"
  )


def _subwords_per_word(vocabulary: int) -> float:
  """Estimates the number of subwords per word from the vocabulary size.

  Fitted to SentencePiece models of 1,000 to 16,000 subwords on English with
  German (Multi30k) and Hausa; Igbo has a tenth more.
  """
  return 1.11 + 29.4 / vocabulary**0.5


def _dataset_name(folder: pathlib.Path) -> str:
  """Returns the name of a folder as lowercase letters, digits and underscores."""
  name = folder.absolute().resolve().name.lower()
  name = re.sub("[^a-z0-9]+", "_", name).strip("_")[:80] or "corpus"
  if name in options.RESERVED_NAMES or not name[0].isalpha():
    return f"corpus_{name}"
  return name


def _parser(side: str, code: str, requested: str) -> tuple[str | None, str]:
  """Returns the UDPipe model that parses a side, and a message.

  The model is a file or a name, "" for that of the language, None for no trees.
  """
  reason = ""
  if requested == AUTO:
    from spacy_udpipe import utils  # takes a second to load

    names = (code, code.replace("_", "-").partition("-")[0].lower())
    name = next((n for n in names if n in utils.LANGUAGES), None)
    if name:
      message = f"The {side} is parsed by UDPipe's model of {name}."
      return "" if name == code else name, message
    reason = f"UDPipe has no model of {code}. "
  elif requested != NONE:
    UDPipe(requested)  # raises an error for a missing file and other files
    message = f"The {side} is parsed by {os.path.basename(requested)}."
    return os.path.abspath(requested), message
  return None, (
    f"The {side} is not parsed. {reason}To parse it, delete the config and run the "
    f"same command with --{side}_parser FILE, a UDPipe model."
  )


def _split_lines(
  splits: Mapping[str, Files | None], folder: pathlib.Path, held_out: int
) -> list[str]:
  """Returns config lines that select the files and line ranges of splits."""
  here, train, first = os.path.realpath(folder), splits["train"], 1
  assert train is not None
  ranges = {}
  for split, given in splits.items():
    if given is None:
      ranges[split] = f"{first}-{first + held_out - 1}"
      first += held_out
  if ranges:
    ranges["train"] = f"{first}-"
  lines = []
  for split, given in splits.items():
    paths = map(os.path.realpath, (given or train).names)
    entry = [os.path.relpath(path, here) for path in paths]
    entry += [ranges[split]] if split in ranges else []
    lines.append(f"  config.prepare.splits.{split} = {tuple(entry)!r}")
  return lines


def _parser_lines(models: Mapping[str, str]) -> list[str]:
  """Returns the config lines that select the parser model of each side."""
  lines = [f"  config.prepare.parse.sides = {tuple(models)!r}"]
  for side, model in models.items():
    if model:
      option = f"config.prepare.parse.{side}.udpipe.model"
      lines.append(f"  {option} = {model!r}")
  return lines


def _commands(
  path: pathlib.Path, system: str, stats: Mapping[str, CorpusStats]
) -> list[str]:
  """Returns shell commands that prepare data, train, and translate a text."""
  run_folder = path.parent / "runs" / (system or "transformer")
  config, workdir = shlex.quote(str(path)), shlex.quote(str(run_folder))
  trained = shlex.quote(f"{path}:{system}") if system else config
  # A sentence that a shell's echo prints unchanged.
  lines = map(str.strip, list(stats.values())[-1].source.sample)
  plain = (line for line in lines if re.fullmatch(r"\w[\w ,.?!]{8,80}", line))
  return [
    f"{commands.again('prepare')} --config {config}",
    f"{commands.again('train')} --config {trained} --workdir {workdir}",
    f"echo {shlex.quote(next(plain, 'Hello.'))} | {commands.again('translate')} "
    f"--workdir {workdir}",
  ]


def _main(values: flags.FlagValues) -> None:
  train = _split(values, "")
  if not values.folder or train is None:
    raise InputError(
      "name a folder and files: jaxsyn new FOLDER --source FILE --target FILE."
    )
  new = run(
    values.folder,
    train,
    dev=_split(values, "dev_"),
    test=_split(values, "test_"),
    languages=(values.source_language, values.target_language),
    parsers=(values.source_parser, values.target_parser),
  )
  print(*new.messages, "", f"wrote {new.path}. Next:", "", sep="\n")
  print(*(f"  {command}" for command in new.commands), sep="\n")


def _split(values: flags.FlagValues, prefix: str) -> Files | None:
  """Returns the files that the flags name for a split; None without files."""
  source = str(values[f"{prefix}source"].value)
  target = str(values[f"{prefix}target"].value)
  if target and not source:
    raise InputError(f"--{prefix}target needs --{prefix}source.")
  return Files(source, target) if source else None


_FLAGS = {
  "folder": "Folder of the config, data and runs; may be positional.",
  "source": "Source text for training, or a .tsv of both sides.",
  "target": "Target text for training; omit for a .tsv.",
  "dev_source": "Validation source text; default: held-out lines of --source.",
  "dev_target": "Validation target text.",
  "test_source": "Test source text; default: held-out lines of --source.",
  "test_target": "Test target text.",
  "source_language": "Source language code; default: from the file name.",
  "target_language": "Target language code; default: from the file name.",
}


def define_flags() -> None:
  """Defines the command-line flags of `jaxsyn new`."""
  for name, meaning in _FLAGS.items():
    flags.DEFINE_string(name, "", meaning)
  meaning = "UDPipe file; auto: the language's model; none: no parser."
  flags.DEFINE_string("source_parser", AUTO, meaning)
  flags.DEFINE_string("target_parser", NONE, meaning)


if __name__ == "__main__":
  define_flags()
  cli.main(_main, word="folder")
