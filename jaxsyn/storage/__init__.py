"""Atomic files, checksums, locks and caches, local and on object stores."""
