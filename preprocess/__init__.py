"""Prepares datasets offline: converts text to TFRecords without JAX."""
