"""Configs: one file per dataset, the systems, and the papers' experiments."""
