"""The second story: what a prepared folder is, and how it is read back.

Reading order:
  manifests       what the folder says of itself; `manifest_format`
  integrity       sizes and checksums of its files
  tfrecord        frames of bytes with their checksums
  decoding        frames to arrays, hundreds at a time; `rows`, `example_check`
  records         the examples of a split, by its `index`
  tfds_builder    the same folder as a data set of TensorFlow Datasets
  fetch           files from elsewhere, with checksums
  parser_models   models of UDPipe, by file or by name
"""
