"""Subwords of training pairs, drawn anew in every epoch: config.data.sampling.

What a sentence is cut into follows from (seed, epoch, its number, its side)
alone, so nothing depends on hosts, on the order of batches or on where a run was
resumed. Words and trees stay; which word a subword is of, and where the parent's
subwords are, is found again by character offsets, as when data is prepared. For
that texts and ends of words are kept beside the columns (`column_cache`); they
are made once, from the text and the trees of the prepared folder.

Batches are planned from lengths, before anything is drawn: with a bound of each
sentence that some 98 of 100 draws keep to. One that does not is drawn again,
and after `TRIES` the subwords are those without sampling.

Source: Provilkov et al. 2020 (arXiv:1910.13267), BPE-dropout; Kudo 2018
(arXiv:1804.10959), subword regularisation.

Before this file: `column_cache`, `held`. After it: `split`.

Letters: I example; U block; X byte of a sentence.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import itertools
from collections.abc import Iterable, Iterator, Mapping

import numpy as np

from jaxsyn.data.loader import column_cache
from jaxsyn.data.loader.columns import Batch
from jaxsyn.data.options import Sampling
from jaxsyn.data.schema import EOS, NO_WORD, PAD, SIDES
from jaxsyn.data.sentence.align import words_of_pieces
from jaxsyn.data.sentence.tree import parent_mid
from jaxsyn.data.sentence.vocabulary import Pieces, Vocabulary
from jaxsyn.data.store import integrity, manifests
from jaxsyn.data.store.prepared import ColumnFiles, Lengths, PreparedSplit
from jaxsyn.data.store.rows import Rows
from jaxsyn.errors import InputError

TRIES = 8
RECIPE = 1  # raise it when the same text gives other columns
_LOOKED_AT = 2048  # sentences that are drawn to know how long others will be
_BLOCKS = 8  # they are of
_KEPT = 0.98  # of all draws are within the bound


@dataclasses.dataclass(frozen=True)
class Sampler:
  """Draws the subwords of a split.

  Attributes:
    sampling: config.data.sampling.
    seed: config.seed.
    vocabularies: of the sides that are drawn.
    files: texts, and ends of words where there are trees.
    lengths: of all examples, as they are stored.
  """

  sampling: Sampling
  seed: int
  vocabularies: Mapping[str, Vocabulary]
  files: ColumnFiles
  lengths: Lengths

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
    features = self._features
    cut = np.searchsorted(number, self.files.start)
    own_U = np.flatnonzero(np.diff(cut))
    parts = [
      rows.take(number[cut[u] : cut[u + 1]] - self.files.start[u])
      for u, rows in zip(own_U, self.files.read(own_U.tolist(), features))
    ]
    return Rows.joined([Rows.of([], features), *parts])

  @property
  def _features(self) -> tuple[str, ...]:
    there = self.files.blocks[0][1] if self.files.blocks else ()
    names = (f"{s}_{own}" for s in self.vocabularies for own in _SPELT)
    return tuple(name for name in names if name in there)

  @functools.cached_property
  def growth(self) -> dict[str, tuple[float, float]]:
    """Side -> (a, b): of n subwords a draw has about a · n, seldom b · √n more."""
    blocks = len(self.files.start) - 1
    chosen = np.unique(np.linspace(0, blocks - 1, _BLOCKS).astype(np.int64))
    each = -(-_LOOKED_AT // len(chosen))
    number = np.concatenate([self._some(block, each) for block in chosen])
    texts = self.hold(number)
    found = {}
    for side, vocabulary in self.vocabularies.items():
      lines = [_text(texts, side, i) for i in range(len(number))]
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
      found[side] = a, float(np.quantile((m - a * n) / np.sqrt(n), _KEPT))
    return found

  def _some(self, block: int, most: int) -> np.ndarray:
    begin, end = self.files.start[block : block + 2]
    return np.unique(np.linspace(begin, end - 1, most).astype(np.int64))

  @functools.cached_property
  def bounds(self) -> Lengths:
    """How long an example may be, EOS included; what batches are planned by."""
    bounds = {}
    for side, (a, b) in self.growth.items():
      stored = self.lengths[SIDES.index(side)].astype(np.int64)
      n = np.maximum(stored - 1, 0)
      most = np.ceil(a * n + max(b, 0.0) * np.sqrt(n)).astype(np.int64) + 1
      bounds[side] = np.maximum(most, stored).astype(np.int32)
    return self.lengths._replace(**bounds)

  def subwords(self, ids: np.ndarray) -> tuple[int, int]:
    """About how many some examples have: of the source, of the target.

    Expected ones, for rows of other hosts are not drawn here.
    """
    source, target = (
      round(float((self._growth_of(side) * (own[ids] - 1.0) + 1).sum()))
      for side, own in zip(SIDES, self.lengths)
    )
    return source, target

  def _growth_of(self, side: str) -> float:
    return self.growth.get(side, (1.0, 0.0))[0]

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
    options = self.sampling
    return vocabulary.sample(
      text, seed, alpha=options.alpha, nbest=options.nbest
    )

  def put(
    self,
    batch: Batch,
    ids: np.ndarray,
    *,
    epoch: int,
    texts: Rows,
    place: np.ndarray,
  ) -> None:
    """Puts drawn subwords in the place of those of a batch.

    Args:
      batch: of the loader; what is of subwords is replaced.
      ids: numbers of the examples in its first rows.
      epoch: of the run.
      texts: of `hold`.
      place: where in them the examples are.
    """
    for side in self.vocabularies:
      axis = "S" if side == "source" else "T"
      name = {
        own: f"{side}_{own}_B{axis}" for own in ("id", "word", "parent_mid")
      }
      ends = f"{side}_word_end"
      id_BS = np.full_like(batch[name["id"]], PAD)
      word_BS = np.full(id_BS.shape, NO_WORD, np.int32)
      for row, (number, i) in enumerate(zip(ids.tolist(), place.tolist())):
        text = _text(texts, side, i)
        found = self.pieces(side, number, text, epoch)
        size = len(found.id)
        id_BS[row, :size] = found.id
        id_BS[row, size] = EOS
        if name["word"] in batch:
          start = texts.start[ends]
          end_W = texts.flat[ends][start[i] : start[i + 1]].tolist()
          word_BS[row, :size] = words_of_pieces(
            text, found.begin, found.end, end_W, end_W
          )
      batch[name["id"]] = id_BS
      if name["word"] in batch:
        batch[name["word"]] = word_BS
      if name["parent_mid"] in batch:
        words = np.diff(texts.start[ends])[place]
        head_BW = batch[f"{side}_head_BW"]
        batch[name["parent_mid"]] = _middles(id_BS, word_BS, head_BW, words)


def _middles(
  id_BS: np.ndarray, word_BS: np.ndarray, head_BW: np.ndarray, words: np.ndarray
) -> np.ndarray:
  """parent_mid_BS of a batch; `words` of its first rows, the others are padding."""
  rows = len(words)
  real_BS = id_BS[:rows] != PAD
  real_BW = np.arange(head_BW.shape[1]) < words[:, None]
  middle_BS = np.zeros(id_BS.shape, np.float32)
  if rows:
    middle_BS[:rows][real_BS] = parent_mid(
      word_BS[:rows][real_BS],
      head_BW[:rows][real_BW],
      pieces=real_BS.sum(1),
      words=words,
    )
  return middle_BS


def _text(texts: Rows, side: str, i: int) -> str:
  start = texts.start[f"{side}_utf8"]
  return texts.flat[f"{side}_utf8"][start[i] : start[i + 1]].tobytes().decode()


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
) -> Sampler | None:
  """Opens what is drawn from; None where nothing is.

  Args:
    records: the opened split.
    sampling: config.data.sampling.
    seed: config.seed.
    memory_gib: see `column_cache.open_columns`.

  Raises:
    InputError: a vocabulary has nothing to draw, or text and trees of the folder
      cannot be read.
  """
  if not sampling.sides or not len(records):
    return None
  directory, manifest = records.directory, records.manifest
  sides = [side for side in SIDES if side in sampling.sides]
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
  features = tuple(
    f"{side}_{own}"
    for side in sides
    for own in _SPELT
    if own == "utf8" or side in manifest["sides"]
  )
  files, _ = column_cache.open_columns(
    lambda _: _spelt(records, sides),
    features,
    column_cache.folder_of(records, features, ["texts", RECIPE]),
    memory_gib=memory_gib,
  )
  lengths = records.columns.lengths
  return Sampler(sampling, seed, vocabularies, files, lengths)


_SPELT = ("utf8", "word_end")


def _spelt(records: PreparedSplit, sides: Iterable[str]) -> Iterator[Rows]:
  """Texts and ends of words of all examples, and what tells their lengths."""
  sentences = {
    side: integrity.sentences(
      records.directory, records.manifest, records.split, side
    )
    for side in sides
  }
  every = range(len(records.columns.blocks))
  for rows in records.columns.read(every, [f"{side}_id" for side in SIDES]):
    flat, start = dict(rows.flat), dict(rows.start)

    def put(name: str, values: np.ndarray, size: Iterable[int]) -> None:
      flat[name], start[name] = values, np.cumsum([0, *size])  # noqa: B023

    for side, own in sentences.items():
      some = [*itertools.islice(own, len(rows))]
      texts = [one if isinstance(one, str) else one.text for one in some]
      data = [text.encode() for text in texts]
      joined = np.frombuffer(b"".join(data), np.uint8)
      put(f"{side}_utf8", joined, map(len, data))
      ends = [one.end_W for one in some if not isinstance(one, str)]
      if ends:
        joined = np.fromiter(itertools.chain.from_iterable(ends), np.int32)
        put(f"{side}_word_end", joined, map(len, ends))
    yield Rows(flat, start)
