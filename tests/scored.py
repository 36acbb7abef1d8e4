"""Scorers, and scores of a few lines."""

from jaxsyn.scoring.settings import Settings


def scorer_of(metric, references, tokenizer="13a", **options):
  """The scorer of one metric; options are settings."""
  (scorer,) = Settings((metric,), tokenizer, **options).scorers(references)
  return scorer


def score(hypotheses, references, metric="bleu", tokenizer="13a", **options):
  """The score of hypotheses under one metric."""
  scorer = scorer_of(metric, references, tokenizer, **options)
  return scorer.measure(hypotheses).score
