"""Scores of a few lines."""

from jaxsyn.scoring.metrics import scorer_of


def score(hypotheses, references, metric="bleu", tokenizer="13a", **options):
  """The score of hypotheses under one metric."""
  scorer = scorer_of(metric, references, tokenizer, **options)
  return scorer.measure(hypotheses).score
