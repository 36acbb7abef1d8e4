"""Sampled sentences, and the files of their attention."""

import xml.etree.ElementTree

import numpy as np
import toy_folders

from jaxsyn.comparison import attention_samples
from jaxsyn.data.sentence.text import read_lines
from jaxsyn.data.store import manifests
from jaxsyn.inspection import pictures


def test_samples_sentences_by_length(prepared, tmp_path):
  chosen = attention_samples.sample(str(prepared), "test")
  lines = read_lines(
    manifests.sentence_file(prepared, "text", "test", "source")
  )
  rows = [lines.index(parse.text) for parse in chosen]
  assert len(rows) == attention_samples.SENTENCES
  assert rows == sorted(set(rows))
  for parse in chosen:
    assert parse.parsed and 7 <= len(parse.head_W) <= 13
  manifests.write(tmp_path, toy_folders.manifest_of(tmp_path, sides=[]))
  assert attention_samples.sample(str(tmp_path), "test") == []  # no trees


def test_replaces_old_samples(tmp_path):
  (tmp_path / "look").mkdir()
  (tmp_path / "look" / "1.json").write_text("old")
  attention_samples.write([], tmp_path / "look")
  assert list((tmp_path / "look").iterdir()) == []
  assert [path.name for path in tmp_path.iterdir()] == ["look"]


def test_svg_is_reproducible_and_small():
  weight_QM = np.random.default_rng(0).dirichlet(np.ones(9), 9)
  labels = [f"w{i}" for i in range(9)]

  def drawn():
    panel = pictures.Panel("head 0", labels, labels, weight_QM)
    return attention_samples.as_svg(pictures.matrices([panel]))

  svg = drawn()
  assert svg == drawn()
  root = xml.etree.ElementTree.fromstring(svg)
  images = [e for e in root.iter() if e.tag.endswith("}image")]
  assert len(images) == 2  # the matrix and its color scale
  assert len(svg) < 60_000
