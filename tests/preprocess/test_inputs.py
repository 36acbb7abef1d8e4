"""Raw files, options and their errors, which are found before any work is done."""

import gzip
import hashlib
import json

import pytest
import stage_runs
import web_server
from raw_corpora import (
  bracketed,
  chain,
  check_rejected,
  corpus,
  lines_of,
  raw_of,
  set_options,
  write_lines,
)

from jaxsyn.config import read_config
from jaxsyn.configs import base
from jaxsyn.data.options import DataConfig
from jaxsyn.data.sentence import conllu, text
from jaxsyn.data.sentence.parsers import udpipe
from jaxsyn.data.store.dataset import Dataset
from jaxsyn.errors import InputError
from jaxsyn.preprocess import build, raw
from jaxsyn.preprocess.inputs import read_inputs
from jaxsyn.preprocess.job import PrepareJob, SplitInput
from jaxsyn.preprocess.raw import Source
from jaxsyn.preprocess.readers import READERS, reader_of


def joined(line):
  """A tree whose only word is the line without blanks."""
  return chain(line.replace(" ", ""))


def replaced(change, line=5, make=str):
  """Returns a function that makes a file with one other line.

  Args:
    change: the line, or lines, that replace it.
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


def end_of_line(link):
  """Returns a function that makes links whose word is one after the last."""
  return lambda source: [link.format(len(line.split())) for line in source]


SPLIT, PARSE = "prepare.splits.train", "prepare.parse"
BRACKETS = {f"{PARSE}.source_brackets": {"train": "new"}}
LINKS = {"prepare.alignments": {"train": ("new",)}}
MORE = {f"{PARSE}.source_alternatives": {"train": ("new",)}}
CONLLU, PARSER = f"{PARSE}.source_conllu", f"{PARSE}.source.udpipe.model"
PLAIN = {SPLIT: ("new", "train.de.gz"), f"{PARSE}.sides": ()}
JSON = {SPLIT: ("new.jsonl",)}
OTHER_WORDS = {"prepare.alignments": {"train": ("new", "train.en", "train.en")}}
TABLE = {SPLIT: ("new.tsv", "1-60")}
SIDES = {SPLIT: ("new", "new"), f"{PARSE}.sides": ()}

# Options, a function that makes the file "new" of the source lines, the message.
CASES = [
  # Names of splits and of the dataset.
  ({"data.train": "trian"}, None, r"data\.train: no split 'trian'.*'train'"),
  ({"data.validation": "tset"}, None, r"data\.validation: .*'tset'.*mean 'test'"),
  ({"data.test": ("test", "x")}, None, r"data\.test: no split 'x' .* to \(\)"),
  ({"prepare.splits": {"Train": ("a", "b")}}, None, r"must be lowercase.*'Train'"),
  ({"prepare.splits": {}}, None, r"prepare\.splits is empty: name the two"),
  ({"data.name": "raw"}, None, r"data\.name must not be 'raw'"),
  ({"prepare.optional": ("train",)}, None, r"optional: train is not a test sp"),
  ({"prepare.optional": ("test2",)}, None, r"optional: test2 is not a test s"),
  # Entries of splits.
  ({SPLIT: ("no.en", "train.de.gz")}, None, r"file no\.en does not exist in "),
  ({SPLIT: ("p-*.en", "train.de.gz")}, None, r"file matches p-\*\.en in "),
  ({"prepare.raw_dir": "nowhere"}, None, r"train\.en does not exist in nowhere"),
  ({SPLIT: ("train.en",)}, None, r"splits\.train must be two files .*'train"),
  ({"prepare.raw_dir": ""}, None, r"n\.en does not exist \(--raw_dir is not set\)"),
  ({SPLIT: ("b.en", "c")}, None, r"b\.en does not exist in .*has no URL"),
  ({"prepare.downloads": (("train.en", "http://h", "0" * 64),)}, None,
   r"train\.en is not the file.*not 0000"),
  *(
    ({SPLIT: (name, "train.de.gz")}, None, rf"{name}: archives are not supported\. Un")
    for name in ("a.tar.gz", "a.TGZ", "a.en.bz2")
  ),
  *(
    ({"prepare.downloads": (("b", "http://h/b", "0" * 64, "500"), entry)}, None,
     r"prepare\.downloads must hold")
    for entry in (
      (), ("a", "h"), ("a", "h", "0" * 63), ("a", "h", "g" * 64),
      ("a", "h", "", "5 GB"), ("a", "h", "", "5", "6"), ("../a", "h", ""),
      ("..", "h", ""), ("", "h", ""), ("b", "h", ""),
    )
  ),
  ({"prepare.fields": ("a",)}, None, r"fields must be two names.*'a'"),
  # Text.
  (PLAIN, replaced([], 1), r"new has 59 lines, but \S*train\.de\.gz has 60: .* 60 of"),
  (PLAIN, lambda lines: ["\u200b "] * 60, r"splits\.train: no line taken of"),
  (SIDES, lambda lines: [], r"splits\.train: \S*/new and .* are empty"),
  (TABLE, replaced("x", 5, lambda x: f"{x}\t{x}"), r"new\.tsv:5: 1 columns, but a"),
  (JSON, pairs("{"), r"new\.jsonl:2: the line is not JSON"),
  (JSON, pairs("[]"), r"new\.jsonl:2: there is no text in the field 'en'"),
  (JSON, pairs('{"en": "a", "x": "b"}'), r"2: there is no text in the field 'de"),
  (JSON, pairs('{"en": 1, "de": "b"}'), r"no text in the field 'en'; .*fields"),
  (JSON, pairs('{"en": "\\ud800", "de": "b"}'), r"2: the field 'en' has half of"),
  # Parsers, given trees and further parses.
  ({CONLLU: {}, PARSER: "no.udpipe"}, None, r"'no\.udpipe' is neither a file"),
  ({CONLLU: {}, f"{PARSE}.source.parser": "spacy"}, None,
   r"parse\.source\.spacy\.model is empty: name a spaCy pipeli"),
  ({CONLLU: {}, f"{PARSE}.source.parser": "spacy",
    f"{PARSE}.source.spacy.model": "en_none"}, None, "spacy download en_none"),
  ({CONLLU: {}, f"{PARSE}.source.parser": "stanza"}, None,
   r"Stanza, which is not installed|Stanza's models of 'en'"),
  ({f"{CONLLU}.test": "no.conllu"}, None, r"source_conllu\.test: no\.conllu does not"),
  ({CONLLU: {"train": "new"}}, None, r"file for each split \(test, train\)"),
  (MORE, replaced(chain("sees"), 5, chain), r"new:\d+: .*parse the same text"),
  (MORE, replaced([], 60, chain), "the CoNLL-U has no tree for"),
  (MORE, replaced([], 99, joined), r"/new: no tree has the words of its line"),
  (MORE, None, r"source_alternatives\.train: new does not exist"),
  ({f"{PARSE}.source_alternatives": {"test": ("new",)}}, None,
   "must name the files of the split train"),
  ({f"{PARSE}.target_alternatives": {"train": ("new",)}}, None,
   "target_alternatives are parses of a side that"),
  # Constituency trees.
  (BRACKETS, replaced([], 60, bracketed), r"new has 59 lines, but its text has"),
  (BRACKETS, replaced("", 5, bracketed), r"new:5: the line is empty"),
  (BRACKETS, replaced("(S (A b)) (C", 2, bracketed), r"new:2: .* one tree per"),
  (BRACKETS, lambda lines: ["()"] * 60, "no kept line has a tree with const"),
  (BRACKETS, lambda lines: [bracketed("no such words")] * 60,
   r"/new: no tree has the words of its line of .*train\.en"),
  (BRACKETS, None, r"source_brackets\.train: new does not exist"),
  ({f"{PARSE}.source_brackets": {"test": "new"}}, None,
   r"source_brackets must name the files of the split train"),
  ({f"{PARSE}.source_brackets": {"train": "new", "dev": "new"}}, None,
   r"may name those of others of test, train, has \['dev'"),
  # Alignments.
  (LINKS, replaced("0-0 1:1", make=lambda _: ""), r"new:5: '1:1' is not a link"),
  (LINKS, end_of_line("{}-0"), r"new:1: .* has word \d+ of the source, whose line 1"),
  (LINKS, end_of_line("0-{0}"), r"new:1: .* word (\d+) of the target, .* has \1 space"),
  (LINKS, lambda lines: ["0-0"] * 2, r"new has 2 lines, but .* has 60\. Line N"),
  (LINKS, None, r"alignments\.train: new does not exist"),
  ({"prepare.alignments": {"train": ("a", "b")}}, None,
   r"alignments\.train must be \(file,\), or \(file, s"),
  ({"prepare.alignments": {"test": ("new",)}}, None,
   "alignments must name the files of the split"),
  (OTHER_WORDS, lambda lines: [""] * 60, r"train\.en:1: the word '\w+' is not in"),
  # Cleaning.
  ({"prepare.clean.max_characters": 1}, None,
   r"no training pair is left of 60 \(dropped: max_characters 60\)"),
  *(
    ({SPLIT: ("train.en", "train.de.gz", lines)}, None,
     rf"splits\.train: the {what}, got '{lines}'")
    for lines, what in (
      ("1-61", "files have 60 lines"), ("61-", "files have 60 lines"),
      *((x, "lines must .*") for x in ("0-3", "5-4", "3", "a-b", "-2")),
    )
  ),
]  # fmt: skip


def write(path, lines):
  """Writes lines, or trees, which have an empty line at their end."""
  write_lines(path, (line.removesuffix("\n") for line in lines))


@pytest.mark.parametrize(("options", "content", "message"), CASES)
def test_reports_invalid_input(tmp_path, options, content, message):
  config = corpus(tmp_path)
  set_options(config, options)
  if content is not None:
    names = [part for part in options.get(SPLIT, ()) if part.startswith("new")]
    path = raw_of(config) / (names or ["new"])[0]
    write(path, content(lines_of(config, "train.en")))
  check_rejected(config, message, nothing_made=True)


def test_names_files_of_unequal_length(tmp_path):
  config = corpus(tmp_path)
  for name, count in (("a.en", 3), ("b.en", 5), ("a.de", 3), ("b.de", 4)):
    write_lines(raw_of(config) / name, "x" * count)
  set_options(config, {f"{PARSE}.sides": (), SPLIT: ("a.en,b.en", "a.de,b.de")})
  check_rejected(config, r"b\.en has 5 lines, but \S*b\.de has 4: .* line 5 of")


def test_only_nul_is_rejected_in_test_splits(tmp_path):
  config = corpus(tmp_path)
  path, lines = raw_of(config) / "test.de.gz", lines_of(config, "test.en")
  lines[2] += " \x85\x1f"
  write_lines(path, lines)
  assert Dataset(build.run(config)).text("test", "target") == lines
  write_lines(path, ["\0"] * 7)
  check_rejected(config, r"/test\.de\.gz:1: there is a NUL")


def key_of(config):
  config = read_config(config)
  sections = DataConfig(config.data, config.prepare)
  return read_inputs(sections).key


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
  raw_dir, plain = raw_of(config), key_of(config)
  content = [*map(make, lines_of(config, "train.en"))]
  set_options(config, options)
  write(raw_dir / "new", content)
  changed = key_of(config)
  assert changed != plain
  (raw_dir / "new").rename(raw_dir / "moved")
  moved = json.loads(json.dumps(options).replace('"new"', '"moved"'))
  set_options(config, moved)
  assert key_of(config) == changed
  write(raw_dir / "moved", ["x", *content])
  assert key_of(config) != changed


@pytest.mark.parametrize(
  ("option", "value", "changes"),
  [
    ("prepare.workers", 7, False),
    ("prepare.subset.seed", 9, False),  # without a subset
    ("prepare.subset.pairs", 10, True),
    ("prepare.splits.test", ("test.en", "test.de.gz", "1-7"), True),
    ("prepare.splits.test", ("copy.en", "test.de.gz"), True),  # in the manifest
    ("prepare.shard_mib", 9.0, True),
    ("data.name", "other", True),
    ("data.target_language", "fr", True),
  ],
)
def test_options_that_affect_files_change_the_key(
  tmp_path, option, value, changes
):
  config = corpus(tmp_path)
  write(tmp_path / "raw" / "copy.en", lines_of(config, "test.en"))
  plain = key_of(config)
  set_options(config, {option: value})
  assert (key_of(config) != plain) == changes


def test_the_longest_line_of_a_parser_changes_the_key(
  tmp_path, prepared, monkeypatch
):
  config = corpus(tmp_path)
  model = str(prepared / "parser.source.udpipe")
  set_options(config, {CONLLU: {}, PARSER: model})
  plain = key_of(config)
  monkeypatch.setattr(udpipe, "LONGEST_LINE", 99)
  assert key_of(config) != plain


def chunks_of(folder, lines, size, streams):
  """Reads the streams of one split; returns its chunks of `size` lines."""
  config = read_config(base.get_config())
  sources = {name: tuple(map(Source, paths)) for name, paths in streams.items()}
  sections = DataConfig(config.data, config.prepare)
  splits = (SplitInput("train", lines, sources, size),)
  job = PrepareJob(
    sections, folder / "out", splits, parser_specs={}, sums={}, key=""
  )
  stage_runs.run(job, ["read"])
  return job.all_chunks


TEXTS = {
  "plain": b"one\ntwo\n\nfour five\n" * 9,
  "no end": b"one\ntwo\n\nfour",
  "windows": b"\xef\xbb\xbfone\r\n\r\nthree\r\n" * 5,
  "empty": b"",
  "long": b"a" * 90 + b"\n" + b"b\n" * 30 + b"c" * 200,
}


@pytest.mark.parametrize("name", TEXTS)
@pytest.mark.parametrize(("size", "first"), [(1, 2), (7, 0), (7, 2), (99, 0)])
def test_chunks_have_the_lines_of_all_files(tmp_path, name, size, first):
  paths = [tmp_path / file for file in "abc"]
  lines, places = [], []
  for path in paths:
    path.write_bytes(TEXTS[name])
    found = text.read_lines(path)
    lines += found
    places += [f"{path}:{i}" for i in range(1, len(found) + 1)]
  selection = f"{first + 1}-" if first else ""
  streams = {"source": paths, "target": paths}
  if first and first >= len(lines):
    with pytest.raises(InputError, match="files have"):
      chunks_of(tmp_path, selection, size, streams)
    return
  chunks = chunks_of(tmp_path, selection, size, streams)
  rows = [(chunk, row) for chunk in chunks for row in range(len(chunk.lines))]
  assert [line for c in chunks for line in c.texts("source")] == lines[first:]
  assert [c.place("source", row) for c, row in rows] == places[first:]
  assert [c.lines[row] for c, row in rows] == [*range(first, len(lines))]
  assert all(len(chunk.lines) == size for chunk in chunks[:-1])


def treebank():
  """Trees with comments, blank lines, a multi-word token, carriage returns."""
  lines = ["a b", "c", "", "der Hund", "e f g h", "i"] * 4
  trees = [chain(line) for line in lines]
  trees[0] = "# newdoc\n# license: none\n\n\n" + trees[0]
  trees[3] = (
    "# text = der Hund\n1-2\tder\t_\t_\t_\t_\t_\t_\t_\t_\n"
    + trees[3].split("\n")[0]
    + "\n2\tx\t_\t_\t_\t_\t1\tdep\t_\t_\n3\tHund\t_\t_\t_\t_\t1\tdep\t_\t_\n\n"
  )
  trees[4] = trees[4].replace("\n", "\r\n") + "\r\n"
  return lines, trees


@pytest.mark.parametrize(
  ("size", "selection", "rows"),
  [
    (1, "", slice(None)),
    (100, "", slice(None)),
    (5, "4-9", slice(3, 9)),
    (5, "13-", slice(12, None)),
  ],
)
def test_trees_are_cut_like_the_text(tmp_path, size, selection, rows):
  lines, trees = treebank()
  source, *parts = (
    tmp_path / name for name in ("text", "a.conllu", "b.conllu")
  )
  write(source, lines)
  parts[0].write_text("\ufeff" + "".join(trees[:8]), newline="")
  parts[1].write_text("".join(trees[8:]), newline="")
  streams = {"source": [source], "target": [source], "trees.source": parts}
  found = []
  for chunk in chunks_of(tmp_path, selection, size, streams):
    found += chunk.parses("trees.source", chunk.texts("source"))
  blocks = [block for path in parts for block in conllu.read(path)]
  assert found == list(conllu.match(blocks, lines, "text"))[rows]


@pytest.mark.parametrize(
  ("trees", "lines", "message"),
  [
    (["ab cd"], "", r"a\.conllu:1: the word 'cd' is not in the .*Line 1 of"),
    (["ab", "cd", "x y"], "", r"a\.conllu:5: .*'x y', comes after the last li"),
    (["ab", "cd", "x y"], "2-2", r"a\.conllu:5: .* comes after the last line"),
    (["ab"], "", r"text:2: the CoNLL-U has no tree for"),
  ],
)
def test_reports_trees_of_other_lines(tmp_path, trees, lines, message):
  path, source = tmp_path / "a.conllu", tmp_path / "text"
  source.write_text("ab\ncd\n")
  path.write_text("".join(map(chain, trees)))
  streams = {"source": [source], "target": [source], "trees.source": [path]}
  with pytest.raises(InputError, match=message):
    chunks_of(tmp_path, lines, 1, streams)


TREE = """# sent_id = 1
# text = Vom Haus\u00a0 .
1-2\tVom\t_\t_\t_\t_\t_\t_\t_\t_
1\tvon\t_\t_\t_\t_\t3\tcase\t_\t_
2\tdem\t_\t_\t_\t_\t3\tdet\t_\t_
3\tHaus\t_\t_\t_\t_\t0\troot\t_\t_
3.1\tnichts\t_\t_\t_\t_\t_\t_\t_\t_
4\t.\t_\t_\t_\t_\t3\tpunct\t_\t_

"""


def test_treebank_lines_are_the_text_comments(tmp_path):
  path = tmp_path / "a.conllu.gz"
  path.write_bytes(gzip.compress((TREE * 2).encode()))
  line = "Vom Haus\u00a0 ."  # to the letter, not put together of the words
  assert reader_of(path.name) == reader_of("a.conllu") == "conllu"
  assert [*READERS["conllu"].texts(Source(path))] == [line, line]


@pytest.mark.parametrize(
  ("old", "new", "message"),
  [
    # The second block starts on line 10.
    ("# text = Vom", "# text_en = Of", r"a\.conllu:10: .* no `# text = "),
    ("# text = Vom Haus\u00a0 .", "# text =  ", r"a\.conllu:10: .* no `# text"),
    ("Haus\u00a0", "Haus\u2028", r"a\.conllu:10: .* line break in it: 'Vom"),
    ("Haus\u00a0", "Haus\r", r"a\.conllu:10: .* line break in it: 'Vom"),
    ("\t0\troot", "\t9\troot", r"a\.conllu:15: the head of word 3 is 9"),
  ],
)
def test_reports_malformed_treebanks(tmp_path, old, new, message):
  path = tmp_path / "a.conllu"
  path.write_bytes((TREE + TREE.replace(old, new)).encode())
  with pytest.raises(InputError, match=message):
    [*READERS["conllu"].texts(Source(path))]


def test_downloads_a_file_once_or_reports_why_not(tmp_path):
  def raw_files(folder, *download):
    downloads = raw.addresses([download])
    assert downloads[download[0]].max_bytes == 50_000
    return raw.RawFiles(str(tmp_path), folder, downloads)

  body, fetched = b"some text\n" * 5000, tmp_path / "fetched"
  sha256 = hashlib.sha256(body).hexdigest().upper()
  with web_server.serve() as server:
    server.answers["a.en"] = body
    found = raw_files(fetched, "a.en", server.url("a.en"), sha256, "50000")
    for _ in range(2):
      path = found.find("a.en")
      assert path == found.named("parse.source_brackets", "a.en")
      assert path == fetched / "a.en" and path.read_bytes() == body
    assert server.asked == ["/a.en"]
    gone = raw_files(tmp_path, "b.en", server.url("gone"), "0" * 64, "50000")
    message = (
      r"b\.en cannot be downloaded from .*gone \(.*404.*manually to .*b\.en"
    )
    with pytest.raises(InputError, match=message):
      gone.find("b.en")
  with pytest.raises(InputError, match=r"cannot be downloaded .*refused"):
    gone.find("b.en")
  assert [path.name for path in tmp_path.iterdir()] == ["fetched"]
