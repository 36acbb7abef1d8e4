"""Checks and measures an accelerator with one command, without network access.

  python -m benchmarks.accelerator --out accelerator.json [--minutes 20]

Measurements are ordered by importance, and each runs in a separate process. The
results are printed and written as JSON after each; failed measurements, and those
beyond the time limit, are listed. Sentences are random. --trial uses tiny sizes, to
try the command on a CPU.
"""
