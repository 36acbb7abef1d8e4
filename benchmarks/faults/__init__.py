"""What breaks on purpose, and what jaxsyn then says.

  python -m benchmarks.faults --kills 100 --flips 1000 --mutations 1000000

A small corpus is really prepared and a small run really trained; then files are
damaged, inputs mutated and processes killed, and each time the real code is
asked for its result. Before this file: nothing. After it: `harm` (how bytes are
damaged), `world` (what is damaged), `flips`, `mutations` and `kills` (the three
kinds of faults), `crew` (the processes in which cases run, since one may hang
or die). tests/faults runs a few hundred of the same cases.
"""
