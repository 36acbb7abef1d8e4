"""Subwords of training pairs, drawn anew in every epoch: config.data.sampling.

What a sentence is cut into follows from (seed, epoch, its number, its side)
alone, so nothing depends on hosts, on the order of batches or on where a run was
resumed. Words and trees stay; which word a subword is of, and where the parent's
subwords are, is found again by character offsets, as when data is prepared. For
that texts and ends of words are kept beside the columns (`texts`).

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
from jaxsyn.data.store.prepared import ColumnFiles, PreparedSplit
from jaxsyn.data.store.rows import Rows
from jaxsyn.errors import InputError

TRIES = 8
_LOOKED_AT = 2048  # sentences that are drawn to know how long others will be
_BLOCKS = 8  # they are of
_KEPT = 3  # windows: where shapes are looked for, two to come are planned too

Window = tuple[int, int]  # an epoch, and which of its windows


@dataclasses.dataclass(frozen=True)
class Sampler:
  """Draws the subwords of a split.

  Attributes:
    sampling: config.data.sampling.
    seed: config.seed.
    vocabularies: of the sides that are drawn.
    files: texts, and ends of words where there are trees.
    lengths: of all examples, as they are stored.
    linked: whether it is asked which words between blanks subwords are of.
  """

  sampling: Sampling
  seed: int
  vocabularies: Mapping[str, Vocabulary]
  files: ColumnFiles
  lengths: Lengths
  linked: bool = False
  # Windows that were drawn: numbers of examples, their subwords and words.
  _kept: collections.OrderedDict[Window, tuple[np.ndarray, Rows]] = (
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

  @functools.cached_property
  def texts(self) -> Rows:
    """Of all examples."""
    return self.hold(np.arange(len(self.files)))

  @property
  def told(self) -> str:
    """What is drawn, for the reader."""
    sides = (f"{side} x {a:.3g}" for side, (a, _) in self.growth.items())
    return (
      f"subwords drawn anew in every epoch, of the {', of the '.join(sides)}"
    )

  def hold(self, number: np.ndarray) -> Rows:
    """Texts and words of some examples: numbers, ascending, each once."""
    features = texts.features(self.files)
    cut = np.searchsorted(number, self.files.start)
    own_U = np.flatnonzero(np.diff(cut))
    parts = [
      rows.take(number[cut[u] : cut[u + 1]] - self.files.start[u])
      for u, rows in zip(own_U, self.files.read(own_U.tolist(), features))
    ]
    return Rows.joined([Rows.of([], features), *parts])

  @functools.cached_property
  def growth(self) -> dict[str, tuple[float, float]]:
    """Side -> (a, b): of n subwords about a · n are drawn, seldom b · √n more."""
    blocks = len(self.files.start) - 1
    chosen = np.unique(np.linspace(0, blocks - 1, _BLOCKS).astype(np.int64))
    each = -(-_LOOKED_AT // len(chosen))
    number = np.concatenate([self._some(block, each) for block in chosen])
    held = self.hold(number)
    found = {}
    for side, vocabulary in self.vocabularies.items():
      lines = [texts.line(held, side, i) for i in range(len(number))]
      stored = self.lengths[SIDES.index(side)][number].astype(np.int64) - 1
      drawn = [
        len(self._draw(vocabulary, line, (number[i], side, "bound")).id)
        for i, line in enumerate(lines)
      ]
      real = stored > 0
      n, m = stored[real], np.array(drawn)[real]
      if not len(n):
        found[side] = 1.0, 0.0
        continue
      a = float(m.sum() / n.sum())
      found[side] = a, float(max(0.0, ((m - a * n) / np.sqrt(n)).max()))
    return found

  def _some(self, block: int, most: int) -> np.ndarray:
    begin, end = self.files.start[block : block + 2]
    return np.unique(np.linspace(begin, end - 1, most).astype(np.int64))

  @functools.cached_property
  def bounds(self) -> Lengths:
    """How long an example may be, EOS included."""
    return self._grown(1.0)

  @functools.cached_property
  def expected(self) -> Lengths:
    """How long examples are about, but for the longest: those have their bound.

    What the shapes of batches are chosen for.
    """
    found = self._grown(0.0)
    for own, most in zip(found[:2], self.bounds[:2]):
      own[np.argmax(most)] = most.max()
    return found

  def _grown(self, far: float) -> Lengths:
    grown = {}
    for side, stored in zip(SIDES, self.lengths):
      a, b = self.growth.get(side, (1.0, 0.0))
      n = np.maximum(stored.astype(np.int64) - 1, 0)
      most = np.ceil(a * n + far * b * np.sqrt(n)).astype(np.int32) + 1
      grown[side] = np.maximum(most, stored)
    return self.lengths._replace(**grown)

  def sizes(self, window: Window, ids: np.ndarray) -> list[np.ndarray]:
    """How long examples of a window are to a plan: source_I, target_I.

    At least as they are stored, by which shapes know how many words they need.

    Args:
      window: that is planned.
      ids: their numbers, ascending.
    """
    rows = self._window(window, ids, keep=True)
    found = []
    for side, stored in zip(SIDES, self.lengths):
      size = stored[ids].astype(np.int64)
      if side in self.vocabularies:
        size = np.maximum(size, rows.sizes(f"{side}_id"))
      found.append(size)
    return found

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
      names = {own: f"{side}_{own}" for own in features}
      for own in ("id", "word", "unit"):
        if names[own] in flat:
          flat[names[own]] = rows.flat[names[own]]
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
      if window in self._kept:
        number, rows = self._kept[window]
        place = np.minimum(np.searchsorted(number, ids), len(number) - 1)
        if (number[place] == ids).all():
          return rows if np.array_equal(number, ids) else rows.take(place)
      rows = self._drawn(window[0], ids)
      if keep:
        self._kept[window] = ids, rows
        while len(self._kept) > _KEPT:
          self._kept.popitem(last=False)
      return rows

  def _drawn(self, epoch: int, ids: np.ndarray) -> Rows:
    whole = len(ids) == len(self.files)
    held = self.texts if whole else self.hold(ids)
    flat, start = {}, {}
    for side in self.vocabularies:
      ends = f"{side}_word_end"
      id_, word, sizes = list[int](), list[int](), list[int]()
      unit: list[int] = []
      for i, number in enumerate(ids.tolist()):
        text = texts.line(held, side, i)
        found = self.pieces(side, number, text, epoch)
        id_ += found.id
        id_.append(EOS)
        sizes.append(len(found.id) + 1)
        if ends in held.flat:
          begin, end = held.start[ends][i : i + 2]
          end_W = held.flat[ends][begin:end].tolist()
          word += words_of_pieces(text, found.begin, found.end, end_W, end_W)
          word.append(NO_WORD)
        if self.linked:
          unit += alignments.units(text, found)
      starts = np.cumsum([0, *sizes])
      made = {"id": id_} | ({"word": word} if ends in held.flat else {})
      made |= {"unit": unit} if self.linked else {}
      for own, values in made.items():
        name = f"{side}_{own}"
        flat[name], start[name] = np.array(values, np.int32), starts
    return Rows(flat, start)

  def pieces(self, side: str, number: int, text: str, epoch: int) -> Pieces:
    """The subwords of a sentence in an epoch, EOS not among them."""
    vocabulary = self.vocabularies[side]
    most = int(self.bounds[SIDES.index(side)][number]) - 1
    for attempt in range(TRIES):
      found = self._draw(vocabulary, text, (number, side, epoch, attempt))
      if len(found.id) <= most:
        return found
    return vocabulary.encode(text)

  def _draw(
    self, vocabulary: Vocabulary, text: str, what: tuple[int | str, ...]
  ) -> Pieces:
    page = " ".join(map(str, (self.seed, *what))).encode()
    seed = int.from_bytes(hashlib.blake2b(page, digest_size=4).digest(), "big")
    return vocabulary.sample(text, seed, self.sampling.alpha)


def needed(sampling: Sampling, reads: Iterable[str]) -> set[str]:
  """Features that are read to draw subwords, beside those that a system reads."""
  heads = {side: f"{side}_head" for side in sampling.sides}
  return {heads[s] for s in heads if f"{s}_parent_mid" in reads}


def open_sampler(
  records: PreparedSplit,
  sampling: Sampling,
  *,
  seed: int,
  memory_gib: float,
  linked: bool = False,
) -> Sampler | None:
  """Opens what is drawn from; None where nothing is.

  Args:
    records: the opened split.
    sampling: config.data.sampling.
    seed: config.seed.
    memory_gib: see `column_cache.open_columns`.
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
  files = texts.opened(records, sides, memory_gib=memory_gib)
  lengths = records.columns.lengths
  return Sampler(sampling, seed, vocabularies, files, lengths, linked)
