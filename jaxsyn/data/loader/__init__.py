"""The third story: from a prepared split to batches.

Reading order:
  split          the door: `open_split`, and how a batch is made; or begin here
  tasks          a second task: another example out of the same pair
  examples       the examples of a split as a run reads them
  column_cache   those that are not stored
  mixture        several prepared folders as one split
  windows        which examples are in memory together
  batch_shapes   the static shapes of batches
  batch_plan     which examples form which batch, in which of them
  held           examples read into memory
  columns        one flat array a feature, and padded from there
  change         a caller's own function on every batch
  ahead          what is made before it is asked for
"""
