"""Scoring of translations: metrics, significance tests and tables."""
