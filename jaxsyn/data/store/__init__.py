"""Dataset directories: how they are laid out, written and read.

layout          paths of the files
manifests       the manifest; its format is in `manifest_format`
integrity       sizes and checksums of the files
rows            many examples in one array a feature
tfrecord        frames of the TFRecord format
encoding        examples to records
decoding        records to examples; `example_check` validates values
lengths         lengths of examples
index           the index of a split
prepared        a split: what training, validation and --verify read
tfds_builder    dataset directories as TensorFlow Datasets
fetch           downloads with checksums
"""
