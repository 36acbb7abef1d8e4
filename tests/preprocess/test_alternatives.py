"""More parses than the best: with their lines through all of preparing."""

import collections
import dataclasses
import itertools
import pathlib

import numpy as np
import pytest
from raw_corpora import corpus, lines_of
from toy_folders import data_of, opened

from jaxsyn.configs import quickstart
from jaxsyn.data import schema
from jaxsyn.data.loader.batch_sampler import Position
from jaxsyn.data.loader.loader import HostShard
from jaxsyn.data.options import Mixture
from jaxsyn.data.sentence import tree
from jaxsyn.data.sentence.controls import Sampled
from jaxsyn.data.store import example_check, manifests
from jaxsyn.data.store.dataset import Dataset
from jaxsyn.data.store.rows import InvalidExampleError, Rows
from jaxsyn.errors import InputError
from jaxsyn.preprocess import build, verify

READS = ("source_relation", "source_parent_mid", "source_tree_distance")


def block(words, heads, relation, comment=""):
  """CoNLL-U of a tree; heads from 0, a root is its own."""
  rows = [comment] if comment else []
  for i, (word, head) in enumerate(zip(words, heads)):
    above, label = (0, "root") if head == i else (head + 1, relation)
    rows.append(f"{i + 1}\t{word}\t_\t_\t_\t_\t{above}\t{label}\t_\t_")
  return "".join(f"{row}\n" for row in rows) + "\n"


def star(index, line):
  """All below the last word; every third line was not parsed."""
  words = line.split()
  message = "# parsed = no" if index % 3 == 0 else ""
  return block(words, [len(words) - 1] * len(words), "all", message)


def back(index, line):
  """Each below the next; in every fourth line a word is two."""
  words = line.split()
  if index % 4 == 0:
    first = f"1\t{words[0][:1]}\t_\t_\t_\t_\t0\troot\t_\tSpaceAfter=No\n"
    words = [words[0][1:] or "\u200b", *words[1:]]
    rows = block(words, [0] * len(words), "x").splitlines()[:-1]
    made = [row.split("\t") for row in rows]
    rest = (
      "\t".join([str(i + 2), *row[1:6], "1", "x", *row[8:]])
      for i, row in enumerate(made)
    )
    return first + "".join(f"{row}\n" for row in rest) + "\n"
  expected = range(len(words))
  return block(words, [min(i + 1, len(words) - 1) for i in expected], "back")


def with_parses(tmp_path, makers=(star, back), **sizes):
  """A corpus with more parses of its training split."""
  config = corpus(tmp_path, **sizes)
  config.prepare.workers = 1
  raw, names = pathlib.Path(config.prepare.raw_dir), []
  for make in makers:
    names.append(f"train.{make.__name__}.conllu")
    blocks = itertools.starmap(make, enumerate(lines_of(config, "train.en")))
    (raw / names[-1]).write_text("".join(blocks))
  config.prepare.parse.source_alternatives["train"] = tuple(names)
  return config


def alternatives(one):
  """Heads and relations of each parse beside the best."""
  words = max(1, len(one["source_head"]))
  heads, relations = (
    one[f"source_other_{item}"].reshape(-1, words).tolist()
    for item in ("head", "relation")
  )
  return [*zip(heads, relations)]


@pytest.fixture(scope="module")
def made(tmp_path_factory):
  config = with_parses(tmp_path_factory.mktemp("parses"))
  return config, build.run(config)


def test_parses_stay_with_their_lines(made):
  config, folder = made
  manifest = manifests.read(folder)
  ids = schema.relation_ids(manifest["relations"]["source"])
  assert {"all", "back", "dep", "root"} <= ids.keys()
  lines, seen = lines_of(config, "train.en"), collections.Counter()
  records = Dataset(folder).split("train")
  for one in records:
    index = int(one["line"]) - 1
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
    seen.update(used=len(due))
    seen["no tree"] += index % 3 == 0
    seen["other words"] += index % 4 == 0
  counts = manifest["splits"]["train"]["optional"]["alternatives.source"]
  assert dict(seen) == counts
  assert (
    f"alternatives.source used {seen['used']}"
    in (folder / "report.txt").read_text()
  )
  for one in Dataset(folder).split("test"):  # a split that was given none
    assert alternatives(one) == []
  verify.run(folder)


def drawing(folder, reads=READS, rate=0.0, **more):
  share = more.pop("share", None)
  data = dataclasses.replace(data_of(), tree=Sampled(rate), **more)
  split = opened(
    Dataset(folder).split("train"),
    reads,
    data=data,
    tokens=512,
    shapes=2,
    row_multiple=2,
  )
  return split if share is None else dataclasses.replace(split, shard=share)


def rows_of(split, epoch):
  batches = split.batches(Position(epoch))
  for planned, train_batch in zip(split.batch_sampler.epoch(epoch), batches):
    for row, index in enumerate(planned.ids.tolist()):
      yield index, {k: v[row] for k, v in train_batch.batch.items()}


def test_each_parse_is_sampled_equally_often_as_a_whole(made):
  """Its heads, its relations, and what follows from them."""
  _, folder = made
  records, split = Dataset(folder).split("train"), drawing(folder)
  (message,) = split.messages
  assert "one of all source parses; each" in message
  counts = collections.Counter()
  for epoch in range(40):
    for index, row in rows_of(split, epoch):
      assert not any("other" in name for name in row)
      one = records[index]
      words = len(one["source_head"])
      expected = (one["source_head"].tolist(), one["source_relation"].tolist())
      all_ids = [expected, *alternatives(one)]
      result = tuple(
        row[f"source_{name}_BW"][:words].tolist()
        for name in ("head", "relation")
      )
      which = all_ids.index(result)  # one of them, whole
      if len({str(heads) for heads, _ in all_ids}) == len(all_ids):
        counts[len(all_ids), which] += 1
      head_W, word_S = np.array(result[0]), one["source_word"]
      np.testing.assert_array_equal(
        row["source_parent_mid_BS"][: len(word_S)],
        tree.parent_mid(word_S, head_W),
      )
      np.testing.assert_array_equal(
        row["source_tree_distance_BWW"][:words, :words],
        tree.tree_distance(head_W),
      )
  for size in (2, 3):
    expected = [counts[size, which] for which in range(size)]
    total = sum(expected)
    deviation = (total * (size - 1)) ** 0.5 / size
    assert (
      total > 300
      and max(abs(n - total / size) for n in expected) < 4 * deviation
    )
  assert counts[1, 0] > 0  # sentences with the best alone


def test_resumes_exactly_and_agrees_on_two_hosts(made):
  _, folder = made
  split = drawing(folder, rate=0.2)
  walk = [*itertools.islice(split.batches(Position()), 8)]
  again = next(drawing(folder, rate=0.2).batches(walk[4].after)).batch
  shares = [
    drawing(folder, rate=0.2, share=HostShard((part,), 2)).batches(Position())
    for part in (0, 1)
  ]
  for name, array in again.items():
    np.testing.assert_array_equal(array, walk[5].batch[name])
  for complete, *parts in zip(walk, *shares):
    for name, array in complete.batch.items():
      both = np.concatenate([part.batch[name] for part in parts])
      np.testing.assert_array_equal(both, array)


def test_a_mixture_needs_further_parses_in_all_folders_or_none(made, tmp_path):
  _, folder = made
  plain = with_parses(tmp_path / "plain", ())
  del plain.prepare.parse.source_alternatives["train"]
  plain.prepare.vocabulary.like = str(folder)
  other = build.run(plain)
  mixture = Mixture(folders=(str(other),))
  with pytest.raises(InputError, match=r"mixture, .*source_alternatives"):
    drawing(folder, mixture=mixture)
  # Relations of the others have the ids of the first.
  more = with_parses(tmp_path / "more", (back,), train=20)
  more.prepare.vocabulary.like = str(folder)
  split = drawing(folder, mixture=Mixture(folders=(str(build.run(more)),)))
  ids = schema.relation_ids(manifests.read(folder)["relations"]["source"])
  result = set()
  for epoch in range(3):
    for index, row in rows_of(split, epoch):
      if index >= 60:
        result.update(row["source_relation_BW"].tolist())
  assert result == {0, ids["dep"], ids["root"], ids["back"]}


def test_gold_trees_as_further_parses(prepared, tmp_path):
  """Where the best is parsed, of some lines of the raw file, on both sides."""
  config = quickstart.get_config("pascal")
  config.data.directory = str(tmp_path / "out")
  raw = prepared.parent / "raw"
  config.prepare.raw_dir = str(raw)
  config.prepare.splits["train"] = ("train.en", "train.qaa", "401-460")
  config.prepare.vocabulary.size = 200
  config.prepare.workers = 1
  config.prepare.parse.source_alternatives["train"] = ("train.en.conllu",)
  config.prepare.parse.target_alternatives["train"] = ("train.qaa.conllu",) * 2
  folder = build.run(config)
  records = Dataset(folder).split("train")
  for side, language in (("source", "en"), ("target", "qaa")):
    text = (raw / f"train.{language}.conllu").read_text()
    gold = [
      [row.split("\t") for row in block.splitlines() if row[0] != "#"]
      for block in text.split("\n\n")[:-1]
    ]
    labels = [""] + records.dataset.manifest["relations"][side]
    differ = 0
    for one in records:
      rows = gold[int(one["line"]) - 1]
      expected = [
        int(row[6]) - 1 if row[6] != "0" else i for i, row in enumerate(rows)
      ]
      words, times = len(expected), 1 if side == "source" else 2
      assert one[f"{side}_other_head"].tolist() == expected * times
      result = [labels[i] for i in one[f"{side}_other_relation"]]
      assert result == [row[7] for row in rows] * times
      differ += one[f"{side}_head"].tolist() != expected
      assert words == len(one[f"{side}_head"])
    # Of the target the best is gold too; UDPipe errs.
    assert (differ > 0) == (side == "source")


@pytest.mark.parametrize(
  ("name", "change", "message"),
  [
    ("source_other_head", lambda x: x[:-1], "source_other_head has a part"),
    ("source_other_head", lambda x: x - 9, "other_head must be from 0 to"),
    ("source_other_head", lambda x: (x + 1) % 2, "other_head has a cycle"),
    ("source_other_relation", lambda x: x[1:], "has another number of values"),
    ("source_other_relation", lambda x: x + 99, "must be from 0 to"),
  ],
)
def test_rejects_malformed_examples(made, name, change, message):
  _, folder = made
  records = Dataset(folder).split("train")
  one = next(
    x
    for x in records
    if len(alternatives(x)) == 2 and len(x["source_head"]) > 2
  )
  manifest = records.dataset.manifest
  example_check.check(Rows.of([one], one), manifest)
  bad = {**one, name: change(one[name]).astype(np.int32)}
  if "cycle" in message:
    words = len(one["source_head"])  # in the second parse alone
    turn = (np.arange(words) + 1) % words
    bad[name] = np.append(one[name][:words], turn).astype(np.int32)
  with pytest.raises(InvalidExampleError, match=message):
    example_check.check(Rows.of([records[0], bad], one), manifest)
