"""Storage: atomic files, checksums, locks, caches and object stores."""
