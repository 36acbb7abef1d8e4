"""Further parses, alignments and constituency trees, from files to batches."""

import collections
import dataclasses
import itertools
import shutil

import numpy as np
import pytest
from raw_corpora import corpus, lines_of, raw_of, write_lines
from toy_folders import data_of, opened

from jaxsyn.configs import quickstart
from jaxsyn.data import schema
from jaxsyn.data.loader.batch_sampler import Position
from jaxsyn.data.options import Mixture, Sampling
from jaxsyn.data.sentence import align, conllu, linearise, tree
from jaxsyn.data.sentence.controls import Sampled
from jaxsyn.data.sentence.linearise import CLOSE, opening
from jaxsyn.data.sentence.vocabulary import Subwords, Vocabulary, train
from jaxsyn.data.store import manifests
from jaxsyn.data.store.dataset import Dataset
from jaxsyn.data.store.rows import InvalidExampleError, Rows
from jaxsyn.errors import InputError
from jaxsyn.preprocess import build, penn, verify

LINES, DROPPED = 60, 7  # pairs of the corpus, and index of a pair without text


def block(words, heads, relation):
  """CoNLL-U of a tree; heads from 0, a root is its own."""
  rows = []
  for i, (word, head) in enumerate(zip(words, heads)):
    above, label = (0, "root") if head == i else (head + 1, relation)
    rows.append(f"{i + 1}\t{word}\t_\t_\t_\t_\t{above}\t{label}\t_\t_\n")
  return "".join(rows) + "\n" if rows else ""


def star(index, line):
  """All words depend on the last; every third line was not parsed."""
  words = line.split()
  comment = "# parsed = no\n" if words and index % 3 == 0 else ""
  return comment + block(words, [len(words) - 1] * len(words), "all")


def back(index, line):
  """Each word depends on the next; in every fourth line the words are others."""
  words = line.split()
  if words and index % 4 == 0:  # the first letter is a word
    words[:1] = [words[0][:1], words[0][1:] or "\u200b"]
    text = block(words, [0] * len(words), "x")
    return text.replace("root\t_\t_", "root\t_\tSpaceAfter=No", 1)
  heads = [min(i + 1, len(words) - 1) for i in range(len(words))]
  return block(words, heads, "back")


def crossed(line):
  """Links word i with the last word but i."""
  words = len(line.split())
  return " ".join(f"{i}-{words - 1 - i}" for i in range(words))


def bracketed(line):
  """The first word is a noun phrase, the others are a verb phrase."""
  if not line:
    return "()"
  first, *rest = line.split()
  words = " ".join(f"(X {word})" for word in rest)
  return f"(S (NP (N {first})) (VP {words}))"


def with_features(tmp_path, makers=(star, back), **sizes):
  """A corpus with further parses, alignments and constituency trees in training.

  One line has no text, one has no links, one has no constituency tree and one
  has the constituency tree of another text.
  """
  config = corpus(tmp_path, **sizes)
  config.prepare.workers = 1
  raw, lines = raw_of(config), lines_of(config, "train.en")
  links, brackets = [*map(crossed, lines)], [*map(bracketed, lines)]
  lines[DROPPED] = links[DROPPED] = links[0] = ""
  brackets[3], brackets[6] = "(())", "(S (NP (N cat)) (VP (V purrs)))"
  best = (raw / "train.conllu").read_text().split("\n\n")
  del best[DROPPED]
  (raw / "train.conllu").write_text("\n\n".join(best))
  write_lines(raw / "train.en", lines)
  write_lines(raw / "train.align", links)
  write_lines(raw / "train.mrg", brackets)
  names = tuple(f"train.{make.__name__}.conllu" for make in makers)
  for make, name in zip(makers, names):
    (raw / name).write_text("".join(itertools.starmap(make, enumerate(lines))))
  config.prepare.parse.source_alternatives["train"] = names
  config.prepare.parse.source_brackets["train"] = "train.mrg"
  config.prepare.alignments["train"] = ("train.align",)
  return config


@pytest.fixture(scope="module")
def made(tmp_path_factory):
  config = with_features(tmp_path_factory.mktemp("features"))
  return config, build.run(config)


def alternatives(one):
  """Heads and relations of each parse beside the best."""
  words = max(1, len(one["source_head"]))
  heads, relations = (
    one[f"source_other_{item}"].reshape(-1, words).tolist()
    for item in ("head", "relation")
  )
  return [*zip(heads, relations)]


def test_features_stay_with_their_lines(made):
  """Also after a pair that is dropped."""
  config, folder = made
  manifest = manifests.read(folder)
  ids = schema.relation_ids(manifest["relations"]["source"])
  assert {"all", "back", "dep", "root"} <= ids.keys()
  assert manifest["brackets"] == {"source": ["NP", "S", "VP"]}
  vocabulary = Vocabulary(folder / "vocabulary.model")
  names = linearise.symbols(manifest["brackets"]["source"])
  lines, counts = lines_of(config, "train.en"), collections.Counter()
  train_split = [*Dataset(folder).split("train")]
  assert len(train_split) == LINES - 1
  for one in train_split:
    index = int(one["line"]) - 1
    assert index != DROPPED
    words = len(lines[index].split())
    due = []
    if index % 3:
      root = words - 1
      due.append(([root] * words, [ids["all"]] * root + [ids["root"]]))
    if index % 4:
      heads = [min(i + 1, words - 1) for i in range(words)]
      due.append((heads, [ids["back"]] * (words - 1) + [ids["root"]]))
    assert alternatives(one) == due
    assert one["source_head"].tolist() == [max(0, i - 1) for i in range(words)]
    counts.update(used=len(due))
    counts["no tree"] += index % 3 == 0
    counts["other words"] += index % 4 == 0
    links = one["links"].reshape(-1, 2).tolist()
    text = " ".join(f"{i}-{j}" for i, j in links)
    assert text == (crossed(lines[index]) if index else "")
    assert {*one["source_unit"].tolist()} == {-1, *range(words)}
    signs = one["source_brackets"]
    if index in (3, 6):
      assert signs.tolist() == []
      continue
    # Assembled again from subwords, it is the tree that was given.
    shown = [names[k] for k in linearise.skeleton(signs, heads=False)]
    assert " ".join(shown) == "(S (NP ) (VP ) )"
    runs = np.split(signs, np.flatnonzero(signs < 0))
    runs = [run[run >= 0] for run in runs if (run >= 0).any()]
    found = [vocabulary.decode(one["source_id"][run]) for run in runs]
    first, _, rest = lines[index].partition(" ")
    assert found == [first, rest]
  assert manifest["splits"]["train"]["optional"] == {
    "alternatives.source": dict(counts),
    "brackets": {"used": LINES - 3, "other words": 1, "no tree": 1},
    "alignments": {"used": LINES - 2, "no links": 1},
  }
  report = (folder / "report.txt").read_text()
  assert f"alternatives.source used {counts['used']}" in report
  assert "brackets   used 57, other words 1, no tree 1" in report
  assert manifest["splits"]["test"]["optional"] == {}
  for one in Dataset(folder).split("test"):  # a split that was given none
    for name in ("source_other_head", "source_brackets", "links"):
      assert one[name].size == 0
  verify.run(folder)


READS = ("source_relation", "source_parent_mid", "source_tree_distance")


def loader_of(folder, **options):
  """Returns a loader of training batches with sampled parses."""
  data = dataclasses.replace(data_of(), tree=Sampled(0.0), **options)
  split = Dataset(folder).split("train")
  return opened(split, READS, data=data, tokens=512, shapes=2, row_multiple=2)


def rows_of(loader, epoch):
  batches = loader.batches(Position(epoch))
  for planned, train_batch in zip(loader.batch_sampler.epoch(epoch), batches):
    for row, index in enumerate(planned.ids.tolist()):
      yield index, {k: v[row] for k, v in train_batch.batch.items()}


def test_each_parse_is_sampled_equally_often_as_a_whole(made):
  """Its heads, its relations, and the features that follow from them."""
  examples, loader = [*Dataset(made[1]).split("train")], loader_of(made[1])
  (message,) = loader.messages
  assert "one of all source parses; each" in message
  counts = collections.Counter()
  for epoch in range(20):
    for index, row in rows_of(loader, epoch):
      assert not any("other" in name for name in row)
      one = examples[index]
      words, word_S = len(one["source_head"]), one["source_word"]
      best = (one["source_head"].tolist(), one["source_relation"].tolist())
      parses = [best, *alternatives(one)]
      names = ("source_head_BW", "source_relation_BW")
      sampled = tuple(row[name][:words].tolist() for name in names)
      which = parses.index(sampled)  # one of them, whole
      if len({str(heads) for heads, _ in parses}) == len(parses):
        counts[len(parses), which] += 1
      head_W = np.array(sampled[0])
      middle_S = row["source_parent_mid_BS"][: len(word_S)]
      assert (middle_S == tree.parent_mid(word_S, head_W)).all()
      distance_WW = row["source_tree_distance_BWW"][:words, :words]
      assert (distance_WW == tree.tree_distance(head_W)).all()
  for size in (2, 3):
    times = [counts[size, which] for which in range(size)]
    total = sum(times)
    deviation = (total * (size - 1)) ** 0.5 / size
    assert total > 150
    assert max(abs(n - total / size) for n in times) < 4 * deviation
  assert counts[1, 0] > 0  # sentences with the best alone


def test_a_mixture_needs_further_parses_in_all_folders_or_none(made, tmp_path):
  _, folder = made
  plain = corpus(tmp_path / "plain")
  plain.prepare.vocabulary.like = str(folder)
  mixture = Mixture(folders=(str(build.run(plain)),))
  with pytest.raises(InputError, match=r"mixture, .*source_alternatives"):
    loader_of(folder, mixture=mixture)
  # Relations of the others have the ids of the first.
  more = with_features(tmp_path / "more", (back,), train=20)
  more.prepare.vocabulary.like = str(folder)
  loader = loader_of(folder, mixture=Mixture(folders=(str(build.run(more)),)))
  ids = schema.relation_ids(manifests.read(folder)["relations"]["source"])
  found = set()
  for epoch in range(3):
    for index, row in rows_of(loader, epoch):
      if index >= LINES - 1:
        found.update(row["source_relation_BW"].tolist())
  assert found == {0, ids["dep"], ids["root"], ids["back"]}


def test_gold_trees_as_further_parses(prepared, tmp_path):
  """The best is parsed, of some lines of the raw file, on both sides."""
  config = quickstart.get_config("pascal")
  config.data.directory = str(tmp_path / "out")
  raw = prepared.parent / "raw"
  config.prepare.update(raw_dir=str(raw), workers=1)
  config.prepare.splits["train"] = ("train.en", "train.qaa", "401-460")
  config.prepare.vocabulary.size = 200
  config.prepare.parse.source_alternatives["train"] = ("train.en.conllu",)
  config.prepare.parse.target_alternatives["train"] = ("train.qaa.conllu",) * 2
  split = Dataset(build.run(config)).split("train")
  for side, language, times in (("source", "en", 1), ("target", "qaa", 2)):
    gold = [*conllu.read(raw / f"train.{language}.conllu")]
    labels = ["", *split.dataset.manifest["relations"][side]]
    differ = 0
    for one in split:
      tree = gold[int(one["line"]) - 1]
      assert one[f"{side}_other_head"].tolist() == [*tree.head_W] * times
      found = [labels[i] for i in one[f"{side}_other_relation"]]
      assert found == [*tree.relation_W] * times
      differ += one[f"{side}_head"].tolist() != [*tree.head_W]
    # The best tree of the target is gold too; UDPipe errs.
    assert (differ > 0) == (side == "source")


@pytest.mark.parametrize("sides", [(), ("source", "target")])
def test_batches_have_links_also_with_sampled_subwords(made, sides):
  split = Dataset(made[1]).split("train")
  data = dataclasses.replace(data_of(), sampling=Sampling(sides, alpha=0.5))
  loader = opened(split, {"links"}, data=data, tokens=512, shapes=2)
  resampled = 0
  for index, row in rows_of(loader, 0):
    one = split[index]
    size = (row["target_id_BT"] != 0).sum()
    resampled += size != len(one["target_id"])
    source, target = row["source_unit_BS"], row["target_unit_BT"]
    is_linked = source[None, :] == max(source) - target[:, None]
    is_linked &= (source >= 0) & (target >= 0)[:, None] & (one["line"] > 1)
    np.testing.assert_array_equal(row["links_BTS"], is_linked)
  assert (resampled > 20) == bool(sides)


def test_maps_links_of_tokenized_words_to_words_of_the_text(tmp_path):
  config = corpus(tmp_path)
  config.prepare.parse.sides = ()
  lines = [f"{line}, or so." for line in lines_of(config, "train.en")]
  counts = [len(line.split()) - 2 for line in lines]
  files = {
    "train.en": lines,
    "train.de": lines,
    "train.en.tok": [line.replace(", or so.", " , or so .") for line in lines],
    "train.de.tok": [line.replace("so.", "so .") for line in lines],
    # The comma, "so", and the full stop; word 2 of the raw text ends in it.
    "train.align": [
      f"{n}-{n - 1} {n + 2}-{n + 1} {n + 3}-{n + 2}" for n in counts
    ],
  }
  for name, content in files.items():
    write_lines(raw_of(config) / name, content)
  config.prepare.splits["train"] = ("train.en", "train.de")
  names = ("train.align", "train.en.tok", "train.de.tok")
  config.prepare.alignments["train"] = names
  for one, n in zip(Dataset(build.run(config)).split("train"), counts):
    assert one["links"].reshape(-1, 2).tolist() == [[n - 1] * 2, [n + 1] * 2]


NP, S, VP = map(opening, (1, 2, 3))


@pytest.mark.parametrize(
  ("name", "change", "message"),
  [
    ("source_other_head", lambda x: x[1:], "has a part of a parse"),
    ("source_other_head", lambda x: [*x[:-1], 99], "must be from 0 to"),
    ("source_other_head", lambda x: [1, 0, *x[2:]], "form a cycle"),
    # In the second parse, each word depends on the next, and so on the last.
    ("source_other_head", lambda x: [*x[:-1], len(x) // 2 - 2], "form a cycle"),
    ("source_other_relation", lambda x: x[1:], "has another number of values"),
    ("source_other_relation", lambda x: x + 5, "must be from 0 to 4"),
    ("links", lambda x: x[1:], "has half a link"),
    ("links", lambda x: -1 - x, "must be from 0 to"),
    ("source_unit", lambda x: x + 99, "must be from -1 to "),
    ("target_unit", lambda x: x - 1, "must be from -1 to "),
    ("source_brackets", lambda _: [S, NP, 0, CLOSE, CLOSE, S], "do not match"),
    ("source_brackets", lambda _: [S, NP, 0, CLOSE], "do not match"),
    ("source_brackets", lambda _: [VP - 1, 0, CLOSE], "must be from -5 to"),
    ("source_brackets", lambda _: [S, 99, CLOSE], "must be from -5 to"),
  ],
)
def test_verification_rejects_invalid_values(made, name, change, message):
  split = Dataset(made[1]).split("train")
  bad = {**split[1]}
  bad[name] = np.array(change(bad[name]), bad[name].dtype)
  rows = Rows.of([split[0], bad], bad)
  with pytest.raises(InvalidExampleError, match=f"{name}.* {message}") as error:
    verify.check_optional(rows, split.dataset.manifest)
  assert error.value.index == 1


def test_verification_checks_optional_features(made, tmp_path, capsys):
  folder = shutil.copytree(made[1], tmp_path / "copy")
  manifest = manifests.read(folder)
  manifest["brackets"]["source"].remove("VP")
  manifests.write(folder, manifest)
  with pytest.raises(InputError, match="is corrupt"):
    verify.run(folder)
  message = "split train, record 0: source_brackets must be from -4 to"
  assert message in capsys.readouterr().out


def test_constituency_trees_work_without_dependency_trees(tmp_path):
  """The auxiliary task needs the one kind only; files may be compressed."""
  config = corpus(tmp_path)
  config.prepare.parse.sides = ()
  path = tmp_path / "train.mrg.gz"
  write_lines(path, map(bracketed, lines_of(config, "train.en")))
  config.prepare.parse.source_brackets["train"] = str(path)
  folder = build.run(config)
  data = data_of(task="source", brackets="constituency")
  both = opened(Dataset(folder).split("train"), (), data=data)
  first, _ = both.auxiliary
  assert len(both) - first == 60


DUCK = "(ROOT (S (NP (DT A) (NN duck)) (VP (VBZ waits)) (. .)))"


@pytest.mark.parametrize(
  ("line", "words", "signs"),
  [
    (DUCK, "A duck waits .", "ROOT S NP 0 1 ) VP 2 ) 3 ) )"),
    # Traces and empty constituents are removed.
    (
      "((S (NP-SBJ (-NONE- *)) (VP (VB Go) (NP (-NONE- *T*-1)))))",
      "Go",
      "<> S VP 0 ) ) )",
    ),
    ("(S (NP a duck) waits)", "a duck waits", "S NP 0 1 ) 2 )"),
  ],
)
def test_reads_penn_brackets(line, words, signs):
  found = penn.parse(line, "x:1")
  assert found.words == tuple(words.split())
  names = {"": "<>", CLOSE: ")"}
  assert " ".join(str(names.get(s, s)) for s in found.signs) == signs


@pytest.mark.parametrize(
  ("line", "message"),
  [
    ("(S (NP (DT A)", r"x:7: 2 brackets are not closed"),
    ("S (NP))", r"x:7: 'S' is outside"),
    (")", r"x:7: a bracket is closed that was not opened"),
    ("(S (X a) b))", r"x:7: '\)' comes after the end"),
    (f"{DUCK} {DUCK}", r"x:7: '\(' comes after the end .* one tree per line"),
  ],
)
def test_rejects_malformed_trees(line, message):
  for empty in ("()", "(())", "( )", "(NN duck)"):
    assert penn.parse(empty, "x:1") is None
  with pytest.raises(InputError, match=message):
    penn.parse(line, "x:7")


@pytest.mark.parametrize(
  ("words", "text"),
  [
    ("-LRB- a -RRB- -LSB- -RSB- -LCB- -RCB-", "(a) [] {}"),
    ("`` a '' b", '"a" b'),
    ("`` a ''", "“a”"),
    ("`` a ''", "``a''"),
    ("` a '", "‘a’"),
    (r"1\/2 \*", "1/2 *"),
    ("-LRB- --", "-LRB- –"),
    ("do n't", "don't"),
    ("a b", "\u200ba \u00a0b"),
  ],
)
def test_penn_spellings_are_found_in_the_text(words, text):
  leaves = " ".join(f"(X {word})" for word in words.split())
  tree = penn.parse(f"(S {leaves})", "x:1")
  start_W, end_W = align.spans(map(penn.spellings, tree.words), text)
  assert len(start_W) == len(words.split())
  assert start_W[1:] >= end_W[:-1]
  covered = "".join(text[a:b] for a, b in zip(start_W, end_W, strict=True))
  assert covered == text.replace(" ", "").strip("\u200b").replace("\u00a0", "")


def test_subwords_are_inside_their_constituents(tmp_path):
  """Characters as subwords: ▁ A ▁ d u c k ▁ w a i t s ."""
  options = Subwords(size=99, type="char")
  vocabulary = train(["A duck waits."], tmp_path / "v", options)
  ids = {"NP": 1, "ROOT": 2, "S": 3, "VP": 4}
  found = penn.bracketing(
    penn.parse(DUCK, "x:1"), "A duck waits.", vocabulary, ids=ids
  )
  NP, ROOT, S, VP = map(opening, ids.values())
  assert found.dtype == np.int32
  subject, verb = range(7), range(7, 13)
  expected = [ROOT, S, NP, *subject, CLOSE, VP, *verb, CLOSE, 13, CLOSE, CLOSE]
  assert found.tolist() == expected
