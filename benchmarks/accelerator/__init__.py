"""Checks and measures an accelerator with one command, without a network.

  python -m benchmarks.accelerator --out accelerator.json [--minutes 20]

The most important measurements come first, each in a process of its own: a failed
one is reported and does not stop the others, and those that the time does not
suffice for are listed. The results are written after each row, as JSON and as
Markdown tables next to it. Sentences are random. --trial uses tiny sizes, to try the
command on a CPU.
"""
