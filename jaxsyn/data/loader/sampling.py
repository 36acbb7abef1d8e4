"""Subwords of training pairs, drawn anew in every epoch: config.data.sampling.

What a sentence is cut into follows from (seed, epoch, its number, its side)
alone, so nothing depends on hosts, on the order of batches or on where a run was
resumed. Words and trees stay; which word a subword is of, and where the parent's
subwords are, is found again by character offsets, as when data is prepared: records
have the texts and the ends of words.

A window of an epoch is drawn as a whole, before it is planned: so batches are
planned from what is in them. Every host draws all of it, as every host plans
all. What is longer than a bound, beyond which one draw in a thousand is, is drawn
again, and after `TRIES` the subwords are those without sampling: the shapes of
batches hold whatever is drawn in any epoch.

Source: Provilkov et al. 2020 (arXiv:1910.13267), BPE-dropout; Kudo 2018
(arXiv:1804.10959), subword regularisation.

Before this file: `texts`, `columns`. After it: `batch_plan`, `split`.

Letters: U block.
"""

from __future__ import annotations

import collections
import dataclasses
import functools
import hashlib
import threading
from collections.abc import Iterable, Mapping

import numpy as np

from jaxsyn.data.loader import texts
from jaxsyn.data.loader.columns import Columns
from jaxsyn.data.options import Sampling
from jaxsyn.data.schema import EOS, NO_WORD, SIDES
from jaxsyn.data.sentence import alignments
from jaxsyn.data.sentence.align import words_of_pieces
from jaxsyn.data.sentence.tree import parent_mid
from jaxsyn.data.sentence.vocabulary import Pieces, Vocabulary
from jaxsyn.data.store import manifests
from jaxsyn.data.store.lengths import Lengths
from jaxsyn.data.store.prepared import PreparedSplit, RecordFiles
from jaxsyn.data.store.rows import Rows
from jaxsyn.errors import InputError

TRIES = 8
_GROWTH_SAMPLE = (
  2048  # sentences that are drawn to know how long others will be
)
_BLOCKS = 8  # they are of
_CACHED_WINDOWS = (
  3  # windows: where shapes are looked for, two to come are planned too
)

Window = tuple[int, int]  # an epoch, and which of its windows


@dataclasses.dataclass(frozen=True)
class Sampler:
  """Draws the subwords of a split.

  Attributes:
    sampling: config.data.sampling.
    seed: config.seed.
    vocabularies: of the sides that are drawn.
    files: records with texts, and with ends of words where there are trees.
    features: names of those.
    linked: whether it is asked which words between blanks subwords are of.
  """

  sampling: Sampling
  seed: int
  vocabularies: Mapping[str, Vocabulary]
  files: RecordFiles
  features: tuple[str, ...]
  linked: bool = False
  # Windows that were drawn: numbers of examples, their subwords and words.
  _cache: collections.OrderedDict[Window, tuple[np.ndarray, Rows]] = (
    dataclasses.field(
      default_factory=collections.OrderedDict,
      init=False,
      repr=False,
      compare=False,
    )
  )
  _lock: threading.Lock = dataclasses.field(
    default_factory=threading.Lock, init=False, repr=False, compare=False
  )

  @property
  def lengths(self) -> Lengths:
    """Lengths of all examples without sampling."""
    return self.files.lengths

  @functools.cached_property
  def texts(self) -> Rows:
    """Of all examples."""
    return self.load(np.arange(len(self.files)))

  @property
  def summary(self) -> str:
    """What is drawn, for the reader."""
    sides = (f"{side} x {a:.3g}" for side, (a, _) in self.growth.items())
    return (
      f"subwords drawn anew in every epoch, of the {', of the '.join(sides)}"
    )

  def load(self, ids: np.ndarray) -> Rows:
    """Texts and words of some examples: numbers, ascending, each once."""
    cut = np.searchsorted(ids, self.files.start)
    block_U = np.flatnonzero(np.diff(cut))
    parts = [
      rows.take(ids[cut[u] : cut[u + 1]] - self.files.start[u])
      for u, rows in zip(
        block_U, self.files.read(block_U.tolist(), self.features)
      )
    ]
    return Rows.joined([Rows.of([], self.features), *parts])

  @functools.cached_property
  def growth(self) -> dict[str, tuple[float, float]]:
    """Side -> (a, b): of n subwords about a · n are drawn, seldom b · √n more."""
    blocks = len(self.files.start) - 1
    chosen = np.unique(np.linspace(0, blocks - 1, _BLOCKS).astype(np.int64))
    each = -(-_GROWTH_SAMPLE // len(chosen))
    ids = np.concatenate([self._some(block, each) for block in chosen])
    loaded_texts = self.load(ids)
    growth = {}
    for side, vocabulary in self.vocabularies.items():
      lines = [texts.line(loaded_texts, side, i) for i in range(len(ids))]
      stored = self.lengths[SIDES.index(side)][ids].astype(np.int64) - 1
      sampled = [
        len(self._draw(vocabulary, line, (ids[i], side, "bound")).id)
        for i, line in enumerate(lines)
      ]
      real = stored > 0
      n, m = stored[real], np.array(sampled)[real]
      if not len(n):
        growth[side] = 1.0, 0.0
        continue
      a = float(m.sum() / n.sum())
      growth[side] = a, float(max(0.0, ((m - a * n) / np.sqrt(n)).max()))
    return growth

  def _some(self, block: int, limit: int) -> np.ndarray:
    begin, end = self.files.start[block : block + 2]
    return np.unique(np.linspace(begin, end - 1, limit).astype(np.int64))

  @functools.cached_property
  def bounds(self) -> Lengths:
    """How long an example may be, EOS included."""
    return self._growth_bounds(1.0)

  @functools.cached_property
  def expected(self) -> Lengths:
    """How long examples are about, but for the longest: those have their bound.

    What the shapes of batches are chosen for.
    """
    bounds = self._growth_bounds(0.0)
    for expected, bound in zip(bounds[:2], self.bounds[:2]):
      expected[np.argmax(bound)] = bound.max()
    return bounds

  def _growth_bounds(self, far: float) -> Lengths:
    grown = {}
    for side, stored in zip(SIDES, self.lengths):
      a, b = self.growth.get(side, (1.0, 0.0))
      n = np.maximum(stored.astype(np.int64) - 1, 0)
      bound = np.ceil(a * n + far * b * np.sqrt(n)).astype(np.int32) + 1
      grown[side] = np.maximum(bound, stored)
    return self.lengths._replace(**grown)

  def sizes(self, window: Window, ids: np.ndarray) -> list[np.ndarray]:
    """How long examples of a window are to a plan: source_I, target_I.

    At least as they are stored, by which shapes know how many words they need.

    Args:
      window: that is planned.
      ids: their numbers, ascending.
    """
    rows = self._window(window, ids, keep=True)
    sizes = []
    for side, stored in zip(SIDES, self.lengths):
      size = stored[ids].astype(np.int64)
      if side in self.vocabularies:
        size = np.maximum(size, rows.sizes(f"{side}_id"))
      sizes.append(size)
    return sizes

  def subwords(self, window: Window, ids: np.ndarray) -> tuple[int, int]:
    """Of some examples of a window, drawn ones: of the source, of the target."""
    rows = self._window(window, ids)
    source, target = (
      int(
        rows.sizes(f"{side}_id").sum()
        if side in self.vocabularies
        else stored[ids].sum()
      )
      for side, stored in zip(SIDES, self.lengths)
    )
    return source, target

  def put(self, columns: Columns, window: Window, ids: np.ndarray) -> Columns:
    """Columns with drawn subwords in the place of those that are stored.

    Args:
      columns: of some examples.
      window: of the run.
      ids: their numbers, each once.
    """
    rows = self._window(window, ids)
    flat, start = dict(columns.flat), dict(columns.start)
    for side in self.vocabularies:
      features = ("id", "word", "unit", "parent_mid")
      names = {feature: f"{side}_{feature}" for feature in features}
      for feature in ("id", "word", "unit"):
        if names[feature] in flat:
          flat[names[feature]] = rows.flat[names[feature]]
      if names["parent_mid"] in flat:
        head = f"{side}_head"
        flat[names["parent_mid"]] = parent_mid(
          rows.flat[names["word"]],
          flat[head],
          pieces=rows.sizes(names["id"]),
          words=np.diff(start[head]),
        )
      for name in names.values():
        if name in start:  # one array for features of one size
          start[name] = rows.start[names["id"]]
    return Columns(flat, start)

  def _window(
    self, window: Window, ids: np.ndarray, keep: bool = False
  ) -> Rows:
    """Drawn subwords of some examples, and the words that these are of.

    Args:
      window: they are of.
      ids: their numbers.
      keep: they are the whole window, of which parts will be asked for.
    """
    with self._lock:
      if window in self._cache:
        window_ids, rows = self._cache[window]
        place = np.minimum(
          np.searchsorted(window_ids, ids), len(window_ids) - 1
        )
        if (window_ids[place] == ids).all():
          return rows if np.array_equal(window_ids, ids) else rows.take(place)
      rows = self._sample(window[0], ids)
      if keep:
        self._cache[window] = ids, rows
        while len(self._cache) > _CACHED_WINDOWS:
          self._cache.popitem(last=False)
      return rows

  def _sample(self, epoch: int, ids: np.ndarray) -> Rows:
    is_complete = len(ids) == len(self.files)
    loaded_texts = self.texts if is_complete else self.load(ids)
    flat, start = {}, {}
    for side in self.vocabularies:
      ends = f"{side}_word_end"
      id_, word, sizes = list[int](), list[int](), list[int]()
      unit: list[int] = []
      for i, index in enumerate(ids.tolist()):
        text = texts.line(loaded_texts, side, i)
        pieces = self.pieces(side, index, text, epoch)
        id_ += pieces.id
        id_.append(EOS)
        sizes.append(len(pieces.id) + 1)
        if ends in loaded_texts.flat:
          begin, end = loaded_texts.start[ends][i : i + 2]
          end_W = loaded_texts.flat[ends][begin:end].tolist()
          word += words_of_pieces(text, pieces.begin, pieces.end, end_W, end_W)
          word.append(NO_WORD)
        if self.linked:
          unit += alignments.units(text, pieces)
      starts = np.cumsum([0, *sizes])
      made = {"id": id_} | ({"word": word} if ends in loaded_texts.flat else {})
      made |= {"unit": unit} if self.linked else {}
      for feature, values in made.items():
        name = f"{side}_{feature}"
        flat[name], start[name] = np.array(values, np.int32), starts
    return Rows(flat, start)

  def pieces(self, side: str, index: int, text: str, epoch: int) -> Pieces:
    """The subwords of a sentence in an epoch, EOS not among them."""
    vocabulary = self.vocabularies[side]
    limit = int(self.bounds[SIDES.index(side)][index]) - 1
    for attempt in range(TRIES):
      sampled = self._draw(vocabulary, text, (index, side, epoch, attempt))
      if len(sampled.id) <= limit:
        return sampled
    return vocabulary.encode(text)

  def _draw(
    self, vocabulary: Vocabulary, text: str, what: tuple[int | str, ...]
  ) -> Pieces:
    seed_text = " ".join(map(str, (self.seed, *what))).encode()
    seed = int.from_bytes(
      hashlib.blake2b(seed_text, digest_size=4).digest(), "big"
    )
    return vocabulary.sample(text, seed, self.sampling.alpha)


def needed_features(sampling: Sampling, required: Iterable[str]) -> set[str]:
  """Features that are read to draw subwords, beside those that a system reads."""
  heads = {side: f"{side}_head" for side in sampling.sides}
  return {heads[s] for s in heads if f"{s}_parent_mid" in required}


def open_sampler(
  records: PreparedSplit,
  sampling: Sampling,
  *,
  seed: int,
  linked: bool = False,
) -> Sampler | None:
  """Opens what is drawn from; None where nothing is.

  Args:
    records: the opened split.
    sampling: config.data.sampling.
    seed: config.seed.
    linked: see `Sampler`.

  Raises:
    InputError: a vocabulary has nothing to draw, or text and trees of the folder
      cannot be read.
  """
  if not sampling.sides or not len(records):
    return None
  directory, manifest = records.directory, records.manifest
  sides: list[str] = [side for side in SIDES if side in sampling.sides]
  vocabularies = {
    side: manifests.vocabulary(directory, manifest, side) for side in sides
  }
  for side, vocabulary in vocabularies.items():
    if not vocabulary.can_sample:
      raise InputError(
        f"config.data.sampling.sides={sampling.sides}: {vocabulary.path} has one"
        f" way to write a {side} sentence, so nothing can be drawn. Leave the"
        " side out, or prepare with config.prepare.vocabulary.type='bpe' or"
        " 'unigram'."
      )
  features = texts.features(records, sides)
  return Sampler(
    sampling, seed, vocabularies, records.records, features, linked
  )
