"""Converts raw text to subword ids and back with subword vocabularies.

Only SentencePiece normalizes text and handles spaces, so detokenization is exact.
Vocabularies of type "word" contain strings between spaces, which include adjacent
punctuation; tokenize the text beforehand to separate it. Each unknown word is one UNK,
and UNKNOWN in a translation.
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
from jaxsyn.options.bounds import Range
from jaxsyn.storage import files

# Text of an unknown word: SentencePiece's symbol, between spaces. BLEU counts it as one
# token, which normalized text cannot contain.
UNKNOWN = "⁇"


@dataclasses.dataclass(frozen=True)
class Subwords:
  """Options of the subword vocabulary, which SentencePiece trains."""

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
    'space-separated strings, and treats all other words as unknown ("⁇" in '
    "translations). Use tokenized files (Moses with -no-escape, KyTea), so "
    "that words do not include punctuation; translations are then tokenized "
    "too.",
  )
  joint: bool = option(True, "Whether both sides share one vocabulary.")
  character_coverage: Annotated[float, Range(0.98, 1)] = option(
    1.0,
    "Fraction of characters that the vocabulary covers; use 0.9995 for Chinese "
    'or Japanese. Not used by "word".',
  )
  normalisation: Literal[
    "nmt_nfkc", "nfkc", "nmt_nfkc_cf", "nfkc_cf", "identity"
  ] = option("nmt_nfkc", "Name of SentencePiece's normalization rule.")
  like: str = option(
    "",
    "Dataset directory whose vocabulary is reused, for training on several "
    "corpora (config.data.mixture). All other options of this section except "
    "`joint` then have no effect.",
  )


class Pieces(NamedTuple):
  """Subwords of a sentence without EOS, with ids and character offsets.

  The offsets are those of each subword's first character and after its last one.
  Spans are consecutive; a subword of a character that normalization spells out (the
  "1" of "½") may have an empty one.
  """

  id: list[int]
  begin: list[int]
  end: list[int]


class Vocabulary:
  """Vocabulary of subwords or words, from a SentencePiece model.

  Attributes:
    path: Model file.
    size: Number of ids, including special symbols.
    whole_words: Whether each piece is a string between two spaces.
  """

  def __init__(self, path: str | Path):
    """Loads a vocabulary from a SentencePiece model file.

    Raises:
      InputError: The file is missing, not a SentencePiece model, or has other
        special symbols.
    """
    self.path = files.path_of(path)
    self._processor = p = sentencepiece.SentencePieceProcessor()
    try:
      self._model = files.read_bytes(path)
      p.load_from_serialized_proto(self._model)
    except OSError as error:
      raise InputError(
        f"{path}: cannot read the vocabulary ({error.strerror}); run"
        " jaxsyn prepare, or give the right directory."
      ) from error
    except RuntimeError as error:
      raise InputError(
        f"{path}: not a (complete) SentencePiece model; make it again with"
        " jaxsyn prepare."
      ) from error
    self.size = p.vocab_size()
    special_ids = (p.pad_id(), p.unk_id(), p.bos_id(), p.eos_id())
    if special_ids != (PAD, UNK, BOS, EOS):
      raise InputError(
        f"{path}: the ids of pad, unk, bos, eos are {special_ids}, but must be"
        f" {(PAD, UNK, BOS, EOS)}; train it with --pad_id={PAD} --unk_id={UNK}"
        f" --bos_id={BOS} --eos_id={EOS}."
      )
    # All other model types have pieces without a space, such as letters.
    self.whole_words = all(
      p.id_to_piece(i).startswith(BLANK)
      for i in reversed(range(len(SPECIAL), self.size))
    )

  @functools.cached_property
  def sha256(self) -> str:
    """SHA-256 of the model file, which manifests and checkpoints record."""
    return hashlib.sha256(self._model).hexdigest()

  def encode(self, text: str) -> Pieces:
    """Returns the subwords of a sentence, with offsets in the original text."""
    if self.whole_words:
      return self._encode_words(text)
    mapping = self._processor.encode(text, return_type="offset_mapping")
    offsets = mapping["offsets"]
    return Pieces(
      mapping["ids"], [b for b, _ in offsets], [e for _, e in offsets]
    )

  def ids(self, text: str) -> list[int]:
    """Returns the subword ids of a sentence; faster than `encode`."""
    if self.whole_words:
      return self._encode_words(text).id
    return self._processor.encode(text)

  def sample(self, text: str, seed: int, alpha: float) -> Pieces:
    """Samples a random segmentation of a sentence; requires `can_sample`.

    Args:
      text: The sentence.
      seed: Random seed; the result depends on it, the text and the model only.
      alpha: Strength of sampling (config.data.sampling); with BPE, 0 gives the
        subwords of `encode`.
    """
    assert self._segment, "requires can_sample"
    normal, offset = self._processor.normalize(text, with_offsets=True)
    ends = self._segment(normal, self._scores, alpha, random.Random(seed))
    pieces = Pieces([], [], [])
    for i, j in zip([0, *ends], ends):
      piece = self._ids.get(normal[i:j], UNK)
      if piece == UNK and pieces.id and pieces.id[-1] == UNK:
        pieces.end[-1] = offset[j]  # as SentencePiece joins them
        continue
      pieces.id.append(piece)
      pieces.begin.append(offset[i])
      pieces.end.append(offset[j])
    return pieces

  @property
  def can_sample(self) -> bool:
    """Whether this type of model can sample subwords."""
    return self._segment is not None

  @functools.cached_property
  def _segment(self) -> segmentation.Segment | None:
    from sentencepiece import sentencepiece_model_pb2

    proto: Any = sentencepiece_model_pb2  # its classes are created at import
    model = proto.ModelProto.FromString(self._model)
    return {
      proto.TrainerSpec.BPE: segmentation.by_merges,
      proto.TrainerSpec.UNIGRAM: segmentation.by_lattice,
    }.get(model.trainer_spec.model_type)

  @functools.cached_property
  def _ids(self) -> dict[str, int]:
    """Ids of all subwords except special symbols, by subword text."""
    ids = range(len(SPECIAL), self.size)
    return {self._processor.id_to_piece(i): i for i in ids}

  @functools.cached_property
  def _scores(self) -> dict[str, float]:
    score = self._processor.get_score
    return {piece: score(i) for piece, i in self._ids.items()}

  def _encode_words(self, text: str) -> Pieces:
    """Encodes the words of a sentence as pieces of a word vocabulary.

    SentencePiece joins adjacent unknown words into one UNK, which would lose their
    number and their positions in the tree.
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
    """Returns a text as normalized by SentencePiece, with "▁" for spaces."""
    return self._processor.normalize(text)

  def pieces(self, ids: Iterable[int]) -> list[str]:
    """Returns the text of each subword id, with "▁" for a preceding space.

    A number that is not an id of this vocabulary, such as a tag, gives "".
    """
    write = self._processor.id_to_piece
    return [write(int(i)) if 0 <= i < self.size else "" for i in ids]

  def decode(self, ids: Iterable[int]) -> str:
    """Returns the text of the subword ids before the first EOS.

    Padding, BOS and numbers that are not ids of this vocabulary are skipped. An
    unknown word of a vocabulary of whole words is UNKNOWN.
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
  """Trains a SentencePiece vocabulary and writes its file atomically.

  The same lines in the same order give the same file. If the text is too small for
  `size` pieces, the vocabulary is as large as possible: compare the `size` of the
  result. Type "word" contains the most frequent words; equally frequent words are
  sorted by code points.

  Args:
    lines: Raw sentences of one side, or of both for a joint vocabulary.
    path: File to write.
    options: Options of the vocabulary; `joint` is ignored.

  Raises:
    InputError: There is no text, or the size is too small for its characters.
  """
  lines = [line for line in lines if line.strip()]
  if not lines:
    raise InputError("no text to train a vocabulary on: all lines are empty.")
  model = io.BytesIO()
  try:
    sentencepiece.SentencePieceTrainer.train(
      sentence_iterator=iter(lines),
      model_writer=model,
      model_type=options.type,
      vocab_size=options.size,
      # SentencePiece would omit frequent words with a rare character.
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
      num_threads=1,  # a fixed order of summation, for the same model each time
      max_sentence_length=1 << 24,  # bytes; longer lines would be omitted
      minloglevel=2,
    )
  except RuntimeError as error:
    required = re.search(r"required_chars\. \d+ vs (\d+)", str(error))
    if required:
      raise InputError(
        f"a vocabulary of {options.size} pieces cannot hold the text's characters;"
        f" it needs at least {required[1]}, or a smaller character_coverage."
      ) from error
    raise InputError(
      f"SentencePiece could not train a vocabulary: {error}"
    ) from error
  with files.publish(path) as file:
    file.write(model.getvalue())
  return Vocabulary(path)
