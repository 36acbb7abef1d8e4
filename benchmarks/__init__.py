"""Benchmarks: each module is a command that prints lines name=value unit."""
