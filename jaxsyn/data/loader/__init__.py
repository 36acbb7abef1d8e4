"""Batches of a dataset split.

loader            `open_loader` and `DataLoader`, which describes the path of a batch
batch_sampler     examples and shape of every batch; `batch_shapes` chooses the shapes
loading           `load` reads examples into memory, `prefetch` runs in a thread
transforms        the list of transforms of examples, and most of them
mixture           several dataset directories as one split
tasks             examples of an auxiliary task
subword_sampling  resampled subwords
tree_sampling     resampled trees; `philox` makes their random numbers
collate           pads examples to batches
"""
