"""Makes batches from the examples of a dataset split.

loader            `open_loader` and `DataLoader`; describes the path of a batch
batch_sampler     examples and shape of each batch
batch_shapes      choice of batch shapes
windows           shuffling windows of splits that do not fit in memory
transforms        most transforms of examples, and a list of all
mixture           several dataset directories as one split
tasks             examples of an auxiliary task
subword_sampling  resampled subwords
tree_sampling     resampled parse trees; `philox` makes their random numbers
collate           pads examples to batches
"""
