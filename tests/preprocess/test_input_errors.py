"""Errors of options and raw files are found before anything is prepared."""

import gzip
import json
import pathlib

import pytest
from raw_corpora import chain, corpus, lines_of, nothing_made

from jaxsyn.config import read_config
from jaxsyn.data.options import DataConfig
from jaxsyn.data.store.dataset import Dataset
from jaxsyn.errors import InputError
from jaxsyn.preprocess import build
from jaxsyn.preprocess.inputs import read_inputs

LINES = 60  # of the training split


def bracketed(line):
  """The first word is a noun phrase, the others are a verb phrase."""
  first, *rest = line.split()
  words = " ".join(f"(X {word})" for word in rest)
  return f"(S (NP (N {first})) (VP {words}))"


def joined(line):
  """A tree whose only word is the line without blanks."""
  return chain(line.replace(" ", ""))


def replaced(change, line=5, make=str):
  """Returns a function that makes a file with one other line.

  Args:
    change: the line, or lines, instead of it.
    line: its number.
    make: function of a source line that makes the line of the file.
  """
  lines = [change] if isinstance(change, str) else change

  def content(source):
    made = [make(one) for one in source]
    return [*made[: line - 1], *lines, *made[line:]]

  return content


def pairs(line):
  return replaced(line, 2, lambda text: f'{{"en": "{text}", "de": "x"}}')


SPLIT, PARSE = "prepare.splits.train", "prepare.parse"
BRACKETS = {f"{PARSE}.source_brackets": {"train": "new"}}
LINKS = {"prepare.alignments": {"train": ("new",)}}
MORE = {f"{PARSE}.source_alternatives": {"train": ("new",)}}
PLAIN = {SPLIT: ("new", "train.de.gz"), f"{PARSE}.sides": ()}
JSON = {SPLIT: ("new.jsonl",)}

# Options, file "new" made of the source lines, and the message.
CASES = [
  # Names of splits and of the dataset.
  ({"data.train": "trian"}, None, r"data\.train: no split 'trian'.*'train'"),
  (
    {"data.validation": "tset"},
    None,
    r"data\.validation: .*'tset'.*mean 'test'",
  ),
  (
    {"data.test": ("test", "x")},
    None,
    r"data\.test: no split 'x' .* to \(\)",
  ),
  (
    {"prepare.splits": {"Train": ("a", "b")}},
    None,
    r"a name in .*splits must be lower case.*'Train'",
  ),
  ({"data.name": "raw"}, None, r"data\.name must not be 'raw'"),
  ({"prepare.optional": ("train",)}, None, r"optional: train is not a test sp"),
  ({"prepare.optional": ("test2",)}, None, r"optional: test2 is not a test s"),
  # Entries of splits.
  ({SPLIT: ("no.en", "train.de.gz")}, None, r"file no\.en is not found in "),
  ({SPLIT: ("p-*.en", "train.de.gz")}, None, r"file matches p-\*\.en in "),
  ({"prepare.raw_dir": "nowhere"}, None, r"train\.en is not found in nowhere"),
  ({SPLIT: ("train.en",)}, None, r"splits\.train must be two files .*'train"),
  ({"prepare.fields": ("a",)}, None, r"fields must be two names.*'a'"),
  # Text.
  (PLAIN, replaced([], 1), r"new has 59 lines, but \S*train\.de\.gz has 60: .* l"
   r"ine 60 of"),
  (PLAIN, lambda lines: ["\u200b "] * 60, r"splits\.train: no line taken of"),
  (
    {SPLIT: ("new", "new"), f"{PARSE}.sides": ()},
    lambda lines: [],
    r"splits\.train: \S*/new and .* are empty",
  ),
  (
    {SPLIT: ("new.tsv", "1-60")},
    replaced("the old man", 5, lambda line: f"{line}\t{line}"),
    r"new\.tsv:5: 1 columns, but a pair",
  ),
  (JSON, pairs("{"), r"new\.jsonl:2: the line is not JSON"),
  (JSON, pairs("[]"), r"new\.jsonl:2: there is no text in the field 'en'"),
  (JSON, pairs('{"en": "a", "x": "b"}'), r"2: there is no text in the field 'de"),
  (JSON, pairs('{"en": 1, "de": "b"}'), r"no text in the field 'en'; .*fields"),
  (JSON, pairs('{"en": "\\ud800", "de": "b"}'), r"2: the field 'en' has half of"),
  # Parsers, given trees and further parses.
  (
    {f"{PARSE}.source_conllu": {}, f"{PARSE}.source.udpipe.model": "no.udpipe"},
    None,
    r"'no\.udpipe' is neither a file",
  ),
  (
    {f"{PARSE}.source_conllu.test": "no.conllu"},
    None,
    r"source_conllu\.test: there is no file no\.conllu",
  ),
  (
    {f"{PARSE}.source_conllu": {"train": "new"}},
    None,
    r"source_conllu must name a file for each split \(test, train\)",
  ),
  (MORE, replaced(chain("sees"), 5, chain), r"new:\d+: .*parse the same text"),
  (MORE, replaced([], 60, chain), "the CoNLL-U has no tree for"),
  (MORE, replaced([], 99, joined), r"/new: no tree has the words of its line"),
  (MORE, None, r"source_alternatives\.train: there is no file new"),
  (
    {f"{PARSE}.source_alternatives": {"test": ("new",)}},
    None,
    "must name the files of the split train",
  ),
  (
    {f"{PARSE}.target_alternatives": {"train": ("new",)}},
    None,
    "target_alternatives are parses of a side that",
  ),
  # Constituency trees.
  (BRACKETS, replaced([], 60, bracketed), r"new has 59 lines, but its text has"),
  (BRACKETS, replaced("", 5, bracketed), r"new:5: the line is empty"),
  (BRACKETS, replaced("(S (A b)) (C", 2, bracketed), r"new:2: .* one tree per"),
  (BRACKETS, lambda lines: ["()"] * 60, "no kept line has a tree with const"),
  (
    BRACKETS,
    lambda lines: [bracketed("no such words")] * 60,
    r"/new: no tree has the words of its line of .*train\.en",
  ),
  (BRACKETS, None, r"source_brackets\.train: there is no file new"),
  (
    {f"{PARSE}.source_brackets": {"test": "new"}},
    None,
    r"source_brackets must name the files of the split train",
  ),
  (
    {f"{PARSE}.source_brackets": {"train": "new", "dev": "new"}},
    None,
    r"may name those of others of test, train, has \['dev'",
  ),
  # Alignments.
  (LINKS, replaced("0-0 1:1", make=lambda _: ""), r"new:5: '1:1' is not a link"),
  (
    LINKS,
    replaced("99-0", make=lambda _: ""),
    r"new:5: the link 99-0 has word 99 of the source, whose",
  ),
  (
    LINKS,
    replaced("0-99", make=lambda _: ""),
    r"new:5: .* word 99 of the target, whose line 5 has \d+",
  ),
  (LINKS, lambda lines: ["0-0"] * 2, r"new has 2 lines, but .* has 60\. Line N"),
  (LINKS, None, r"alignments\.train: there is no file new"),
  (
    {"prepare.alignments": {"train": ("a", "b")}},
    None,
    r"alignments\.train must be \(file,\), or \(file, s",
  ),
  (
    {"prepare.alignments": {"test": ("new",)}},
    None,
    "alignments must name the files of the split",
  ),
  (
    {"prepare.alignments": {"train": ("new", "train.en", "train.en")}},
    lambda lines: [""] * 60,
    r"train\.en:1: the word '\w+' is not in the text",
  ),
  # Cleaning.
  (
    {"prepare.clean.max_characters": 1},
    None,
    r"no training pair is left of 60 \(dropped: max_characters 60\)",
  ),
  (
    {"prepare.subset.pairs": 1000},
    None,
    r"subset\.pairs is 1,000, but .* has 60 clean pairs, of 60\. Give at most",
  ),
]  # fmt: skip


def set_options(config, options):
  for option, value in options.items():
    *sections, field = option.split(".")
    section = config
    for name in sections:
      section = section[name]
    with section.unlocked():
      section[field] = value


def write(path, lines):
  """Writes lines, or trees, which have an empty line at their end."""
  text = "".join(x if x.endswith("\n\n") else f"{x}\n" for x in lines)
  path.write_bytes(text.encode())


@pytest.mark.parametrize(("options", "content", "message"), CASES)
def test_reports_invalid_input(tmp_path, options, content, message):
  config = corpus(tmp_path)
  raw = pathlib.Path(config.prepare.raw_dir)
  set_options(config, options)
  if content is not None:
    names = [part for part in options.get(SPLIT, ()) if part.startswith("new")]
    path = raw / (names or ["new"])[0]
    write(path, content(lines_of(config, "train.en")))
  with pytest.raises(InputError, match=message):
    build.run(config)
  assert nothing_made(config)


@pytest.mark.parametrize(
  "lines", ["1-61", "0-3", "5-4", "3", "a-b", "61-", "-2"]
)
def test_reports_lines_that_do_not_exist(tmp_path, lines):
  config = corpus(tmp_path)
  config.prepare.splits.train = ("train.en", "train.de.gz", lines)
  with pytest.raises(
    InputError, match=rf"splits\.train: the lines must .* 1 to 60 .*'{lines}'"
  ):
    build.run(config)


def test_rejects_nul_but_keeps_other_control_characters_in_test_splits(
  tmp_path,
):
  config = corpus(tmp_path)
  raw = pathlib.Path(config.prepare.raw_dir)
  lines = lines_of(config, "test.en")
  lines[2] += " \x85\x1f"
  packed = gzip.compress("".join(f"{line}\n" for line in lines).encode())
  (raw / "test.de.gz").write_bytes(packed)
  assert Dataset(build.run(config)).text("test", "target") == lines
  (raw / "test.de.gz").write_bytes(gzip.compress(b"\0\n" * 7))
  with pytest.raises(InputError, match=r"/test\.de\.gz:1: there is a NUL"):
    build.run(config)


def key_of(config):
  sections = DataConfig(config.data, config.prepare)
  return read_inputs(sections, "", pathlib.Path("fetched")).key


@pytest.mark.parametrize(
  ("options", "make"),
  [
    (MORE, chain),
    (BRACKETS, bracketed),
    (LINKS, lambda line: "0-0"),
    ({f"{PARSE}.source_conllu": {"train": "new", "test": "new"}}, chain),
  ],
)
def test_content_but_no_names_of_files_change_the_key(tmp_path, options, make):
  config = corpus(tmp_path)
  raw = pathlib.Path(config.prepare.raw_dir)
  plain = key_of(read_config(config))
  set_options(config, options)
  write(raw / "new", map(make, lines_of(config, "train.en")))
  changed = key_of(read_config(config))
  assert changed != plain
  (raw / "new").rename(raw / "moved")
  (option,) = options
  value = json.dumps(options[option]).replace('"new"', '"moved"')
  set_options(config, {option: json.loads(value)})
  assert key_of(read_config(config)) == changed
  write(raw / "moved", ["x", *map(make, lines_of(config, "train.en"))])
  assert key_of(read_config(config)) != changed
