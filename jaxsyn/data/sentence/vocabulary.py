"""SentencePiece: raw text to subword ids with their character spans, and back.

Text enters and leaves untouched: normalisation and blanks are SentencePiece's
business alone, so that detokenisation is exact. The ids of the special symbols
are those of `jaxsyn.data.schema` in every model.

Vocabularies of whole words (type "word") hold what stands between two blanks,
punctuation that is written without one included; give tokenised text to have
words as a tokeniser cuts them. What they lack is UNK, one for each word, and
UNKNOWN in a translation.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import io
import itertools
import random
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

import sentencepiece

from jaxsyn.data.schema import BOS, EOS, PAD, SPECIAL, UNK
from jaxsyn.data.sentence import segmentation
from jaxsyn.data.sentence.segmentation import BLANK
from jaxsyn.errors import InputError
from jaxsyn.options import option
from jaxsyn.options.bounds import MAX_COUNT, Range
from jaxsyn.storage import files

# How an unknown word is written: set off by blanks, SentencePiece's own sign. To
# BLEU it is one token, which normalised text cannot hold.
UNKNOWN = "⁇"


@dataclasses.dataclass(frozen=True)
class Subwords:
  """Subword vocabulary, trained by SentencePiece."""

  # Four pieces are special symbols.
  size: Annotated[int, Range(5, 2**24)] = option(
    8000,
    "Vocabulary size, including special symbols.",
    unit="pieces",
    common=True,
  )
  type: Literal["bpe", "unigram", "word", "char"] = option(
    "bpe",
    'Type of the SentencePiece model. "word" keeps the `size` most frequent '
    "strings between blanks; give it tokenized files (Moses with "
    "-no-escape, KyTea) so that words have no punctuation. Translations are "
    'then tokenized too, and other words are unknown, "⁇" in translations.',
  )
  joint: bool = option(True, "Whether both sides share one vocabulary.")
  character_coverage: Annotated[float, Range(0.98, 1)] = option(
    1.0,
    "Share of characters that the vocabulary covers; 0.9995 for Chinese or "
    'Japanese. Not used by "word".',
  )
  normalisation: Literal[
    "nmt_nfkc", "nfkc", "nmt_nfkc_cf", "nfkc_cf", "identity"
  ] = option("nmt_nfkc", "Name of SentencePiece's normalization rule.")
  sample: Annotated[int, Range(1, MAX_COUNT)] = option(
    1_000_000,
    "Approximate maximum number of training pairs that the vocabulary is "
    "trained on, selected by their hash.",
    unit="pairs",
  )
  like: str = option(
    "",
    "Dataset directory whose vocabulary is reused, for corpora that are "
    "trained on together (config.data.mixture). The options above except "
    "`joint` then have no effect.",
  )


class Pieces(NamedTuple):
  """Subwords of a sentence, EOS not among them.

  Attributes:
    id: subword ids.
    begin: offset in the sentence of each subword's first character.
    end: offset after its last character. Spans follow each other; a subword
      of a character that was spelt out (the "1" of "½") may have an empty one.
  """

  id: list[int]
  begin: list[int]
  end: list[int]


class Vocabulary:
  """A SentencePiece model.

  Attributes:
    path: the model's file.
    size: number of ids, special symbols included.
    whole_words: each piece is all that stands between two blanks.
  """

  def __init__(self, path: str | Path):
    """Loads a model.

    Raises:
      InputError: no file, no SentencePiece model, or other special symbols.
    """
    self.path = files.path_of(path)
    try:
      self._model = files.read_bytes(path)
      self._processor = sentencepiece.SentencePieceProcessor()
      self._processor.load_from_serialized_proto(self._model)
    except OSError as error:
      raise InputError(
        f"{path}: cannot read the vocabulary ({error.strerror}); run"
        " jaxsyn prepare, or give the right folder."
      ) from error
    except RuntimeError as error:
      raise InputError(
        f"{path}: not a (whole) SentencePiece model; make it again with"
        " jaxsyn prepare."
      ) from error
    self.size = self._processor.vocab_size()
    p = self._processor
    special_ids = (p.pad_id(), p.unk_id(), p.bos_id(), p.eos_id())
    if special_ids != (PAD, UNK, BOS, EOS):
      raise InputError(
        f"{path}: the ids of pad, unk, bos, eos are {special_ids}, but must be"
        f" {(PAD, UNK, BOS, EOS)}; train it with --pad_id={PAD} --unk_id={UNK}"
        f" --bos_id={BOS} --eos_id={EOS}."
      )
    # All other models have letters as pieces, which begin no word.
    self.whole_words = all(
      p.id_to_piece(i).startswith(BLANK)
      for i in reversed(range(len(SPECIAL), self.size))
    )

  @functools.cached_property
  def sha256(self) -> str:
    """Hash of the model's file, as manifests and checkpoints name it."""
    return hashlib.sha256(self._model).hexdigest()

  def encode(self, text: str) -> Pieces:
    """The subwords of a sentence, with offsets in the untouched `text`."""
    if self.whole_words:
      return self._words(text)
    mapping = self._processor.encode(text, return_type="offset_mapping")
    offsets = mapping["offsets"]
    return Pieces(
      mapping["ids"], [b for b, _ in offsets], [e for _, e in offsets]
    )

  def ids(self, text: str) -> list[int]:
    """The same subwords' ids alone, in half the time."""
    if self.whole_words:
      return self._words(text).id
    return self._processor.encode(text)

  def sample(self, text: str, seed: int, alpha: float) -> Pieces:
    """Subwords drawn at random; as `encode` otherwise, for models that can.

    Args:
      text: the sentence.
      seed: what is drawn follows from it, the text and the model alone.
      alpha: of config.data.sampling; 0, of BPE: those of `encode`.
    """
    assert self._cut, "can_sample says it"
    normal, offset = self._processor.normalize(text, with_offsets=True)
    ends = self._cut(normal, self._scores, alpha, random.Random(seed))
    pieces = Pieces([], [], [])
    for i, j in zip([0, *ends], ends):
      piece = self._processor.piece_to_id(normal[i:j])
      if piece == UNK and pieces.id and pieces.id[-1] == UNK:
        pieces.end[-1] = offset[j]  # SentencePiece makes neighbours one
        continue
      pieces.id.append(piece)
      pieces.begin.append(offset[i])
      pieces.end.append(offset[j])
    return pieces

  @property
  def can_sample(self) -> bool:
    """Whether a sentence can have other subwords than those of `encode`."""
    return self._cut is not None

  @functools.cached_property
  def _cut(self) -> segmentation.Cut | None:
    from sentencepiece import sentencepiece_model_pb2

    proto: Any = sentencepiece_model_pb2  # whose classes are made when loaded
    model = proto.ModelProto.FromString(self._model)
    return {
      proto.TrainerSpec.BPE: segmentation.by_merges,
      proto.TrainerSpec.UNIGRAM: segmentation.by_lattice,
    }.get(model.trainer_spec.model_type)

  @functools.cached_property
  def _scores(self) -> dict[str, float]:
    p = self._processor
    ids = range(len(SPECIAL), self.size)
    return {p.id_to_piece(i): p.get_score(i) for i in ids}

  def _words(self, text: str) -> Pieces:
    """As `encode`, of whole words.

    SentencePiece's own ids, but that it makes neighbouring unknown words one
    UNK, which would lose their number and their places in the tree.
    """
    normal, offset = self._processor.normalize(text, with_offsets=True)
    starts = [i for i, c in enumerate(normal) if c == BLANK]
    spans = list(itertools.pairwise([*starts, len(normal)]))
    return Pieces(
      [self._processor.piece_to_id(normal[i:j]) for i, j in spans],
      [offset[i] for i, _ in spans],
      [offset[j] for _, j in spans],
    )

  def written(self, text: str) -> str:
    """The text as subwords write it: normalised, "▁" for its blanks."""
    return self._processor.normalize(text)

  def pieces(self, ids: Iterable[int]) -> list[str]:
    """Subwords as they are written, "▁" for a blank before them.

    A number that is no id of this vocabulary, as of a tag, is "".
    """
    write = self._processor.id_to_piece
    return [write(int(i)) if 0 <= i < self.size else "" for i in ids]

  def decode(self, ids: Iterable[int]) -> str:
    """The text of subword ids up to the first EOS.

    Padding, BOS and numbers that are no id of this vocabulary are passed over.
    Of whole words an unknown one is UNKNOWN.
    """
    decoded_ids = []
    for id_ in map(int, ids):
      if id_ == EOS:
        break
      if id_ not in (PAD, BOS) and 0 <= id_ < self.size:
        decoded_ids.append(id_)
    if self.whole_words:
      pieces = map(self._processor.id_to_piece, decoded_ids)
      return " ".join(
        UNKNOWN if id_ == UNK else piece.removeprefix(BLANK)
        for id_, piece in zip(decoded_ids, pieces)
      )
    return self._processor.decode(decoded_ids)


def train(
  lines: Iterable[str], path: str | Path, options: Subwords
) -> Vocabulary:
  """Trains a SentencePiece model and writes it, whole or not at all.

  The same lines in the same order give the same file. Where the text is too
  small for `size` pieces the vocabulary is as large as it can be: compare the
  `size` of what is returned. Of "word" the most frequent words are kept; of
  those equally frequent the first by code points.

  Args:
    lines: raw sentences of one side, or of both for a joint vocabulary.
    path: file to write.
    options: `joint` is not looked at; nor is `character_coverage` of "word",
      where frequency alone decides.

  Raises:
    InputError: no text, or a size that cannot hold the characters.
  """
  lines = [line for line in lines if line.strip()]
  if not lines:
    raise InputError("no text to train a vocabulary on: all lines are empty.")
  model = _train(lines, options)
  with files.publish(path) as file:
    file.write(model)
  return Vocabulary(path)


def _train(lines: list[str], options: Subwords) -> bytes:
  """A trained model, serialised."""
  model = io.BytesIO()
  try:
    sentencepiece.SentencePieceTrainer.train(
      sentence_iterator=iter(lines),
      model_writer=model,
      model_type=options.type,
      vocab_size=options.size,
      # SentencePiece would leave out frequent words with a rare character.
      character_coverage=(
        1.0 if options.type == "word" else options.character_coverage
      ),
      normalization_rule_name=options.normalisation,
      hard_vocab_limit=False,  # fewer pieces where the text has no more
      pad_id=PAD,
      unk_id=UNK,
      bos_id=BOS,
      eos_id=EOS,
      pad_piece=SPECIAL[PAD],
      unk_piece=SPECIAL[UNK],
      bos_piece=SPECIAL[BOS],
      eos_piece=SPECIAL[EOS],
      num_threads=1,  # sums in one order: the same model every time
      max_sentence_length=1 << 24,  # bytes; longer lines would be left out
      minloglevel=2,
    )
  except RuntimeError as error:
    if short := re.search(r"required_chars\. \d+ vs (\d+)", str(error)):
      raise InputError(
        f"a vocabulary of {options.size} pieces cannot hold the text's characters;"
        f" it needs at least {short[1]}, or a smaller character_coverage."
      ) from error
    raise InputError(
      f"SentencePiece could not train a vocabulary: {error}"
    ) from error
  return model.getvalue()
