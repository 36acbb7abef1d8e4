"""What an accelerator does with jaxsyn: one command, no network.

  python -m benchmarks.accelerator --out accelerator.json [--minutes 20] \\
    [--data data/quickstart]

Lines come in the order of their importance, each in a process of its own: what
fails is told and does not stop the others, and what the minutes do not reach is
listed. After each row the results are written, as JSON and beside it as a
Markdown table. Sentences are made from nothing; only the start of the real
command wants prepared data. With --trial all is tiny, for a look on a CPU.

On a machine without a network this checkout is enough, with JAX, Flax, Optax,
Orbax, SentencePiece, sacreBLEU, ml_collections and google-crc32c; the start of
the command also takes tensorflow-datasets, tensorboardX and rich, with what
they import.

Before this file: `train_speed`, `start_speed`, `synthetic`. Then `limits`, what
is measured in `checks`, `speed`, `search` and `start`; `lines`, in which order;
`results`, what is kept of it; `__main__`, the command.
"""
