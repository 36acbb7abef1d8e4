"""Writes a config for your parallel text, as the first step for a new corpus.

  jaxsyn new mine --source text/train.en --target text/train.fr
  jaxsyn new mine --source text/pairs.en-fr.tsv

Line N of one file is the translation of line N of the other file. Files are UTF-8,
plain text, .gz or .zst; or one .tsv of two columns. Without --dev_source or
--test_source the first lines are held out for validation and for testing. All
settings and their reasons are printed and written to FOLDER/NAME.py, a Python file
that you can edit. Running the command again, for example with --source_parser FILE,
replaces that file unless it was edited.
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
from collections.abc import Iterator, Mapping

from absl import flags

from jaxsyn import cli, commands, exits
from jaxsyn.corpus import (
  CorpusStats,
  Files,
  Size,
  contradicts,
  corpus_stats,
  count_held_out,
  guess_language,
  language_of_name,
  sizes_of,
  training_steps,
  vocabulary_size,
)
from jaxsyn.data import schema
from jaxsyn.data.sentence.parsers.udpipe import UDPipe, UDPipeSpec
from jaxsyn.errors import InputError
from jaxsyn.options import ROOT
from jaxsyn.preprocess import options
from jaxsyn.scoring import tokenizers
from jaxsyn.storage import checksums, files

AUTO, NONE = "auto", "none"  # values of --source_parser
_CHECKSUM = "# `jaxsyn new` replaces this file only while it is unedited: "


@dataclasses.dataclass(frozen=True)
class CorpusSpec:
  """Specification of a corpus by its user: files, languages and parsers.

  Attributes:
    train, dev, test: Files of the splits; None: held out from the training files.
    source_language, target_language: Language codes; "": detected from the file
      names, or else from the text.
    source_parser, target_parser: Parser: "auto", "none", or a UDPipe file.
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
  """Config file that `jaxsyn new` has written, with messages for the user.

  Attributes:
    path: Config file.
    languages: Language codes of source and target.
    sides: Sides with trees.
    messages: Corpus statistics, settings and their reasons, line by line.
    commands: Shell commands to run next, in the present folder.
    replaces: Whether the file replaced a config that was not edited.
  """

  path: pathlib.Path
  languages: tuple[str, str]
  sides: tuple[str, ...]
  messages: tuple[str, ...]
  commands: tuple[str, ...]
  replaces: bool = False


def run(
  folder: str | os.PathLike[str], corpus: CorpusSpec, name: str = ""
) -> NewConfig:
  """Writes the config FOLDER/NAME.py for a corpus.

  Args:
    folder: Folder of the config, the data and the runs; made if necessary.
    corpus: Files, languages and parsers.
    name: Name of the dataset; "": that of the folder.

  Raises:
    InputError: The files are not parallel text or too short, or a config exists
      that was edited or is for another corpus.
  """
  exits.check_target(os.fspath(folder), "FOLDER", folder=True)
  folder = pathlib.Path(folder)
  default_name, name = _name("", folder), _name(name, folder)
  path = folder / f"{name}.py"
  if path.exists():
    _check_unedited(path)
  splits = {
    "train": corpus.train,
    "validation": corpus.dev,
    "test": corpus.test,
  }
  stats = {s: corpus_stats(files) for s, files in splits.items() if files}
  train, lacking = stats["train"], [s for s in splits if s not in stats]
  held_out, held_out_reason = count_held_out(train, len(lacking))
  pairs = train.count - held_out * len(lacking)
  languages, messages = _languages(corpus, train)
  messages += _findings(stats, held_out, lacking)
  vocabulary, vocabulary_reason, coverage = vocabulary_size(pairs, train)
  # Each config has its own data directory, so that none replaces another's.
  data = "data" if name == default_name else f"data_{name}"
  parsers = {
    side: _parser(side, code, requested, folder / data / "raw")
    for side, code, requested in zip(
      schema.SIDES, languages, (corpus.source_parser, corpus.target_parser)
    )
  }
  sides = [side for side, (model, _) in parsers.items() if model is not None]
  parser_reasons = [reason for _, reason in parsers.values()]
  tokenizer = tokenizers.summary(languages[1])
  next_commands = _commands(path, "pascal" if "source" in sides else "", stats)
  entries = _entries(splits, folder, train, held_out)
  corpus_lines = [
    f"config = base.data_set({_quoted(name, *languages)})",
    *entries[:1],
    *(_comment(f"Held out: {held_out_reason}; the first lines. A third entry "
               "takes lines, from 1.") if lacking else ()),
    *entries[1:],
  ]  # fmt: skip
  sizes = sizes_of(pairs)
  model = "the base Transformer" if sizes.updates else "Transformer-Tiny"
  updates, updates_reason = sizes.updates, sizes.published
  if not updates:
    updates, updates_reason = training_steps(pairs, train, vocabulary)
  body = [
    corpus_lines[0],
    f'config.data.directory = str(HERE / "{data}")',
    "",
    *corpus_lines[1:],
    "",
    *itertools.chain(*map(_comment, parser_reasons)),
    f"config.prepare.parse.sides = {_tuple(sides)}",
    *(
      f"config.prepare.parse.{side}.udpipe.model = {_quoted(model_file)}"
      for side, (model_file, _) in parsers.items()
      if model_file
    ),
    "",
    *_comment(f"{vocabulary_reason}."),
    f"config.prepare.vocabulary.size = {vocabulary}",
  ]
  if coverage < 1:
    body += _comment("Rarer characters are unknown; there are many.")
    body.append(f"config.prepare.vocabulary.character_coverage = {coverage}")
  body += ["", *_training(sizes, updates, updates_reason)]
  body += [*_comment(f"Of BLEU: {tokenizer}")]
  body.append("return systems.apply(config, system)")
  content = _file(
    f"{languages[0]} to {languages[1]}: {pairs:,} pairs to train on.",
    next_commands,
    body,
    paper=bool(sizes.updates),
  )
  replaces = path.exists()
  if replaces:
    _check_unedited(path, corpus_lines)
  files.write_text(path, content)
  messages += [
    "",
    f"training pairs: {pairs:,}",
    f"vocabulary: {vocabulary:,} subwords ({vocabulary_reason})",
    f"model: {model}, {updates:,} updates ({updates_reason})",
    *parser_reasons,
    f"BLEU of {languages[1]}: {tokenizer}",
  ]
  return NewConfig(
    path, languages, tuple(sides), tuple(messages), next_commands, replaces
  )


def _check_unedited(
  path: pathlib.Path, corpus_lines: list[str] | None = None
) -> None:
  """Raises InputError unless a config file is as `jaxsyn new` has written it.

  Args:
    path: Config file.
    corpus_lines: Lines that the file must have, to be for the same corpus.
  """
  text = path.read_text(encoding="utf-8", errors="replace")
  above, mark, crc = text.rpartition(f"\n\n{_CHECKSUM}")
  unedited = mark and crc == f"{checksums.crc32c(above.encode())}\n"
  lines = {f"  {line}" for line in corpus_lines or ()}
  if not unedited or not lines <= {*above.splitlines()}:
    raise InputError(
      f"{path} is there already. Choose another --name, or remove it first. To "
      'add trees to an edited config, add "source" to config.prepare.parse.sides '
      "in it and name a UDPipe model in config.prepare.parse.source.udpipe.model."
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


def _languages(
  corpus: CorpusSpec, train: CorpusStats
) -> tuple[tuple[str, str], list[str]]:
  """Returns the language codes of both sides, and messages on their origin."""
  codes, messages = [], []
  for column, side in enumerate(schema.SIDES):
    file = train.files.names[min(column, len(train.files.names) - 1)]
    guess, share = guess_language(getattr(train, side).sample)
    candidates = (
      (getattr(corpus, f"{side}_language"), "as said"),
      (language_of_name(file, column), "by the file's name"),
      (guess, "by the text"),
    )
    code, reason = next((c for c in candidates if c[0]), ("", ""))
    if not re.fullmatch("[A-Za-z]{2,8}([-_][A-Za-z0-9]{1,8})*", code):
      raise InputError(
        f"{file}: which language is the {side}? Say its code, as in "
        f"--{side}_language en."
      )
    messages.append(f"{side}: {code}, {reason}")
    if contradicts(code, guess, share):
      messages.append(
        f"warning: the {side} is {code} {reason}, but {100 * share:.0f} % of it "
        f"looks like {guess}. If so: --{side}_language {guess}"
      )
    codes.append(code)
  if codes[0] == codes[1]:
    messages.append(
      f"warning: both sides are {codes[0]}. Is one the other's copy?"
    )
  return (codes[0], codes[1]), messages


def _findings(
  stats: Mapping[str, CorpusStats], held_out: int, lacking: list[str]
) -> list[str]:
  """Returns messages with corpus statistics, and warnings about the text.

  Args:
    stats: Statistics of the given splits.
    held_out: Number of pairs in each split that is held out.
    lacking: Names of the splits that are held out.
  """
  lines = []
  for split, seen in stats.items():
    part = ""
    if seen.examined < seen.count:
      part = f", of the first {seen.examined:,}"
    sides = [s.length(seen.examined) for s in (seen.source, seen.target)]
    lines.append(
      f"{split}: {seen.count:,} pairs of {seen.files}{part}: "
      f"{' and '.join(sides)} a line, {seen.examined - seen.different:,} "
      f"repeated, {seen.copies:,} with equal sides"
    )
    if dropped := {k: n for k, n in seen.dropped.items() if n}:
      counts = ", ".join(f"{name} {n:,}" for name, n in dropped.items())
      what = "preparing drops" if split == "train" else "kept as they are"
      share = 100 * sum(dropped.values()) / seen.examined
      lines.append(f"  {what}: {counts} ({share:.1f} %)")
  train, cut = stats["train"], held_out * len(lacking)
  tested = {s: seen.keys for s, seen in stats.items() if s != "train"}
  if cut:
    tested[" and ".join(lacking)] = train.keys[:cut]
    lines.append(f"{' and '.join(lacking)}: {held_out:,} pairs each, held out")
  for split, keys in tested.items():
    sources, pairs = train.repeated(keys, cut)
    if sources:
      lines.append(
        f"warning: of {len(keys):,} pairs of {split} {pairs:,} stand in training "
        f"too, and {sources:,} of their sources: scores will flatter"
      )
  letters = train.source.characters.total() + train.target.characters.total()
  mean = letters / train.examined
  if cut and not 0.67 < sum(train.lengths[:cut]) / cut / mean < 1.5:
    lines.append(
      "warning: the pairs held out, which are the first, are of other lengths "
      "than the rest; shuffle them: paste SOURCE TARGET | shuf > pairs.tsv"
    )
  return lines


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
    UDPipe(requested)
    reason = f"The {side} is parsed by {os.path.basename(requested)}."
    return os.path.abspath(requested), reason
  if requested == NONE and side == "target":
    reason = "The target is not parsed: few systems learn from its trees."
    return None, reason
  reason = f"The {side} is not parsed."
  if requested == AUTO:
    name = parser_name(code)
    path = ROOT / "prepare" / "parse" / side / UDPipeSpec.kind
    try:
      if name:
        model = UDPipeSpec().resolve(path, name, downloads, {}).model
        stem = pathlib.Path(model).stem
        reason = f"The {side} is parsed by UDPipe's {stem}."
        return "" if name == code else name, reason
      reason = f"UDPipe has no model of {code}: the {side} is not parsed."
    except InputError:
      reason = (
        f"UDPipe's model of {code} could not be fetched: the {side} is not "
        "parsed."
      )
  return None, (
    f"{reason} For trees, run the same command with --{side}_parser FILE, a "
    "UDPipe model: it replaces this file unless you edited it. Or add "
    f'"{side}" to config.prepare.parse.sides, name the file in '
    f"config.prepare.parse.{side}.udpipe.model (else that of the language is "
    f"fetched) or another parser in config.prepare.parse.{side}.parser, and "
    "prepare again."
  )


def parser_name(language: str) -> str:
  """Returns the name of a language's model in spacy-udpipe, or ""."""
  from spacy_udpipe import utils

  first = language.replace("_", "-").partition("-")[0].lower()
  return next((n for n in (language, first) if n in utils.LANGUAGES), "")


def _entries(
  splits: Mapping[str, Files | None],
  folder: pathlib.Path,
  train: CorpusStats,
  held_out: int,
) -> list[str]:
  """Returns the config lines that set the raw folder and the splits."""
  names = [name for f in splits.values() if f for name in f.names]
  paths = {name: os.path.abspath(name) for name in names}
  raw_dir = os.path.commonpath([os.path.dirname(p) for p in paths.values()])
  is_folder = raw_dir == os.path.abspath(folder)
  found, first = dict[str, tuple[str, ...]](), 1
  for split, given in splits.items():
    names = [*(given or train.files).names]
    found[split] = tuple(os.path.relpath(paths[n], raw_dir) for n in names)
    if not given:
      found[split] += (f"{first}-{first + held_out - 1}",)
      first += held_out
  if first > 1:
    found["train"] += (f"{first}-",)
  return [
    f"config.prepare.raw_dir = {'str(HERE)' if is_folder else _quoted(raw_dir)}",
    *(
      f"config.prepare.splits.{split} = {_tuple(entry)}"
      for split, entry in found.items()
    ),
  ]


def _training(sizes: Size, updates: int, reason: str) -> Iterator[str]:
  """Yields the config lines that set the model and its training."""
  if sizes.updates:
    yield from _comment(
      f"The base Transformer, {reason} by Bugliarello & Okazaki 2020; for a GPU, "
      "and not measured by jaxsyn."
    )
    yield f"paper.base_transformer(config, dropout={sizes.dropout})"
    yield "config.batch.update(tokens=32_768, length_multiple=4)"
    yield "config.optimiser.learning_rate = 1e-3"
    yield "config.optimiser.inverse_sqrt.warmup = 8000"
    yield f"config.train.steps = {updates}"
    return
  yield from _comment(
    "Transformer-Tiny, batches of 2,048 subwords, Muon: for some ten thousand "
    "pairs."
  )
  yield "base.small_corpus(config)"
  yield from _comment(f"{reason}; fewer where ten validations bring nothing.")
  interval = max(100, updates // 20)
  yield f"config.train.update(steps={updates}, patience=10)"
  yield f"config.train.update(evaluate_every={interval}, save_every={interval})"


def _file(
  title: str, next_commands: tuple[str, ...], body: list[str], *, paper: bool
) -> str:
  """Returns the Python source of a config file, with its checksum."""
  escaped = (c.replace("\\", "\\\\").replace('"', '\\"') for c in next_commands)
  lines = [
    f'"""{title}',
    "",
    "Written by `jaxsyn new`; change what you like.",
    "",
    *(f"  {command}" for command in escaped),
    '"""',
    "",
    "import pathlib",
    "",
    "from jaxsyn.configs import base, systems",
    *(["from jaxsyn.configs.papers import paper"] if paper else []),
    "",
    "HERE = pathlib.Path(__file__).resolve().parent",
    "",
    "",
    'def get_config(system="transformer"):',
    *(f"  {line}".rstrip() for line in body),
    "",
  ]
  text = "\n".join(lines)
  return f"{text}\n\n{_CHECKSUM}{checksums.crc32c(text.encode())}\n"


def _comment(text: str) -> Iterator[str]:
  text = text[:1].upper() + text[1:]
  for line in textwrap.wrap(text, 76, break_long_words=False):
    yield f"# {line}"


def _quoted(*texts: str) -> str:
  return ", ".join(json.dumps(text, ensure_ascii=False) for text in texts)


def _tuple(texts: list[str] | tuple[str, ...]) -> str:
  return f"({_quoted(*texts)}{',' * (len(texts) == 1)})"


def _commands(
  path: pathlib.Path, system: str, stats: Mapping[str, CorpusStats]
) -> tuple[str, ...]:
  """Returns shell commands that prepare data, train, and translate a text."""
  run_folder = path.parent / "runs" / (system or "transformer")
  config, workdir = shlex.quote(str(path)), shlex.quote(str(run_folder))
  trained = shlex.quote(f"{path}:{system}") if system else config
  # Sentences that a shell's echo prints unchanged.
  sentences = (
    line.strip()
    for line in list(stats.values())[-1].source.sample
    if 8 < len(line.strip()) < 80
    and line.strip().isprintable()
    and not set(line) & {*"\\-'\""}
  )
  sentence = shlex.quote(next(sentences, "Hello."))
  return (
    f"{commands.again('prepare')} --config {config}",
    f"{commands.again('train')} --config {trained} --workdir {workdir}",
    f"echo {sentence} | {commands.again('translate')} --workdir {workdir}",
  )


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
  new = run(values.folder, corpus, values.name)
  wrote = f"wrote {new.path}"
  if new.replaces:
    wrote = f"replaced {new.path}, which was not edited"
  steps = [f"  {command}" for command in new.commands]
  print("\n".join([*new.messages, "", f"{wrote}. Next:", "", *steps]))


def _split(values: flags.FlagValues, prefix: str) -> Files | None:
  """Returns the files of the split that the flags name, or None."""
  source, target = (
    str(values[f"{prefix}{side}"].value or "") for side in schema.SIDES
  )
  if target and not source:
    raise InputError(f"--{prefix}target needs --{prefix}source.")
  return Files(source, target) if source else None


def define_flags() -> None:
  """Defines the command-line flags of `jaxsyn new`."""
  flags.DEFINE_string(
    "folder",
    "",
    "Folder of the config, the data and the runs; may stand alone.",
  )
  flags.DEFINE_string(
    "source",
    "",
    "Source text for training; or a .tsv of both sides.",
  )
  flags.DEFINE_string(
    "target",
    "",
    "Target text for training.",
  )
  flags.DEFINE_string(
    "dev_source",
    "",
    "Source text for validation; default: the first training lines.",
  )
  flags.DEFINE_string(
    "dev_target",
    "",
    "Target text for validation.",
  )
  flags.DEFINE_string(
    "test_source",
    "",
    "Source text for testing; default: training lines.",
  )
  flags.DEFINE_string(
    "test_target",
    "",
    "Target text for testing.",
  )
  flags.DEFINE_string(
    "source_language",
    "",
    "Language code of the source; default: from the file's name or the text.",
  )
  flags.DEFINE_string(
    "target_language",
    "",
    "Language code of the target; default: from the file's name or the text.",
  )
  flags.DEFINE_string(
    "source_parser",
    AUTO,
    "Parser of the source: a UDPipe file; auto: the UDPipe model of the "
    "language, if it can be downloaded; none.",
  )
  flags.DEFINE_string(
    "target_parser",
    NONE,
    "Parser of the target, for systems that learn from its trees; see "
    "--source_parser.",
  )
  flags.DEFINE_string(
    "name",
    "",
    "Name of the dataset and of the config file; default: that of the folder.",
  )


if __name__ == "__main__":
  define_flags()
  cli.main(_main, word="folder")
