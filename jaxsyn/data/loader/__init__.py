"""The third story: from a prepared split to batches.

Reading order:
  columns        all facts of a split, decoded once; `column_cache`, `private`
  tasks          a second task: more examples out of the same pairs
  batch_plan     which pairs form which batch, in which static shape
  batches        the arrays of a batch
"""
