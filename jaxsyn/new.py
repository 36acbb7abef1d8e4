"""Looks at parallel text and writes a config for it: the first command of a corpus.

  jaxsyn new mine --source text/train.en --target text/train.fr
  jaxsyn new mine --source text/pairs.en-fr.tsv

Line N of one file is the translation of line N of the other; plain text, .gz or
.zst, UTF-8; or one .tsv of two columns. Without --dev_source or --test_source the
first lines are held out for validation and for testing. What is chosen, and by
which rule, is printed and stands in FOLDER/NAME.py, which is Python and yours. The
same command again, with --source_parser FILE, say, replaces that file unless it was
edited.
"""

from __future__ import annotations

import dataclasses
import os
import pathlib
import re
import shlex
from collections.abc import Iterator

from absl import flags

from jaxsyn import cli, commands, exits
from jaxsyn.data import schema
from jaxsyn.errors import InputError
from jaxsyn.preprocess import options
from jaxsyn.scoring import tokenizers
from jaxsyn.storage import files
from jaxsyn.survey import choices, config_file, findings
from jaxsyn.survey import parsers as parsers_of
from jaxsyn.survey import splits as splits_of
from jaxsyn.survey.config_file import ConfigPlan
from jaxsyn.survey.pairs import CorpusStats, Files, corpus_stats
from jaxsyn.survey.parsers import AUTO, NONE

_SYSTEM = "pascal"  # that is trained first, where there are trees


@dataclasses.dataclass(frozen=True)
class CorpusSpec:
  """What a user says of a corpus.

  Attributes:
    train, dev, test: files; None: held out of the training files.
    source_language, target_language: codes; "": by file names, else by text.
    source_parser, target_parser: "auto", "none", or a file of UDPipe.
  """

  train: Files
  dev: Files | None = None
  test: Files | None = None
  source_language: str = ""
  target_language: str = ""
  source_parser: str = AUTO
  target_parser: str = NONE


@dataclasses.dataclass(frozen=True)
class NewConfig:
  """What came of it.

  Attributes:
    path: the config file.
    plan: what it says.
    told: what was found, line by line.
    commands: the next ones, for a shell in the same folder.
    replaces: whether it replaced a config that was not edited.
  """

  path: pathlib.Path
  plan: ConfigPlan
  messages: tuple[str, ...]
  commands: tuple[str, ...]
  replaces: bool = False


def run(
  folder: str | os.PathLike[str], corpus: CorpusSpec, name: str = ""
) -> NewConfig:
  """Writes FOLDER/NAME.py.

  Args:
    folder: of the config and of all that comes later; made if it is not there.
    corpus: the files, and what is known of them.
    name: of the data set; "": that of the folder.

  Raises:
    InputError: files that are no parallel text, too few lines, or a config
      that was edited or belongs to another corpus; says what to do.
  """
  exits.check_target(os.fspath(folder), "FOLDER", folder=True)
  folder = pathlib.Path(folder)
  name = _name(name, folder)
  path = folder / f"{name}.py"
  if path.exists():
    _check_replaceable(path)
  splits = {
    "train": corpus.train,
    "validation": corpus.dev,
    "test": corpus.test,
  }
  splits_of.check([f for f in splits.values() if f])
  stats = {
    split: corpus_stats(files) for split, files in splits.items() if files
  }
  train = stats["train"]
  lacking = [split for split, files in splits.items() if not files]
  held_out = splits_of.held_out(train, len(lacking))
  codes_given = (corpus.source_language, corpus.target_language)
  codes, messages = findings.of_languages(codes_given, train)
  messages += findings.of_text(stats, held_out.value, lacking)
  pairs = train.count - held_out.value * len(lacking)
  vocabulary, coverage = choices.vocabulary(pairs, train)
  requested_parsers = (corpus.source_parser, corpus.target_parser)
  # Each config its own: of two in a folder one replaced what the other prepared.
  data = "data" if name == _name("", folder) else f"data_{name}"
  parsers = {
    side: parsers_of.find(side, code, requested, folder / data / "raw")
    for side, code, requested in zip(schema.SIDES, codes, requested_parsers)
  }
  trees = parsers["source"].is_available
  raw_dir, entries = splits_of.entries(splits, folder, train, held_out.value)
  steps = _commands(path, folder, _SYSTEM if trees else "", stats)
  plan = ConfigPlan(
    name=name,
    data=data,
    languages=codes,
    raw_dir=raw_dir,
    splits=entries,
    pairs=pairs,
    held_out=held_out if lacking else None,
    vocabulary=vocabulary,
    coverage=coverage,
    training=choices.training(pairs, train, vocabulary.value),
    parsers=parsers,
    tokenizer=tokenizers.summary(codes[1]),
    commands=steps,
  )
  if replaces := path.exists():
    _check_replaceable(path, plan)
    files.write_text(path, config_file.content(plan))
  else:
    try:
      files.write_new(path, config_file.content(plan))
    except FileExistsError:  # another process was first
      raise InputError(f"{path} is there already.") from None
  return NewConfig(path, plan, tuple(messages), steps, replaces)


def _check_replaceable(
  path: pathlib.Path, plan: ConfigPlan | None = None
) -> None:
  """Raises InputError unless `new` wrote a config that nobody has edited.

  Args:
    path: of the config.
    plan: also rejects a config for another corpus than this plan's.
  """
  text = path.read_text(encoding="utf-8", errors="replace")
  if not config_file.is_unedited(text, plan):
    raise InputError(
      f"{path} is there already. Choose another --name, or remove it first. To "
      'add trees to an edited config, add "source" to config.prepare.parse.sides '
      "in it and name a UDPipe model in config.prepare.parse.source.udpipe.model."
    )


def _name(name: str, folder: pathlib.Path) -> str:
  """The name of the data set.

  Raises:
    InputError: TFDS or the prepared folder would not have it.
  """
  if not name:
    default_name = re.sub(
      "[^a-z0-9]+", "_", folder.absolute().resolve().name.lower()
    )
    name = default_name.strip("_")[:80] or "corpus"
    if name in options.RESERVED_NAMES or not name[0].isalpha():
      name = f"corpus_{name}"
  if (
    not re.fullmatch("[a-z][a-z0-9_]{0,99}", name)
    or name in options.RESERVED_NAMES
  ):
    raise InputError(
      f"--name {name}: lower case letters, digits and underscores, a letter "
      f"first, and none of {', '.join(options.RESERVED_NAMES)}."
    )
  return name


def _commands(
  path: pathlib.Path,
  folder: pathlib.Path,
  system: str,
  stats: dict[str, CorpusStats],
) -> tuple[str, ...]:
  """To prepare, to train, to translate a sentence."""
  config, run_folder = shlex.quote(str(path)), folder / "runs" / "transformer"
  if system:
    run_folder = run_folder.with_name(system)
  workdir = shlex.quote(str(run_folder))
  trained = shlex.quote(f"{path}:{system}") if system else config
  sentence = _sentence(list(stats.values())[-1].source.sample)
  return (
    f"{commands.again('prepare')} --config {config}",
    f"{commands.again('train')} --config {trained} --workdir {workdir}",
    f"echo {shlex.quote(sentence)} | {commands.again('translate')} --workdir "
    f"{workdir}",
  )


def _sentence(sample: list[str]) -> str:
  """One that a shell's echo prints as it is."""
  for line in sample:
    line = line.strip()
    if (
      8 < len(line) < 80 and line.isprintable() and not set(line) & {*"\\-'\""}
    ):
      return line
  return "Hello."


def _shown(new: NewConfig) -> Iterator[str]:
  """What the command prints."""
  plan = new.plan
  yield from new.messages
  yield ""
  yield f"training pairs: {plan.pairs:,}"
  yield f"vocabulary: {plan.vocabulary.value:,} subwords ({plan.vocabulary.rule})"
  model, updates = plan.training.model, plan.training.updates
  yield f"model: {model}, {updates.value:,} updates ({updates.rule})"
  yield from (parser.why for parser in plan.parsers.values())
  yield f"BLEU of {plan.languages[1]}: {plan.tokenizer}"
  yield ""
  wrote = f"wrote {new.path}"
  if new.replaces:
    wrote = f"replaced {new.path}, which was not edited"
  yield f"{wrote}. Next:"
  yield ""
  yield from (f"  {line}" for line in new.commands)


def _main(values: flags.FlagValues) -> None:
  train = _split(values, "")
  if not values.folder or train is None:
    raise InputError(
      "name a folder and files: jaxsyn new FOLDER --source FILE --target FILE."
    )
  print(f"looking at {train}", flush=True)
  corpus = CorpusSpec(
    train,
    dev=_split(values, "dev_"),
    test=_split(values, "test_"),
    source_language=values.source_language,
    target_language=values.target_language,
    source_parser=values.source_parser,
    target_parser=values.target_parser,
  )
  print("\n".join(_shown(run(values.folder, corpus, values.name))))


def _split(values: flags.FlagValues, which: str) -> Files | None:
  """The files of a split that flags name; None where they do not."""
  source, target = (
    str(values[f"{which}{side}"].value or "") for side in schema.SIDES
  )
  if target and not source:
    raise InputError(f"--{which}target needs --{which}source.")
  return Files(source, target) if source else None


def define_flags() -> None:
  """Those of the command."""
  flags.DEFINE_string(
    "folder",
    "",
    "Of the config and of all that comes later; FOLDER alone will do.",
  )
  flags.DEFINE_string(
    "source", "", "Training text of the source; or a .tsv of both sides."
  )
  flags.DEFINE_string("target", "", "Training text of the target.")
  flags.DEFINE_string(
    "dev_source",
    "",
    "The same of the validation set; without it lines of the training text.",
  )
  flags.DEFINE_string("dev_target", "", "Target of the validation set.")
  flags.DEFINE_string("test_source", "", "The same of the test set, likewise.")
  flags.DEFINE_string("test_target", "", "Target of the test set.")
  flags.DEFINE_string(
    "source_language",
    "",
    "Its code; else what the file's name ends in, or what the text looks like.",
  )
  flags.DEFINE_string("target_language", "", "The same of the target.")
  flags.DEFINE_string(
    "source_parser",
    AUTO,
    "Trees of the source: of a UDPipe model, a file; auto: the model of the language, where there is one and it can be fetched; none.",
  )
  flags.DEFINE_string(
    "target_parser",
    NONE,
    "Likewise of the target, for systems that learn from its trees.",
  )
  flags.DEFINE_string(
    "name", "", "Of the data set and of the config file; the folder's."
  )


if __name__ == "__main__":
  define_flags()
  cli.main(_main, word="folder")
