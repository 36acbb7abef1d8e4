"""Sampling of a new subword segmentation for each sentence in every epoch.

config.data.sampling turns it on. The segmentation of a sentence depends only on
(seed, epoch, index, side), and so not on hosts, on the order of batches or on
where a run was resumed. Words and trees do not change; the words of subwords
and the positions of parents are computed again from character offsets, as in
preparation: records have the texts and the ends of words.

Every host samples a shuffling window of examples before the batches in it are
planned, so batches fit the sampled lengths. If a sample exceeds the length
bound of its sentence, as about one in a thousand does, the sentence is sampled
again; after `TRIES` it is segmented without sampling. So the batch shapes hold
the samples of any epoch.

Source: Provilkov et al. 2020 (arXiv:1910.13267), BPE-dropout; Kudo 2018
(arXiv:1804.10959), subword regularization.
"""

from __future__ import annotations

import collections
import functools
import hashlib
import threading
from collections.abc import Collection, Mapping
from typing import ClassVar

import numpy as np

from jaxsyn.data.loader.transforms import Transform, Window
from jaxsyn.data.options import Sampling
from jaxsyn.data.schema import EOS, NO_WORD, SIDES, SPELLING, UTF8
from jaxsyn.data.sentence import alignments
from jaxsyn.data.sentence.align import words_of_pieces
from jaxsyn.data.sentence.tree import parent_mid
from jaxsyn.data.sentence.vocabulary import Pieces, Vocabulary
from jaxsyn.data.store.dataset import Examples, Split
from jaxsyn.data.store.index import Lengths
from jaxsyn.data.store.records import CorruptDatasetError
from jaxsyn.data.store.rows import Rows
from jaxsyn.errors import InputError

TRIES = 8
_MEASURED = 2048  # sentences sampled to estimate the lengths of others
_MEASURED_BLOCKS = 8  # blocks of records with these sentences
# Shuffling windows in memory: two more are planned while shapes are compiled.
_CACHED_WINDOWS = 3


class ResampledSubwords(Transform):
  """Transform that samples a new segmentation of each sentence in every epoch.

  Attributes:
    vocabularies: Vocabulary of each resampled side.
  """

  scope: ClassVar = "window"

  def __init__(
    self,
    examples: Examples,
    sampling: Sampling,
    vocabularies: Mapping[str, Vocabulary],
    *,
    seed: int,
    features: tuple[str, ...],
    linked: bool = False,
  ):
    """Makes the transform for the examples of a split.

    Args:
      examples: Examples with texts and, for sides with trees, ends of words.
      sampling: Section config.data.sampling.
      vocabularies: Vocabulary of each resampled side.
      seed: Value of config.seed.
      features: Names of the features with texts and ends of words.
      linked: Whether word alignments are read, which need units of subwords.
    """
    self._examples, self._sampling, self._seed = examples, sampling, seed
    self.vocabularies, self._features = vocabularies, features
    self._linked = linked
    # Sampled windows: indices of examples, their subwords and words.
    self._cache = collections.OrderedDict[Window, tuple[np.ndarray, Rows]]()
    self._lock = threading.Lock()

  @property
  def summary(self) -> str:  # type: ignore[override]  # computed on first use
    sides = (f"{side} x {a:.3g}" for side, (a, _) in self.growth.items())
    return (
      f"subwords resampled in every epoch, of the {', of the '.join(sides)}"
    )

  def required(self, features: Collection[str]) -> set[str]:
    return {
      f"{side}_head"
      for side in self.vocabularies
      if f"{side}_parent_mid" in features
    }

  @functools.cached_property
  def _texts(self) -> Rows:
    """Texts and ends of words of all examples."""
    return self._load(np.arange(len(self._examples)))

  def _load(self, ids: np.ndarray) -> Rows:
    """Returns the texts and word ends of the examples with given indices."""
    parts = self._examples.select(ids, self._features)
    return Rows.joined([Rows.of([], self._features), *parts])

  @functools.cached_property
  def growth(self) -> dict[str, tuple[float, float]]:
    """Coefficients that predict sampled lengths from stored lengths, by side.

    For the coefficients (a, b), a sentence that has n subwords without sampling
    has about a · n sampled subwords, and rarely more than a · n + b · √n.
    """
    start = self._examples.block_start
    blocks = np.linspace(0, len(start) - 2, _MEASURED_BLOCKS).astype(np.int64)
    blocks = np.unique(blocks)
    count = -(-_MEASURED // len(blocks))
    ids = np.concatenate(
      [
        np.unique(np.linspace(a, b - 1, count).astype(np.int64))
        for a, b in zip(start[blocks], start[blocks + 1])
      ]
    )
    texts = self._load(ids)
    growth = {}
    for side, vocabulary in self.vocabularies.items():
      stored = self._examples.lengths[SIDES.index(side)][ids]
      n = stored.astype(np.int64) - 1
      lines = [_text(texts, side, i) for i in range(len(ids))]
      samples = [
        self._sample(vocabulary, line, (i, side, "bound"))
        for i, line in zip(ids.tolist(), lines)
      ]
      m = np.array([len(sample.id) for sample in samples])
      n, m = n[n > 0], m[n > 0]
      if not len(n):
        growth[side] = 1.0, 0.0
        continue
      a = float(m.sum() / n.sum())
      growth[side] = a, float(max(0.0, ((m - a * n) / np.sqrt(n)).max()))
    return growth

  @functools.cached_property
  def bounds(self) -> Lengths:
    """Upper bounds of the sampled lengths of all examples, EOS included."""
    return self._scaled_lengths(1.0)

  @functools.cached_property
  def expected(self) -> Lengths:
    """Expected sampled lengths of all examples, used to choose batch shapes.

    The longest example on each side has the length of its bound.
    """
    expected = self._scaled_lengths(0.0)
    for length, bound in zip(expected[:2], self.bounds[:2]):
      length[np.argmax(bound)] = bound.max()
    return expected

  def _scaled_lengths(self, deviation: float) -> Lengths:
    scaled = {}
    for side, stored in zip(SIDES, self._examples.lengths):
      a, b = self.growth.get(side, (1.0, 0.0))
      n = np.maximum(stored.astype(np.int64) - 1, 0)
      length = np.ceil(a * n + deviation * b * np.sqrt(n)).astype(np.int32) + 1
      scaled[side] = np.maximum(length, stored)
    return self._examples.lengths._replace(**scaled)

  def sizes(self, window: Window, ids: np.ndarray) -> list[np.ndarray]:
    """Returns the source and target lengths of examples for planning batches.

    A length is never below the stored one, which determines the words of its
    batch shape.

    Args:
      window: Shuffling window whose batches are planned.
      ids: Indices of its examples, ascending.
    """
    rows = self._sampled(window, ids, keep=True)
    sizes = []
    for side, stored in zip(SIDES, self._examples.lengths):
      size = stored[ids].astype(np.int64)
      if side in self.vocabularies:
        size = np.maximum(size, rows.sizes(f"{side}_id"))
      sizes.append(size)
    return sizes

  def subwords(self, window: Window, ids: np.ndarray) -> tuple[int, int]:
    """Returns the total source and target subword counts of given examples."""
    rows = self._sampled(window, ids)
    source, target = (
      int(
        rows.sizes(f"{side}_id").sum()
        if side in self.vocabularies
        else stored[ids].sum()
      )
      for side, stored in zip(SIDES, self._examples.lengths)
    )
    return source, target

  def __call__(self, rows: Rows, ids: np.ndarray, window: Window) -> Rows:
    sampled = self._sampled(window, ids)
    flat, start = dict(rows.flat), dict(rows.start)
    for side in self.vocabularies:
      parts = ("id", "word", "unit", "parent_mid")
      id_, word, unit, middle = (f"{side}_{part}" for part in parts)
      for name in (id_, word, unit):
        if name in flat:
          flat[name] = sampled.flat[name]
      if middle in flat:
        head = f"{side}_head"
        flat[middle] = parent_mid(
          sampled.flat[word],
          flat[head],
          pieces=sampled.sizes(id_),
          words=np.diff(start[head]),
        )
      for name in (id_, word, unit, middle):
        if name in start:  # one array for features of one size
          start[name] = sampled.start[id_]
    return Rows(flat, start)

  def _sampled(
    self, window: Window, ids: np.ndarray, keep: bool = False
  ) -> Rows:
    """Returns the sampled subword ids of given examples, and their words.

    Args:
      window: Shuffling window of the examples.
      ids: Indices of the examples.
      keep: Whether these are all examples of the window, which are then cached.
    """
    with self._lock:
      if window in self._cache:
        window_ids, rows = self._cache[window]
        place = np.minimum(
          np.searchsorted(window_ids, ids), len(window_ids) - 1
        )
        if (window_ids[place] == ids).all():
          return rows if np.array_equal(window_ids, ids) else rows.take(place)
      rows = self._sample_all(window[0], ids)
      if keep:
        self._cache[window] = ids, rows
        while len(self._cache) > _CACHED_WINDOWS:
          self._cache.popitem(last=False)
      return rows

  def _sample_all(self, epoch: int, ids: np.ndarray) -> Rows:
    is_complete = len(ids) == len(self._examples)
    texts = self._texts if is_complete else self._load(ids)
    flat, start = {}, {}
    for side in self.vocabularies:
      ends = f"{side}_word_end"
      has_trees = ends in texts.flat
      id_, word, unit, sizes = [], [], [], []
      for i, index in enumerate(ids.tolist()):
        text = _text(texts, side, i)
        pieces = self.pieces(side, index, text, epoch)
        id_ += [*pieces.id, EOS]
        sizes.append(len(pieces.id) + 1)
        if has_trees:
          a, b = texts.start[ends][i : i + 2]
          end_W = texts.flat[ends][a:b].tolist()
          word += words_of_pieces(text, pieces.begin, pieces.end, end_W, end_W)
          word.append(NO_WORD)
        if self._linked:
          unit += alignments.units(text, pieces)
      made = {"id": id_}
      if has_trees:
        made["word"] = word
      if self._linked:
        made["unit"] = unit
      starts = np.cumsum([0, *sizes])
      for part, values in made.items():
        flat[f"{side}_{part}"] = np.array(values, np.int32)
        start[f"{side}_{part}"] = starts
    return Rows(flat, start)

  def pieces(self, side: str, index: int, text: str, epoch: int) -> Pieces:
    """Returns the sampled subwords of a sentence in an epoch, without EOS."""
    vocabulary = self.vocabularies[side]
    limit = int(self.bounds[SIDES.index(side)][index]) - 1
    for attempt in range(TRIES):
      sampled = self._sample(vocabulary, text, (index, side, epoch, attempt))
      if len(sampled.id) <= limit:
        return sampled
    return vocabulary.encode(text)

  def _sample(
    self, vocabulary: Vocabulary, text: str, key: tuple[int | str, ...]
  ) -> Pieces:
    seed_text = " ".join(map(str, (self._seed, *key))).encode()
    digest = hashlib.blake2b(seed_text, digest_size=4).digest()
    seed = int.from_bytes(digest, "big")
    return vocabulary.sample(text, seed, self._sampling.alpha)


def _text(texts: Rows, side: str, i: int) -> str:
  """Returns the text of one side of example i.

  Raises:
    CorruptDatasetError: The text is not UTF-8.
  """
  begin, end = texts.start[f"{side}_utf8"][i : i + 2]
  data = texts.flat[f"{side}_utf8"][begin:end].tobytes()
  try:
    return data.decode()
  except UnicodeDecodeError:
    raise CorruptDatasetError(f"{side}_text of a record is not UTF-8") from None


def resampled_subwords(
  split: Split, sampling: Sampling, *, seed: int, linked: bool = False
) -> ResampledSubwords | None:
  """Returns the transform that resamples subwords; None if sampling is off.

  Args:
    split: Opened split.
    sampling: Section config.data.sampling.
    seed: Value of config.seed.
    linked: Whether word alignments are read.

  Raises:
    InputError: A vocabulary has only one segmentation of a sentence.
  """
  sides: list[str] = [side for side in SIDES if side in sampling.sides]
  if not sides or not len(split):
    return None
  vocabularies = {side: split.dataset.vocabulary(side) for side in sides}
  for side, vocabulary in vocabularies.items():
    if not vocabulary.can_sample:
      raise InputError(
        f"config.data.sampling.sides={sampling.sides}: {vocabulary.path} has one"
        f" way to write a {side} sentence, so nothing can be drawn. Leave the"
        " side out, or prepare with config.prepare.vocabulary.type='bpe' or"
        " 'unigram'."
      )
  features = tuple(
    name
    for name in SPELLING
    if name.partition("_")[0] in sides
    and (name in UTF8 or name in split.features)
  )
  return ResampledSubwords(
    split,
    sampling,
    vocabularies,
    seed=seed,
    features=features,
    linked=linked,
  )
