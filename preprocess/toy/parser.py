"""Trains the quickstart's parser on gold trees."""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
from collections.abc import Sequence

from jaxsyn.data.sentence.parsers.udpipe import load_udpipe
from jaxsyn.preprocess.toy.corpus import Pair

# A small model, stopped early: 15 seconds on one core. Lines are sentences, so
# the tokenizer only has to find commas and full stops.
TOKENISER = "tokenize_url=0;allow_spaces=0;dimension=16;epochs=1;batch_size=50"
TAGGER = "iterations=4;guesser_suffix_rules=4;guesser_enrich_dictionary=4"
PARSER_OPTIONS = (
  "iterations=5;hidden_layer=64;embedding_form=32;embedding_upostag=12;"
  "embedding_feats=4;embedding_deprel=12;transition_system=projective;"
  "transition_oracle=dynamic;structured_interval=0;learning_rate=0.02;"
  "learning_rate_final=0.001;l2=0.3;batch_size=10;single_root=1"
)


def train_parser(pairs: Sequence[Pair]) -> bytes:
  """Trains a UDPipe 1 model on the English gold trees of sentence pairs."""
  udpipe = load_udpipe()
  error = udpipe.ProcessingError()
  reader = udpipe.InputFormat.newConlluInputFormat()
  reader.setText("".join(p.conllu(str(i)) for i, p in enumerate(pairs, 1)))
  sentences, sentence = udpipe.Sentences(), udpipe.Sentence()
  while reader.nextSentence(sentence, error):
    sentences.append(sentence)
    sentence = udpipe.Sentence()
  with _captured_errors() as log:
    model = udpipe.Trainer.train(
      "morphodita_parsito",
      sentences,
      udpipe.Sentences(),
      TOKENISER,
      TAGGER,
      PARSER_OPTIONS,
      error,
    )
    if error.occurred() or not model:
      log.seek(0)
      text = log.read().decode(errors="replace")
      raise RuntimeError(f"UDPipe's trainer: {error.message}\n{text}")
  return model


@contextlib.contextmanager
def _captured_errors():
  """Redirects standard error, also of C++ libraries, to a file, and yields it."""
  sys.stderr.flush()
  with tempfile.TemporaryFile() as file:
    saved = os.dup(2)
    os.dup2(file.fileno(), 2)
    try:
      yield file
    finally:
      os.dup2(saved, 2)
      os.close(saved)
