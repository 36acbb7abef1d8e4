"""Checks and measures an accelerator with one command, without a network.

  python -m benchmarks.accelerator --out accelerator.json [--minutes 20]

Measurements are ordered by importance, and each runs in a separate process. Failed
measurements, and those beyond the time limit, are listed. The results are written
after each row, as JSON and as Markdown tables next to it. Sentences are random.
--trial uses tiny sizes, to try the command on a CPU.
"""
