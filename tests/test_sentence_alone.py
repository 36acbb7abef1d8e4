"""A sentence's translation depends on the sentence alone, from text on.

Japanese, where a subword often holds several words: of the sentences here most
have more words than subwords.
"""

import shutil

import numpy as np
import pytest
from toy_folders import data_of, opened, values

from jaxsyn import train
from jaxsyn.configs import pud, systems
from jaxsyn.data.loader.transforms import iterate_translations
from jaxsyn.data.sentence.stream import sentences
from jaxsyn.data.store.dataset import Dataset
from jaxsyn.preprocess import build
from jaxsyn.session import Session
from jaxsyn.storage import checksums, files

LINES = {"train": "1-120", "validation": "901-901", "test": "801-900"}


@pytest.fixture(scope="module")
def run(shared_data, tmp_path_factory):
  """A run of few updates, from the treebanks on; and its sentences."""
  folder = tmp_path_factory.mktemp("japanese")
  config = pud.pud("ja", "en")
  config.data.directory = str(folder / "data")
  for split, lines in LINES.items():
    config.prepare.splits[split] = (*config.prepare.splits[split][:2], lines)
  config.prepare.parse.sides = ("source",)
  config.prepare.vocabulary.update(size=3000, joint=False)
  config.prepare.workers = 1
  config.model.update(width=16, tie_embeddings=False)
  config.model.transformer.update(
    encoder_layers=1, decoder_layers=1, feed_forward=16
  )
  systems.apply(config, "deps_san")
  config.batch.update(tokens=1024, shapes=1)
  config.train.update(steps=3, evaluate_every=3, save_every=3, log_every=3)
  # After few updates no output ends of itself: each goes to its own limit.
  config.decode.update(max_length_factor=0.25, max_length_offset=1)
  config.decode.update(beam=3, nbest=3, sentences=8)
  build.run(config, str(shared_data / "ud"))
  assert train.run(config, folder / "run").step == 3
  treebank = str(shared_data / "ud" / "ja_pud.conllu.gz")
  parses = [parse for parse in sentences(treebank, trees=True) if parse]
  return folder / "run", parses, config


@pytest.fixture(scope="module")
def session(run):
  return Session(run[0])


@pytest.fixture(scope="module")
def examples(run, session):
  """Sixty sentences; half of them have more words than subwords."""
  made = [session.example(parse) for parse in run[1][:500]]
  made = [one for one in made if len(one["source_id"]) <= 32]
  more = [one for one in made if words(one) >= len(one["source_id"])]
  less = [one for one in made if words(one) < len(one["source_id"])]
  assert len(more) > 40 and sum(words(one) > 32 for one in more[:40]) > 3
  return [*more[:40], *less[:20]]


def words(example):
  return len(example["source_head"])


def same(found, expected):
  for one, other in zip(found, expected, strict=True):
    assert [best.text for best in one] == [best.text for best in other]
    assert [best.ids for best in one] == [best.ids for best in other]
    np.testing.assert_allclose(
      [best.score for best in one], [best.score for best in other], atol=1e-5
    )


def test_alone_and_in_any_batch_a_translation_is_the_same(
  run, session, examples
):
  combined = session.search(examples)
  assert {len(best) for best in combined} == {3}
  same([session.search([one])[0] for one in examples], combined)
  # Beside a longer one, so that all are padded to another width.
  long = session.example(max(run[1], key=lambda parse: len(parse.text)))
  assert len(long["source_id"]) > 32
  for start in range(0, len(examples), 7):
    small_set = examples[start : start + 7]
    same(session.search([long, *small_set])[1:], combined[start : start + 7])
  # To read and to search widths of 16, 32 and 64: one sentence, few and many,
  # which are moved when their caches grow.
  assert session.compilations <= 3 * 2 * 3


def test_a_run_translates_with_the_random_trees_it_was_trained_on(
  run, session, tmp_path
):
  """Those of config.seed; its parser's trees stand beside the text."""
  folder, parses, config = run
  shutil.copytree(folder, tmp_path / "run")
  path = tmp_path / "run" / "config.json"
  saved = checksums.verify_checksum(files.read_json(path))
  saved["seed"], saved["data"]["tree"] = 5, "random"
  files.write_json(path, checksums.add_checksum(saved))
  config = config.copy_and_resolve_references()
  config.seed, config.data.tree = 5, "random"
  # Nothing is left to do but to read the data.
  assert train.run(config, tmp_path / "run").step == 3
  data = data_of("random")
  random = Session(tmp_path / "run")
  records = Dataset(config.data.directory).split("test")
  names = ("source_id", "source_head", "source_parent_mid")
  columns = opened(records, names[1:], data=data, seed=5).all_examples
  other = 0
  for i, stored in enumerate(iterate_translations(records, data, 5)):
    made = random.example(parses[int(stored["line"]) - 1])
    for name in names:
      np.testing.assert_array_equal(made[name], values(columns, name, i))
    parsed = session.example(parses[int(stored["line"]) - 1])
    other += (made["source_head"] != parsed["source_head"]).any()
  assert other > 95  # of 100 sentences
