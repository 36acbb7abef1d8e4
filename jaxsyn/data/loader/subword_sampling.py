"""Samples a new subword segmentation of each sentence in every epoch.

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
from collections.abc import Collection

import numpy as np

from jaxsyn.data.loader.transforms import Transform
from jaxsyn.data.loader.windows import Window
from jaxsyn.data.options import Sampling
from jaxsyn.data.schema import EOS, NO_WORD, SIDES
from jaxsyn.data.sentence import alignments
from jaxsyn.data.sentence.align import words_of_pieces
from jaxsyn.data.sentence.tree import parent_mid
from jaxsyn.data.sentence.vocabulary import Pieces
from jaxsyn.data.store.dataset import Split
from jaxsyn.data.store.rows import Lengths, Rows
from jaxsyn.data.store.tfrecord import CorruptDatasetError
from jaxsyn.errors import InputError

TRIES = 8
_MEASURED = 2048  # sentences sampled to estimate the lengths of others
_MEASURED_BLOCKS = 8  # blocks of records with these sentences
# Shuffling windows in memory: two more are planned while one is used.
_CACHED_WINDOWS = 3


class ResampledSubwords(Transform):
  """Transform that samples a new segmentation of each sentence in every epoch.

  Args:
    split: Opened split, which is not empty.
    sampling: Section config.data.sampling.
    seed: Value of config.seed.
    linked: Whether word alignments are read, which need units of subwords.

  Attributes:
    vocabularies: Vocabulary of each resampled side.

  Raises:
    InputError: A vocabulary has only one segmentation of a sentence.
  """

  def __init__(
    self, split: Split, sampling: Sampling, *, seed: int, linked: bool = False
  ):
    self._split, self._alpha, self._seed = split, sampling.alpha, seed
    self._linked = linked
    self._sides: list[str] = [side for side in SIDES if side in sampling.sides]
    self.vocabularies = {s: split.dataset.vocabulary(s) for s in self._sides}
    for side, vocabulary in self.vocabularies.items():
      if not vocabulary.can_sample:
        raise InputError(
          f"config.data.sampling.sides={sampling.sides}: {vocabulary.path} has "
          f"only one segmentation of a {side} sentence. Omit the side, or prepare "
          "with config.prepare.vocabulary.type='bpe' or 'unigram'."
        )
    self._parsed = [s for s in self._sides if f"{s}_word_end" in split.features]
    # Sampled windows: indices of examples, their subwords and words.
    self._cache = collections.OrderedDict[Window, tuple[np.ndarray, Rows]]()
    self._lock = threading.Lock()

  @property
  def summary(self) -> str:  # type: ignore[override]  # computed on first use
    sides = (f"{side} x {a:.3g}" for side, (a, _) in self.growth.items())
    return f"subwords resampled in every epoch: {', '.join(sides)}"

  def required(self, features: Collection[str]) -> set[str]:
    middles = (side for side in self._sides if f"{side}_parent_mid" in features)
    return {f"{side}_head" for side in middles}

  def __call__(self, rows: Rows, ids: np.ndarray, window: Window) -> Rows:
    sampled = self._sampled(window, ids)
    flat, start = dict(rows.flat), dict(rows.start)
    for side in self._sides:
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

  @functools.cached_property
  def growth(self) -> dict[str, tuple[float, float]]:
    """Coefficients that predict sampled lengths from stored lengths, by side.

    For the coefficients (a, b), a sentence that has n subwords without sampling
    has about a · n sampled subwords, and rarely more than a · n + b · √n.
    """
    start = self._split.block_start
    blocks = np.linspace(0, len(start) - 2, _MEASURED_BLOCKS).astype(np.int64)
    blocks = np.unique(blocks)
    count = -(-_MEASURED // len(blocks))
    some = [
      np.linspace(a, b - 1, count).astype(np.int64)
      for a, b in zip(start[blocks], start[blocks + 1])
    ]
    ids = np.unique(np.concatenate(some))
    texts = self._load(ids)
    growth = {}
    for side in self._sides:
      stored = self._split.lengths[SIDES.index(side)][ids]
      n = stored.astype(np.int64) - 1
      samples = [
        self._sample(_text(texts, side, i), (index, side, "bound"))
        for i, index in enumerate(ids.tolist())
      ]
      m = np.array([len(sample.id) for sample in samples])
      n, m = n[n > 0], m[n > 0]
      growth[side] = 1.0, 0.0
      if len(n):
        a = float(m.sum() / n.sum())
        growth[side] = a, float(max(0.0, ((m - a * n) / np.sqrt(n)).max()))
    return growth

  @functools.cached_property
  def bounds(self) -> Lengths:
    """Upper bound of each example's length after sampling, EOS included."""
    return self._scaled_lengths(1.0)

  @functools.cached_property
  def expected(self) -> Lengths:
    """Expected length of each example after sampling, to choose batch shapes.

    The longest example on each side has the length of its bound.
    """
    expected = self._scaled_lengths(0.0)
    for length, bound in zip(expected[:2], self.bounds[:2]):
      length[np.argmax(bound)] = bound.max()
    return expected

  def _scaled_lengths(self, deviation: float) -> Lengths:
    scaled = {}
    for side, stored in zip(SIDES, self._split.lengths):
      a, b = self.growth.get(side, (1.0, 0.0))
      n = np.maximum(stored.astype(np.int64) - 1, 0)
      length = np.ceil(a * n + deviation * b * np.sqrt(n)).astype(np.int32) + 1
      scaled[side] = np.maximum(length, stored)
    return self._split.lengths._replace(**scaled)

  def sizes(self, window: Window, ids: np.ndarray) -> list[np.ndarray]:
    """Returns each example's source and target length after subword sampling.

    A length is never below the stored one, which determines the words of its
    batch shape. The samples are cached until they are used.

    Args:
      window: Shuffling window whose batches are planned.
      ids: Indices of all its examples, ascending.
    """
    rows = self._sampled(window, ids, is_complete=True)
    sizes = []
    for side, stored in zip(SIDES, self._split.lengths):
      size = stored[ids].astype(np.int64)
      if side in self._sides:
        size = np.maximum(size, rows.sizes(f"{side}_id"))
      sizes.append(size)
    return sizes

  def subwords(self, window: Window, ids: np.ndarray) -> tuple[int, int]:
    """Returns the examples' total source and target subwords after sampling."""
    source, target = (int(side[ids].sum()) for side in self._split.lengths[:2])
    rows = self._sampled(window, ids)
    if "source" in self._sides:
      source = len(rows.flat["source_id"])
    if "target" in self._sides:
      target = len(rows.flat["target_id"])
    return source, target

  def _sampled(
    self, window: Window, ids: np.ndarray, *, is_complete: bool = False
  ) -> Rows:
    """Returns sampled subword ids and word indices of the given examples.

    Args:
      window: Shuffling window of the examples.
      ids: Indices of the examples.
      is_complete: Whether these are all examples of the window in ascending
        order, which are then cached.
    """
    with self._lock:  # a window is planned while another one is used
      if window in self._cache:
        self._cache.move_to_end(window)
        window_ids, rows = self._cache[window]
        if is_complete:
          return rows
        return rows.take(np.searchsorted(window_ids, ids))
      rows = self._sample_all(window[0], ids)
      if is_complete:
        self._cache[window] = ids, rows
        if len(self._cache) > _CACHED_WINDOWS:
          self._cache.popitem(last=False)
      return rows

  def _sample_all(self, epoch: int, ids: np.ndarray) -> Rows:
    texts = self._load(ids)
    flat, start = {}, {}
    for side in self._sides:
      ends = f"{side}_word_end"
      values: dict[str, list[int]] = {"id": []}
      if side in self._parsed:
        values["word"] = []
      if self._linked:
        values["unit"] = []
      starts = [0]
      for i, index in enumerate(ids.tolist()):
        text = _text(texts, side, i)
        pieces = self.pieces(side, index, text, epoch)
        values["id"] += [*pieces.id, EOS]
        starts.append(len(values["id"]))
        if side in self._parsed:
          a, b = texts.start[ends][i : i + 2]
          end_W = texts.flat[ends][a:b].tolist()
          values["word"] += words_of_pieces(
            text, pieces.begin, pieces.end, end_W, end_W
          )
          values["word"].append(NO_WORD)
        if self._linked:
          values["unit"] += alignments.units_of_pieces(text, pieces)
      for part, joined in values.items():
        flat[f"{side}_{part}"] = np.array(joined, np.int32)
        start[f"{side}_{part}"] = np.array(starts)
    return Rows(flat, start)

  def _load(self, ids: np.ndarray) -> Rows:
    """Reads the texts and word-end offsets of the examples at given indices."""
    ascending, place = np.unique(ids, return_inverse=True)
    is_complete = len(ascending) == len(self._split)
    texts = self._texts if is_complete else self._read(ascending)
    return texts.take(place)

  @functools.cached_property
  def _texts(self) -> Rows:
    return self._read(np.arange(len(self._split)))

  def _read(self, ids: np.ndarray) -> Rows:
    features = [f"{side}_utf8" for side in self._sides]
    features += [f"{side}_word_end" for side in self._parsed]
    parts = self._split.select(ids, features)
    return Rows.joined([Rows.of([], features), *parts])

  def pieces(self, side: str, index: int, text: str, epoch: int) -> Pieces:
    """Returns the subwords sampled for a sentence in an epoch, without EOS."""
    limit = int(self.bounds[SIDES.index(side)][index]) - 1
    for attempt in range(TRIES):
      sampled = self._sample(text, (index, side, epoch, attempt))
      if len(sampled.id) <= limit:
        return sampled
    return self.vocabularies[side].encode(text)

  def _sample(self, text: str, key: tuple[int | str, ...]) -> Pieces:
    """Samples a text's subwords, determined by `key` and the run's seed."""
    seed_text = " ".join(map(str, (self._seed, *key))).encode()
    digest = hashlib.blake2b(seed_text, digest_size=4).digest()
    seed = int.from_bytes(digest, "big")
    return self.vocabularies[str(key[1])].sample(text, seed, self._alpha)


def _text(texts: Rows, side: str, i: int) -> str:
  """Returns the raw source or target text of an example.

  Raises:
    CorruptDatasetError: The text is not UTF-8.
  """
  begin, end = texts.start[f"{side}_utf8"][i : i + 2]
  data = texts.flat[f"{side}_utf8"][begin:end].tobytes()
  try:
    return data.decode()
  except UnicodeDecodeError:
    raise CorruptDatasetError(f"{side}_text of a record is not UTF-8") from None
