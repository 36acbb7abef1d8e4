"""The quickstart's corpus and its parser, on a tiny corpus."""

from __future__ import annotations

import collections
import functools
import json
import random

import pytest

from jaxsyn.data.sentence import conllu
from jaxsyn.data.sentence.parsers.udpipe import UDPipe
from jaxsyn.data.store import manifests
from jaxsyn.data.store.dataset import Dataset
from jaxsyn.errors import InputError
from jaxsyn.preprocess import quickstart
from jaxsyn.preprocess.toy import corpus, parser
from jaxsyn.preprocess.toy.corpus import Pair

SIZES = corpus.Sizes(train=150, validation=20, test=30, parser=150)


@pytest.fixture(scope="module")
def made(tmp_path_factory):
  """The folder of a tiny run and its report."""
  folder = tmp_path_factory.mktemp("quickstart") / "raw"
  return folder, quickstart.run(folder, seed=3, sizes=SIZES)


def test_files(made):
  folder, report = made
  assert report.pairs == {"train": 150, "validation": 20, "test": 30}
  for split, count in report.pairs.items():
    source, target = (
      (folder / f"{split}.{language}").read_text().splitlines()
      for language in quickstart.LANGUAGES
    )
    assert len(source) == len(target) == count
    for language, lines in zip(quickstart.LANGUAGES, (source, target)):
      trees = list(conllu.read(folder / f"{split}.{language}.conllu"))
      assert [tree.comment_text for tree in trees] == lines
      ids = [f"# sent_id = {split}-{i + 1}" for i in range(count)]
      assert [tree.comments[0] for tree in trees] == ids
      for parse in conllu.match(trees, lines, "raw"):
        assert sum(i == head for i, head in enumerate(parse.head_W)) == 1
  assert not list(folder.glob("*.tmp"))
  stored = json.loads((folder / "report.json").read_text())
  assert stored["uas"] == report.uas and "UAS" in str(report)


def test_model_parses_raw_text(made):
  folder, report = made
  # 150 sentences make no good parser, but one much better than chance.
  assert report.las > 0.6 and report.uas >= report.las
  parse = UDPipe(folder / quickstart.PARSER)("Today, an old king slept.")
  words = [parse.text[a:b] for a, b in zip(parse.start_W, parse.end_W)]
  assert words == ["Today", ",", "an", "old", "king", "slept", "."]
  # The commas and the king depend on "slept" (5).
  assert parse.head_W == (5, 5, 4, 4, 5, 5, 5)


def test_training_the_parser_is_silent_and_reproducible(made, capfd):
  folder, _ = made
  pairs = corpus.make_splits(3, SIZES)["train"]
  model = parser.train_parser(pairs)
  assert model == (folder / quickstart.PARSER).read_bytes()
  assert capfd.readouterr().err == ""


def test_attachment_counts_wrong_words_as_wrong(made):
  folder, _ = made
  pair = corpus.pairs(1, seed=3)[0]
  shares = parser.attachment(folder / quickstart.PARSER, [pair])
  assert 0 <= shares[1] <= shares[0] <= 1
  strange = pair.source.replace(" ", " . ")
  pair = Pair(**{**vars(pair), "source": strange})
  shares = parser.attachment(folder / quickstart.PARSER, [pair])
  assert shares == (0, 0)


def class_of(pair, token):
  """Returns what the dependents of a token agree with."""
  word = pair.words[token]
  return word.kind, word.group, pair.plurals[token]


def predicted(train, test, other):
  """Returns the share of test words whose translation is predicted correctly.

  The prediction is the most frequent translation of the word in training, given
  the class and side of another word, or else of the word alone.
  """

  def words(pairs):
    rng = random.Random(0)
    for pair in pairs:
      for i, translation in enumerate(pair.translations):
        j = other(pair.heads, i, rng.random())
        word, side = pair.tokens[i].lower(), (j > i) - (j < i)
        if translation:
          context = (word, *class_of(pair, j), side)
          yield word, context, translation

  counts = collections.defaultdict(collections.Counter)
  for word, context, translation in words(train):
    counts[word][translation] += 1
    counts[context][translation] += 1
  best = {key: count.most_common(1)[0][0] for key, count in counts.items()}
  hits = [
    best.get(context, best.get(word)) == translation
    for word, context, translation in words(test)
  ]
  return sum(hits) / len(hits)


def test_the_parent_predicts_translations_better_than_neighbors():
  """The claim that the quickstart stands on."""
  sizes = corpus.Sizes(train=3000, validation=1, test=300)
  splits = corpus.make_splits(1, sizes)
  share = functools.partial(predicted, splits["train"], splits["test"])
  parent = share(lambda heads, i, number: heads[i])
  assert parent > 0.85
  assert share(lambda heads, i, number: i) < 0.3
  for other in (
    lambda heads, i, number: max(i - 1, 0),
    lambda heads, i, number: min(i + 1, len(heads) - 1),
    lambda heads, i, number: int(number * len(heads)),
  ):
    assert share(other) < parent - 0.3


def test_all_but_main_verbs_follow_from_word_and_parent():
  """Without exception, given its relation and the parent's class."""
  seen = {}
  for pair in corpus.pairs(1000, seed=2):
    for i, translation in enumerate(pair.translations):
      head = pair.heads[i]
      if translation and head != i:
        word = (pair.tokens[i].lower(), pair.relations[i])
        known = (*word, class_of(pair, head))
        assert seen.setdefault(known, translation) == translation


def test_prepared_with_the_target_s_own_trees(prepared):
  """The gold trees, and not a parser's, whatever the folder of raw files."""
  manifest = manifests.read(prepared)
  assert manifest["sides"] == ["source", "target"]
  assert manifest["parser"]["source"]["trees"] == "parser"
  assert manifest["parser"]["target"] == {
    "file": "",
    "sha256": "",
    "name": "",
    "trees": "CoNLL-U",
  }
  sizes = corpus.Sizes(train=600, validation=24, test=24)
  for split, pairs in corpus.make_splits(1, sizes).items():
    records = Dataset(prepared).split(split)
    for example, pair in zip(records, pairs, strict=True):
      place = {token: i for i, token in enumerate(pair.order)}
      heads = [place[pair.heads[i]] for i in pair.order]
      assert example["target_head"].tolist() == heads
      assert example["target_parsed"] == 1


def test_folder_that_cannot_be_made(tmp_path):
  (tmp_path / "file").write_text("")
  with pytest.raises(InputError, match="cannot make the folder"):
    quickstart.run(tmp_path / "file" / "raw", sizes=SIZES)
