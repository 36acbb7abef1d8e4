"""Benchmarks: each module is a command that prints "name=value unit" lines."""
