"""Comparison of systems with several seeds: runs, statistics, report."""
