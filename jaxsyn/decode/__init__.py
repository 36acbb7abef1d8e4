"""Decoding: beam search, diverse beam search, sampling, and forced decoding.

Reading order: `sources` (from raw text to arrays); `ensemble` (the models, often only
one); `search` (the state of a search), `rank` and `beam`, `prefix`; then `programs`,
`pool` and `translator`, which search many sentences by continuous batching; `forced`,
which scores given translations.
"""
