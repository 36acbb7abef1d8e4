"""The second story: what a prepared folder is, and how it is read back.

Reading order:
  layout          where its files are
  manifests       what the folder says of itself; `manifest_format`
  integrity       sizes and checksums of its files
  rows            examples together, as they are written and read
  lengths         how long examples are, and where their columns
  blocks          columns of examples, in Arrow files
  prepared        the examples of a split by its columns: what training reads
  tfrecord        frames of bytes with their checksums
  decoding        frames to arrays, hundreds at a time; `example_check`
  encoding        the way back: sentences' arrays to bytes
  records         the same examples by their records, as others read them
  tfds_builder    the same folder as a data set of TensorFlow Datasets
  fetch           files from elsewhere, with checksums
"""
