"""Package that lays out, writes and reads dataset directories.

dataset          `Dataset` and `Split`, from which examples are read
layout           paths of the files
manifests        the manifest; `manifest_format` checks its fields
integrity        sizes and checksums of the files; reading text and trees
rows             ragged arrays of many examples
tfrecord         the TFRecord format
encoding         serializes examples to records
decoding         decodes records; `example_check` validates the values
lengths          lengths of examples
index            the index of a split
tfds_metadata    metadata with which TensorFlow Datasets reads a dataset
fetch            downloads with checksums
"""
