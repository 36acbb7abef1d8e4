"""Layout, writing and reading of dataset directories.

dataset          `Dataset` and `Split`, from which data is read and verified
manifests        the manifest, and the paths of the files
rows             ragged arrays of many examples, and their lengths
tfrecord         TFRecord files, and the index of a split
records          encodes and decodes records
tfds_metadata    metadata with which TensorFlow Datasets reads a dataset
fetch            downloads with checksums
"""
