"""Batches of a prepared split.

split          `open_split`, and how a batch is made
examples       other trees, tags and auxiliary tasks
tasks          examples of an auxiliary task
mixture        several dataset directories as one split
windows        which examples are in memory at the same time
batch_shapes   static shapes of batches
batch_plan     which examples form which batch
held           reads examples into memory
columns        pads examples to batches
sampling       sampled subwords; `texts` reads the sentences
tree_sampling  sampled trees
change         a caller's function on every batch
ahead          prefetching in a thread
"""
