"""Offline preparation of datasets: makes TFRecords from text without JAX."""
