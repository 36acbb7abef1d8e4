"""Conventions for array names, and functions on arrays for all packages."""
