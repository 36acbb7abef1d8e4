"""Encoder-decoder models and their layers."""
