"""Syntax-aware neural machine translation in JAX and Flax."""

__version__ = "0.1.0"
