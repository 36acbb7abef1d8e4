"""Offline: text in, TFRecords out. Never imports JAX."""
