"""Control trees and examples for single sentences."""

import numpy as np

from jaxsyn.data.sentence import controls, example
from jaxsyn.data.store.rows import Rows


def linear(words):
  return controls.Linear().heads(np.zeros(words), np.array([words]), [0])


def random(words, seed):
  return controls.random_trees(np.array([words]), [seed])


def replace_trees(one, side, *, tree, seed):
  """Applies `example.replace_trees` to one example."""
  rows = Rows.of([one], one)
  return example.replace_trees(rows, side, tree=tree, seed=seed).examples()[0]


def encode(source, target, *, line=0, tag=None, **options):
  """Applies `example.encode_all` to one sentence pair."""
  targets = None if target is None else [target]
  rows = example.encode_all([source], targets, lines=[line], **options)
  if tag is not None:
    rows = example.insert_tags(rows, tag)
  return rows.examples()[0]
