"""Package that lays out, writes and reads dataset directories.

dataset          `Dataset` and `Split`, from which data is read and verified
layout           paths of the files
manifests        the manifest; `manifest_format` checks its fields
rows             ragged arrays of many examples
records          encodes and decodes records; `example_check` checks the values
index            the index of a split, with lengths of examples
tfds_metadata    metadata with which TensorFlow Datasets reads a dataset
fetch            downloads with checksums
"""
