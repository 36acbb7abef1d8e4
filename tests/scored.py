"""Scores of a few lines, by hand."""

from jaxsyn.scoring.metrics import scorer_of


def score(message, meant, metric="bleu", tokenizer="13a", **more):
  """The score of hypotheses under one metric."""
  return scorer_of(metric, meant, tokenizer, **more).measure(message).score
