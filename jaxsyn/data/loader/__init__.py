"""The third story: from a prepared split to batches.

Reading order:
  split          the door: `open_split`, and how a batch is made; or begin here
  tasks          a second task: another example out of the same pair
  examples       the examples of a split as a run reads them
  columns        all of them, one flat array a feature, and padded from there
  column_cache   columns on a disk
  batch_plan     which examples form which batch, in which static shape
"""
