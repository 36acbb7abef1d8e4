"""Encoder-decoders and their layers."""
