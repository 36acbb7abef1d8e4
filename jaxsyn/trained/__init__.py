"""Trained runs: what is in their folders, and what it takes to open one."""
