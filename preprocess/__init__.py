"""Offline: text in, TFRecords out. Its own code imports no JAX."""
