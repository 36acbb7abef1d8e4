"""Data pipeline from raw sentences to batches: `sentence`, `store`, `loader`.

`sentence` makes the arrays of an example, `store` writes and reads dataset
directories, and `loader` makes batches. `schema` defines the features of an
example, `annotations` the annotations of words besides the tree, and `options`
the dataset options.
"""
